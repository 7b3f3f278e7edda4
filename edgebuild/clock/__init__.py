"""Clock trees, their legal configurations and currents, and the C code that switches between configurations."""
