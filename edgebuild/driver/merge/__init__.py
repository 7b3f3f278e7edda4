"""Merging of accesses, and an independent check of the result."""
