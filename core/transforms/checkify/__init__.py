"""Checks in traced programs: error values instead of exceptions."""
