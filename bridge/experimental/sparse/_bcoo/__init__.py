"""Batched coordinates: the format BCOO and its operations."""
