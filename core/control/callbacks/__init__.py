"""Primitives that call Python functions of the user."""
