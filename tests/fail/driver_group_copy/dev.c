bfGroup P { bit a; };
bfGroup G { bfGroup P x, y; };
make_device(G, g, 0x40000000);
bfGroup P other(void);
void f(void) { g->x = other(); }
