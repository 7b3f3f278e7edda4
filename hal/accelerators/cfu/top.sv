// SPDX-License-Identifier: 0BSD
// VexRiscv and the function unit, with the ports that hal/rtl/vexriscv.cpp drives.
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
  wire        valid, ready, done, taken;
  wire [9:0]  function_id;
  wire [31:0] a, b, result;

  VexRiscv core (
    .*,
    .CfuPlugin_bus_cmd_valid(valid), .CfuPlugin_bus_cmd_ready(ready),
    .CfuPlugin_bus_cmd_payload_function_id(function_id),
    .CfuPlugin_bus_cmd_payload_inputs_0(a), .CfuPlugin_bus_cmd_payload_inputs_1(b),
    .CfuPlugin_bus_rsp_valid(done), .CfuPlugin_bus_rsp_ready(taken), .CfuPlugin_bus_rsp_payload_outputs_0(result)
  );
  Cfu unit (.*);
endmodule
