"""Clock trees, legal configurations, their currents, and the C that switches between them."""
