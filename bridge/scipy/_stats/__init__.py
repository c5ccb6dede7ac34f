"""The distributions of scipy.stats: one description each."""
