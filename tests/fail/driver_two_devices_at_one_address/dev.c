bfGroup G { bit a; };
make_device(G, g, 0x40000000);
make_device(G, h, 0x40000000);
