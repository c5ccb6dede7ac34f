"""Primitives that change shapes, not elements."""
