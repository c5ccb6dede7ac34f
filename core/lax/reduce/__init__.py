"""Reductions and scans of one axis."""
