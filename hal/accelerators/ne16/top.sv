// SPDX-License-Identifier: 0BSD
// VexRiscv and an engine like NE16 at 0xF1000000, with the ports that hal/rtl/vexriscv.cpp drives.
module VexRiscvTop (
  input  [31:0] externalResetVector,
  input         timerInterrupt, softwareInterrupt,
  input  [31:0] externalInterruptArray,
  output        iBusWishbone_CYC, iBusWishbone_STB, iBusWishbone_WE,
  input         iBusWishbone_ACK, iBusWishbone_ERR,
  output [29:0] iBusWishbone_ADR,
  input  [31:0] iBusWishbone_DAT_MISO,
  output [31:0] iBusWishbone_DAT_MOSI,
  output [3:0]  iBusWishbone_SEL,
  output [2:0]  iBusWishbone_CTI,
  output [1:0]  iBusWishbone_BTE,
  output        dBusWishbone_CYC, dBusWishbone_STB, dBusWishbone_WE,
  input         dBusWishbone_ACK, dBusWishbone_ERR,
  output [29:0] dBusWishbone_ADR,
  input  [31:0] dBusWishbone_DAT_MISO,
  output [31:0] dBusWishbone_DAT_MOSI,
  output [3:0]  dBusWishbone_SEL,
  output [2:0]  dBusWishbone_CTI,
  output [1:0]  dBusWishbone_BTE,
  input         clk, reset
);
  wire        cycle, strobe, busy;
  wire        mine = cycle && strobe && dBusWishbone_ADR[29:22] == 8'hF1;

  assign dBusWishbone_CYC = cycle && !mine;
  assign dBusWishbone_STB = strobe && !mine;
  VexRiscv core (
    .*,
    .dBusWishbone_CYC(cycle), .dBusWishbone_STB(strobe), .dBusWishbone_ACK(mine || dBusWishbone_ACK),
    .dBusWishbone_DAT_MISO(mine ? {31'd0, busy} : dBusWishbone_DAT_MISO)
  );
  Ne16 unit (
    .clk, .reset, .start(mine && dBusWishbone_WE), .each(dBusWishbone_ADR[0]), .address(dBusWishbone_DAT_MOSI), .busy
  );
endmodule
