"""Tensors and numbers on their way into programs and back."""
