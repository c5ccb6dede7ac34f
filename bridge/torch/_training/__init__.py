"""Whole steps of training as one program: what ``train_step`` is made of."""
