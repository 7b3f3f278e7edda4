bfGroup R { bit a; uint3 mode; };
bfGroup G { bfGroup R r; };
make_device(G, g, 0x40000000);
void f(void) { g->r = (bfGroup R){ .a = 1, .mode = -5 }; }
