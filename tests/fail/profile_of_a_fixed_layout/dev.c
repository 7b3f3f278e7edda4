bfGroup G { bit a; uint2 b; };
make_device(G, g, 0x40000000);
void f(void) { g->a = 1; g->b = 1; }
