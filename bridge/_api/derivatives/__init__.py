"""Derivatives in forward and reverse mode."""
