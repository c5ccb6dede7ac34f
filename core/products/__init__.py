"""Products of matrices in groups of rows, and of matrices with scales: the primitives."""
