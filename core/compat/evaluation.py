"""Evaluation while a function is traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tracebridge.core.ir.trace import use_trace


@contextmanager
def _evaluating() -> Iterator[None]:
    with use_trace(None):
        yield


def ensure_compile_time_eval() -> AbstractContextManager[None]:
    """Evaluate operations inside a ``with`` block at once, also while a function is traced.

    Their results are concrete and can steer Python code. Operations on traced values still belong
    to the transformation that traces them.

    >>> import tracebridge as tb
    >>> @tb.jit
    ... def f(x):
    ...     with tb.ensure_compile_time_eval():
    ...         positive = bool(tb.lax.sin(3.0) > 0)
    ...     return tb.lax.sin(x) if positive else x
    >>> print(f(0.0))
    0.0
    """
    return _evaluating()


def eval_context() -> AbstractContextManager[None]:
    """The same as ``ensure_compile_time_eval``."""
    return _evaluating()
