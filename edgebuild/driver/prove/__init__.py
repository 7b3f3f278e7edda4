"""A proof that generated code does what its source does, by symbolic execution over an SMT solver."""
