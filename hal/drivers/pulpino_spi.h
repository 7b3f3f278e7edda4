/* PULPino SPI master. */
#ifndef PULPINO_SPI_H
#define PULPINO_SPI_H

enum { SPI_CMD_RD, SPI_CMD_WR, SPI_CMD_QRD, SPI_CMD_QWR, SPI_CMD_SWRST }; /* transactions */
enum { SPI_CSN0, SPI_CSN1, SPI_CSN2, SPI_CSN3 };

void spi_setup_slave(void);
void spi_setup_master(int numcs);
void spi_setup_cmd_addr(int cmd, int cmdlen, int addr, int addrlen);
void spi_setup_dummy(int dummy_rd, int dummy_wr);
void spi_set_datalen(int datalen);
void spi_start_transaction(int trans_type, int csnum);
int spi_get_status(void); /* 1: idle */
void spi_write_fifo(int *data, int datalen);
void spi_read_fifo(int *data, int datalen);

#endif
