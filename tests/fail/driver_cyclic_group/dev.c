bfGroup G;
bfGroup H {
    bfGroup G inner;
};
bfGroup G { bfGroup H h; };
make_device(G, g, 0x40000000);
