"""The NumPy API on engine arrays."""
