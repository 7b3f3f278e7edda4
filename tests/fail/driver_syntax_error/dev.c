bfGroup G { bit a; };
make_device(G, g, 0x40000000);
void on(void)
{
    g->a = 1
}
