"""Memory planning: in which order tasks run, and where their buffers lie. Knows no neural network.

problem    the values that go in and come out
schedule   an order of least peak memory
layout     offsets of least height; problems as CSV files
exact      whether there is a layout within a height
check      short, naive proofs that a schedule or a layout is valid
"""
