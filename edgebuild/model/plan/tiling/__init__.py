"""Fused tiling: runs of ops computed part by part (Stahl 2024, ch. 4; Stahl et al., "Fused Depthwise Tiling", 2023).

`paths` finds runs of ops that can be cut (along the channels: FDT; along rows and columns: FFMT), estimates their cost,
and makes the graph in which every part is an op. `explore` chooses among the runs around critical buffers.
"""
