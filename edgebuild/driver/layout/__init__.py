"""The register layout of a driver: the problem, and its exact and heuristic solvers."""
