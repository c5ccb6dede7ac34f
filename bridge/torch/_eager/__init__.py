"""Calls on plain eager tensors."""
