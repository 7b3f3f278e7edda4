// SPDX-License-Identifier: 0BSD
// A custom function unit: four products of int8 in one instruction, added to a sum that stays here.
// Function 0 begins a sum with `a`; function 1 adds the products of the four bytes of `a` and `b`. Both give the sum.
module Cfu (
  input             clk,
  input             valid,
  output            ready,
  input      [9:0]  function_id,
  input      [31:0] a,
  input      [31:0] b,
  output            done,
  input             taken,
  output     [31:0] result
);
  reg signed [31:0] sum;
  wire signed [31:0] products =
    $signed(a[7:0]) * $signed(b[7:0]) + $signed(a[15:8]) * $signed(b[15:8]) +
    $signed(a[23:16]) * $signed(b[23:16]) + $signed(a[31:24]) * $signed(b[31:24]);

  assign ready = taken;
  assign done = valid;
  assign result = function_id[0] ? sum + products : a;
  always @(posedge clk) if (valid && taken) sum <= result;
endmodule
