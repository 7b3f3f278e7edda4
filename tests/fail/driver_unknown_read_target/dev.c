bfGroup G {
    bit rse(self, staet) a;
    bit state;
};
make_device(G, g, 0x40000000);
