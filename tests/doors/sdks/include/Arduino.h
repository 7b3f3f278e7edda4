#include <stdio.h>
struct Port {
    void begin(long) {}
    operator bool() { return true; }
    void println(const char *text) { puts(text); }
};
static Port Serial;
static inline unsigned long millis() { return 0; }
void setup();
void loop();
