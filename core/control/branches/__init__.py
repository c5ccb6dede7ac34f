"""Primitives of which one of several branches runs."""
