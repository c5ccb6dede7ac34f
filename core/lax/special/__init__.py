"""Special functions, one file per family."""
