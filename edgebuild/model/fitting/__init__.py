"""Which chips a model fits, by plans and estimates."""
