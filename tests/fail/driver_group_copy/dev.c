bfGroup P { bit a; };
bfGroup G { bfGroup P x, y; };
make_device(G, g, 0x40000000);
void f(void) { g->x = g->y; }
