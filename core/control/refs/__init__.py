"""Mutable array references: cells, their operations, and calls that use them."""
