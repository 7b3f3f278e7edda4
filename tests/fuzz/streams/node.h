/* Device number NODE of the streams: what hal/src/cluster.c and a port define and need has the device in its name, so that
 * three devices are in one program. Included before every file of theirs. */
#ifndef NODE_H
#define NODE_H

#define NODE_PASTE(number, name) n##number##_##name
#define NODE_NAME(number, name) NODE_PASTE(number, name)
#define OWN(name) NODE_NAME(NODE, name)

#define eb_cluster_begin OWN(cluster_begin)
#define eb_cluster_send OWN(cluster_send)
#define eb_cluster_receive OWN(cluster_receive)
#ifdef OF_CLUSTER
#define eb_link_send OWN(watched_send)
#else
#define eb_link_send OWN(link_send)
#endif
#define eb_link_receive OWN(link_receive)
#define eb_link_time_us OWN(link_time_us)
#define eb_link_uart_received OWN(link_uart_received)
#define eb_can_send OWN(can_send)
#define eb_can_receive OWN(can_receive)
#define eb_can_time_us OWN(can_time_us)
#define eb_spi_ready OWN(spi_ready)
#define eb_spi_transfer OWN(spi_transfer)
#define eb_spi_arm OWN(spi_arm)
#define eb_spi_done OWN(spi_done)
#define eb_spi_time_us OWN(spi_time_us)
#define eb_udp_address OWN(udp_address)
#define eb_udp_poll OWN(udp_poll)
#define pbuf_alloc OWN(pbuf_alloc)
#define pbuf_free OWN(pbuf_free)
#define pbuf_take OWN(pbuf_take)
#define pbuf_take_at OWN(pbuf_take_at)
#define pbuf_copy_partial OWN(pbuf_copy_partial)
#define ip_addr_any OWN(ip_addr_any)
#define udp_new OWN(udp_new)
#define udp_bind OWN(udp_bind)
#define udp_recv OWN(udp_recv)
#define udp_sendto OWN(udp_sendto)
#define sys_now OWN(sys_now)

#endif
