"""Which field stands in which register: the problem, the exact and the heuristic solver."""
