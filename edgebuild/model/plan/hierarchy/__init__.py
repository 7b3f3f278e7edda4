"""Loop nests over memory levels: what a mapping costs, and the best one.

Knows index relations and memories, but no networks. Terms: a *mapping* cuts axes into tiles and orders the
loops over them, outermost first; every operand is moved at a *depth*, inside of that many loops, in one or two buffers.
"""
