bfGroup G { bit a; uint8 n; };
make_device(G, g, 0x40000000);
#ifndef LIMIT
#define LIMIT 9
#endif
