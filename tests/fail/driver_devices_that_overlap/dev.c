bfGroup G { uint32 a[8]; };
make_device(G, g, 0x40000000);
make_device(G, h, 0x40000010);
void f(int i) { g->a[i] = h->a[i]; }
