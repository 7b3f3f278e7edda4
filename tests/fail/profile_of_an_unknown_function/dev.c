bfGroup G { bit a; };
make_device(G, g, 0x40000000);
void set_a(int v) { g->a = v; }
