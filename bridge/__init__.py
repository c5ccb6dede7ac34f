"""A differentiable array engine on XLA, with bridges to PyTorch and TensorFlow."""

from __future__ import annotations

__version__ = "0.1.0"
