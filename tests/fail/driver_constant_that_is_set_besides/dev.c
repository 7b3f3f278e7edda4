bfGroup G { bit a; };
make_device(G, g, 0x40000000);
void f(void)
{
    g->a = 1;
    g->a |= 2;
}
