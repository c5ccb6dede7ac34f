"""Convolutions of arrays of any rank: by products, or by Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.conv.functions import conv_general_dilated
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_inexact

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

MODES = ("full", "same", "valid")
_UNROLLED = 32  # products that are written out, not looped over
# Kernels of more elements than are written out, and no more than this, XLA convolves faster than
# a loop of products adds up; beyond, it is 10 times as slow and more.
_BY_XLA = {np.dtype(np.float32): 128, np.dtype(np.float64): 64}


def check_mode(name: str, mode: Any) -> None:
    """Raise unless ``mode`` is one of those."""
    if mode not in MODES:
        msg = f"{name}: mode is {mode!r}, expected one of {list(MODES)}"
        raise ArgumentValueError(msg)


def ordered(name: str, a: Any, b: Any, mode: str, axes: Sequence[int]) -> tuple[Any, Any]:
    """The operands, with the larger one first where only full overlap counts."""
    if mode != "valid":
        return a, b
    left = all([a.shape[i] >= b.shape[i] for i in axes])
    right = all([b.shape[i] >= a.shape[i] for i in axes])
    if not (left or right):
        msg = f"{name}: got shapes {a.shape} and {b.shape} in mode 'valid'"
        raise ShapeMismatchError(
            msg, expected="one that is at least as large as the other along every axis"
        )
    return (a, b) if left else (b, a)


def check_operands(name: str, a: Any, b: Any) -> None:
    """Raise unless both have the same number of axes, and elements."""
    if a.ndim != b.ndim:
        msg = f"{name}: got arrays of {a.ndim} and of {b.ndim} axes, expected as many"
        raise RankError(msg)


def _window(
    x: Value, k: Sequence[int], mode: str, axes: Sequence[int], sizes: Sequence[int]
) -> Any:
    """What ``mode`` keeps of a full convolution with a kernel of sizes ``k``."""
    if mode == "full":
        return x
    index = [slice(None)] * x.ndim
    for i, size, width in zip(axes, sizes, k, strict=True):
        start = (width - 1) // 2 if mode == "same" else width - 1
        stop = start + (size if mode == "same" else size - width + 1)
        index[i] = slice(start, stop)
    return x[tuple(index)]


# by products -------------------------------------------------------------------------------------


def _direct(a: Value, b: Value, mode: str) -> Any:
    a, b = promote_inexact(a, b)
    shape, kernel = a.aval.shape, b.aval.shape
    if not shape:
        return lax.mul(a, b)
    if len(shape) == 1:
        return _window(tnp.convolve(a, b), kernel, mode, (0,), shape)
    low, high = zip(*[_padding(k, mode) for k in kernel], strict=True)
    if len(kernel) < 4 and _UNROLLED < b.aval.size <= _BY_XLA.get(a.aval.dtype, 0):
        return _by_xla(a, b, [_padding(k, mode) for k in kernel])
    zero = zeros_of(a.aval.update(shape=()))
    a = lax.pad(a, zero, [(lo, hi, 0) for lo, hi in zip(low, high, strict=True)])
    out = tuple([s - k + 1 for s, k in zip(a.aval.shape, kernel, strict=True)])
    return _sum_of_products(a, lax.rev(b, tuple(range(len(kernel)))), out)


def _by_xla(a: Value, b: Value, padding: list[tuple[int, int]]) -> Any:
    """One image of one channel, and one kernel."""
    n = a.aval.ndim
    kernel = lax.expand_dims(lax.rev(b, tuple(range(n))), (0, 1))
    image = lax.expand_dims(a, (0, 1))
    out = conv_general_dilated(image, kernel, (1,) * n, padding, precision="highest")
    return lax.squeeze(out, (0, 1))


def _padding(k: int, mode: str) -> tuple[int, int]:
    if mode == "full":
        return k - 1, k - 1
    return (0, 0) if mode == "valid" else (k // 2, (k - 1) // 2)


def _sum_of_products(a: Value, b: Value, out: tuple[int, ...]) -> Any:
    """Sum over the places of ``b`` of the part of ``a`` there, times the element."""
    places = np.indices(b.aval.shape, dtype=np.int32).reshape(b.aval.ndim, -1).T
    flat = lax.reshape(b, (b.aval.size,))

    def term(i: Any, start: Sequence[Any]) -> Any:
        part = lax.dynamic_slice(a, list(start), out)
        return lax.mul(part, lax.dynamic_index_in_dim(flat, i, 0, keepdims=False))

    zero = zeros_of(a.aval.update(shape=out))
    if len(places) <= _UNROLLED:
        total = zero
        for i, start in enumerate(places.tolist()):
            total = lax.add(total, term(i, start))
        return total

    def step(total: Any, x: Any) -> tuple[Any, None]:
        i, start = x
        starts = [lax.index_in_dim(start, j, 0, keepdims=False) for j in range(b.aval.ndim)]
        return lax.add(total, term(i, starts)), None

    counted = np.arange(len(places), dtype=np.int32)
    return scan(step, zero, (counted, places))[0]


direct = StagedFunction(_direct, "convolve")


# by transforms -----------------------------------------------------------------------------------


def _by_fft(a: Value, b: Value, mode: str, axes: tuple[int, ...]) -> Any:
    a, b = promote_inexact(a, b)
    dtype = a.aval.dtype
    if not axes:
        return lax.mul(a, b)
    sizes = [a.aval.shape[i] for i in axes]
    kernel = [b.aval.shape[i] for i in axes]
    full = [s + k - 1 for s, k in zip(sizes, kernel, strict=True)]
    fast = [_fast_length(n) for n in full]
    if is_complex(dtype):
        convolved = tnp.fft.ifftn(
            tnp.fft.fftn(a, fast, axes) * tnp.fft.fftn(b, fast, axes), fast, axes
        )
    else:
        convolved = tnp.fft.irfftn(
            tnp.fft.rfftn(a, fast, axes) * tnp.fft.rfftn(b, fast, axes), fast, axes
        )
    index = [slice(None)] * convolved.ndim
    for i, n in zip(axes, full, strict=True):
        index[i] = slice(n)
    return _window(convolved[tuple(index)], kernel, mode, axes, sizes).astype(dtype)


by_fft = StagedFunction(_by_fft, "fftconvolve")


def _fast_length(n: int) -> int:
    """The next number without prime factors above 5, at which transforms are fast."""
    best = 1 << max(n - 1, 0).bit_length()
    fives = 1
    while fives < best:
        threes = fives
        while threes < best:
            rest = -(-n // threes)
            best = min(best, threes << max(rest - 1, 0).bit_length())
            threes *= 3
        fives *= 5
    return best
