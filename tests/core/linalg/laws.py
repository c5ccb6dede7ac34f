"""What tests of linear algebra share: random matrices, tolerances, and lowerings to choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tracebridge as tb
from tests.quick_compiles import quick_jit
from tracebridge.core.lowering import context

REAL = (np.float32, np.float64)
DTYPES = (*REAL, np.complex64, np.complex128)
SHAPES = ((4, 4), (1, 1), (2, 3, 3), (5, 3), (2, 3, 5), (20, 20))
SQUARE = ((4, 4), (1, 1), (2, 3, 3), (20, 20))
EMPTY = ((0, 0), (0, 3), (3, 0), (2, 0, 2), (0, 2, 2))
SINGLE = (np.float32, np.complex64)


def tolerance(dtype: Any) -> float:
    """Some hundred roundings."""
    return 2e-4 if dtype in SINGLE else 1e-10


def matrix(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Random elements of a dtype."""
    random = np.random.default_rng([seed, *shape])
    x = random.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * random.normal(size=shape)
    return x.astype(dtype)


def positive(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Random Hermitian positive definite matrices."""
    x = matrix(dtype, *shape, seed=seed)
    return (x @ adjoint(x) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def hermitian(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Random Hermitian matrices."""
    x = matrix(dtype, *shape, seed=seed)
    return ((x + adjoint(x)) / 2).astype(dtype)


def adjoint(x: Any) -> np.ndarray:
    """The transposed and conjugated matrices."""
    return np.asarray(x).conj().swapaxes(-1, -2)


def close(expected: Any, actual: Any, dtype: Any, factor: float = 1.0) -> None:
    """Fail unless the two agree up to roundings of ``dtype``."""
    bound = factor * tolerance(dtype)
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=bound, atol=bound)


@contextmanager
def without_libraries() -> Iterator[None]:
    """Lower on the CPU as exported programs are lowered: by operations of StableHLO alone."""
    rules = context._PLATFORM_RULES
    removed = {
        key: rule
        for key, rule in rules.items()
        if type(key[0]).__module__.startswith("tracebridge.core.linalg")
    }
    for key in removed:
        del rules[key]
    try:
        yield
    finally:
        rules.update(removed)


def jitted(fun: Callable[..., object], portable: bool) -> Callable[..., Any]:
    """A program for ``without_libraries`` is compiled quickly: it shows nothing of fusions."""
    return quick_jit(fun) if portable else tb.jit(fun)
