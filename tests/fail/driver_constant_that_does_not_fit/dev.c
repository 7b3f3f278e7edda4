bfGroup G { bit a; uint3 mode; };
make_device(G, g, 0x40000000);
void f(int c)
{
    g->mode = c ? 2 : 9;
}
