enum Speed { SLOW, FAST };
enum Other { SOME, MORE };
bfGroup G { bit bf_enum(Speed) speed; };
make_device(G, g, 0x40000000);
void f(void) { g->speed = MORE; }
