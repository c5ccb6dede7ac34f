"""Jaxprs as graphs of ATen operations: one rule for each primitive, by family."""
