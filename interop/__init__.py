"""Exchange of tensors with NumPy, PyTorch, TensorFlow and whatever speaks DLPack.

Nothing here transforms a program. A framework is imported by its adapter only, and an adapter is
loaded only when a tensor of its framework arrives, so the framework is there already.
"""
