"""Turns a plan into artifacts: C, headers, weights, linker scripts, report and pictures."""
