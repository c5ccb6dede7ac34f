"""A differentiable array engine on XLA, with bridges to PyTorch and TensorFlow."""

from __future__ import annotations

from tracebridge import _install as _install

__version__ = "0.1.0"
