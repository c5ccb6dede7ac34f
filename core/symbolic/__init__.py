"""Symbolic dimensions: sizes that are integer expressions over named variables."""
