"""Linear algebra on batches of matrices, the last two axes of an array: the primitives."""
