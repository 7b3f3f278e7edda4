"""Fused tiling: runs of ops computed part by part (Stahl 2024, ch. 4; Stahl et al., "Fused Depthwise Tiling", 2023).

`critical` says which buffers make the layout as high as it is, `paths` finds runs of ops around them that can be cut
(along the channels: FDT; along rows and columns: FFMT), `cost` what a cut run takes, `search` chooses, and `transform`
makes the graph in which every part is an op of its own.
"""
