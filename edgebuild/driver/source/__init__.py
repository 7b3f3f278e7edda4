"""Driver sources: libclang, and the bfGroup dialect."""
