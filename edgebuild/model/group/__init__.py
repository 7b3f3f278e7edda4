"""Several models and buffers of the application in one arena.

A model's arena is a buffer in three moments: `input`, while the application writes the inputs, which alone hold
something; `run`, when all of it may; and `output`, while the outputs are read. `idle` is the moment at which no model
is at work. Who is at work with whom says `share`. The layout is that of `plan/memory`, exact and with its bound.
"""
