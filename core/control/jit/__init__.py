"""jit: the callable of a compiled function."""
