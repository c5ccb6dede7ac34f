"""Functions with rules of their own: derivatives, batching, dead code, linear calls."""
