"""Elementwise primitives, one file per family."""
