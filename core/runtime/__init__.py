"""Runtime: backends, arrays, transfers, compilation, execution, cached calls."""
