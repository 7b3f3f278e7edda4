bfGroup G {
    bit wse(Other::b) a;
};
make_device(G, g, 0x40000000);
