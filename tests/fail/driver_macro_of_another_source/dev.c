/*
*/
#ifndef LIMIT
#define LIMIT 5
#endif
void f(void) { g->n = LIMIT; }
