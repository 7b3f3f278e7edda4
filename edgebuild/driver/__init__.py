"""The driver generator: sources in the bfGroup dialect become C with merged register accesses, and a register layout.

The stages, each with one central value: `sources` (Source), `dialect` (Dialect), `walk` (Cdfg), `simplify` (Shapes),
`conflicts` (Conflicts), `optimize` or `fixed` (Layout), `merge` (Merged), `products` (files). `pipeline` runs them.
"""
