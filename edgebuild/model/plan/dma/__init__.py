"""Ops and runs whose data a DMA unit moves between memory levels: plans of `--map`."""
