"""Fused tiling: runs of ops computed part by part (Stahl 2024, ch. 4; Stahl et al., "Fused Depthwise Tiling", 2023).

`paths` finds runs of ops that can be cut (along the channels: FDT; along rows and columns: FFMT) and what that costs,
`explore` chooses among those around critical buffers, and `transform` makes the graph in which every part is an op.
"""
