/* The declarations of lwIP 2 that the port uses, after its documentation. */
#ifndef FAKE_PBUF_H
#define FAKE_PBUF_H
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8_t;
typedef uint16_t u16_t;
typedef uint32_t u32_t;
typedef signed char err_t;
enum { ERR_OK = 0, ERR_MEM = -1 };
typedef enum { PBUF_TRANSPORT, PBUF_RAW } pbuf_layer;
typedef enum { PBUF_RAM, PBUF_POOL } pbuf_type;
struct pbuf {
    struct pbuf *next;
    void *payload;
    u16_t tot_len, len;
};
struct pbuf *pbuf_alloc(pbuf_layer layer, u16_t length, pbuf_type type);
u8_t pbuf_free(struct pbuf *p);
err_t pbuf_take(struct pbuf *p, const void *data, u16_t length);
err_t pbuf_take_at(struct pbuf *p, const void *data, u16_t length, u16_t offset);
u16_t pbuf_copy_partial(const struct pbuf *p, void *to, u16_t length, u16_t offset);
#endif
