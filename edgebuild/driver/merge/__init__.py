"""Which accesses become one, and the check of that by another route."""
