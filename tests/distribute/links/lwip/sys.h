#ifndef FAKE_SYS_H
#define FAKE_SYS_H
#include "lwip/pbuf.h"
u32_t sys_now(void);
#endif
