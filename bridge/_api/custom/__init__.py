"""Functions with rules of their own."""
