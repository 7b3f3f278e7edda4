"""Plan to artifacts: everything that a model becomes."""
