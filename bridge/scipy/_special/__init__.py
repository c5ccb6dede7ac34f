"""The functions of scipy.special, one file per family."""
