"""Arrays: buffers with interned signatures, their parts, transfers and placement."""
