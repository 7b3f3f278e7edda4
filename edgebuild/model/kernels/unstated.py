"""Instructions that no kernel states: those of a call, and of kernels that have no estimate.

PER_CALL and PER_ROW_CALL: `./sconsw bench-calls` counts 3 to 12 and 36 to 39 with two arguments. Kernels with constants
and scratch take up to ten arguments and save all registers, which is 20 to 40 more.

PER_TURN: per multiply-accumulate of a float network in plain C (`--optimize size`) a Cortex-M4 executes 6 of a dense
layer, 11 of a convolution and 15 of a depthwise one; RV32IMC 7 of a convolution of int16.
"""

PER_CALL = 40  # of a whole op
PER_ROW_CALL = 60  # of a row: with the order's table and the addresses of rows
PER_TURN = 8  # of the innermost loop
PER_ROW_KEPT, PER_BYTE_KEPT = 60, 0.6  # of a row that is copied into its ring: memcpy of newlib, a word at a time
