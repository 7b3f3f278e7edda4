"""From a canonical graph to a plan: order of ops, tiling, sections, memory layout, and the replay that checks it."""
