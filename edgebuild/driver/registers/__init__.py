"""Registers that exist already: SVD and SystemRDL files, and layouts fixed by them."""
