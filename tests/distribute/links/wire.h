/* A medium between processes for tests of ports: datagrams by UNIX sockets, of which some are lost, sent twice or swapped.
 * EB_LINK_FOLDER: where the sockets are; EB_LINK_HARM: of so many datagrams one is harmed, 0 for none; a file `calm` in
 * the folder ends that. */
#ifndef WIRE_H
#define WIRE_H

#include <stdint.h>

void wire_open(int self);
int wire_send(int to, const void *data, uint32_t bytes, int harmless); /* 0: there is no such device (yet) */
int wire_receive(void *data, uint32_t most);                           /* bytes, 0 for none */
uint32_t wire_time_us(void);

#endif
