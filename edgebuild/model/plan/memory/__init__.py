"""Memory planning: in which order tasks run, and where their buffers lie. Knows no neural network.

problem    the values that go in and come out
schedule   an order of least peak memory
layout     offsets of least height (sections, greedy, exact: how)
check      short, naive proofs that a schedule or a layout is valid
csvfile    layout problems as CSV files
"""
