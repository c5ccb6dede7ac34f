"""Random number generators and typed keys."""
