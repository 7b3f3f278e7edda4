bfGroup G { bit a; };
make_device(G, g, 0x40000000);
void set(unsigned char *);
void f(void) { set(&g->a); }
