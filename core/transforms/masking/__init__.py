"""Logical shapes of padded arrays: an out-of-tree transformation with a table of its own."""
