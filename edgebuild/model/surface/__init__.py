"""Inputs and outputs of models, and their headers in C, without numpy: a step of builds of its own."""
