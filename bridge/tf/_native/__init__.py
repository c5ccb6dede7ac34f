"""Jaxprs as graphs of TensorFlow's own operations: one rule for each primitive, by family."""
