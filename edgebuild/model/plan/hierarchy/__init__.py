"""Loop nests over memory levels: the cost of a mapping, and the best mapping.

Knows index relations and memories, but no networks. Terms: a *mapping* cuts axes into tiles and orders the
loops over them, outermost first; every operand is moved at a *depth*, inside of that many loops, in one or two buffers.
"""
