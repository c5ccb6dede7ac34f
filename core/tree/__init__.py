"""Pytrees: nested containers of leaves, flattened by our own C++ registry."""
