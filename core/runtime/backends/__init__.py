"""Clients of XLA and what may be asked of them."""
