"""Reductions with computations of the user, over axes and over windows; what windows select."""
