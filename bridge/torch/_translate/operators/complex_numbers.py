"""Operators on complex numbers, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, axis_of, promoted

# How torch names the factor: none, 1 / sqrt(n), 1 / n.
_FACTORS = {0: 0.0, 1: -0.5, 2: -1.0}


def _scaled(x: Value, shape: Sequence[int], dims: Sequence[int], normalization: int) -> Any:
    power = _FACTORS[normalization]
    count = 1
    for d in dims:
        count = count * shape[d]
    return x if power == 0 else x * np.asarray(float(count) ** power, x.real.dtype)


def _fft_c2c(x: Value, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    dims = [axis_of(d, x.ndim) for d in dim]
    fun = tnp.fft.fftn if forward else tnp.fft.ifftn
    return _scaled(fun(x, axes=dims, norm=_no_factor(forward)), x.shape, dims, normalization)


def _fft_r2c(x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    dims = [axis_of(d, x.ndim) for d in dim]
    fun = tnp.fft.rfftn if onesided else tnp.fft.fftn
    return _scaled(fun(x, axes=dims, norm=_no_factor(True)), x.shape, dims, normalization)


def _fft_c2r(x: Value, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    dims = [axis_of(d, x.ndim) for d in dim]
    shape = list(x.shape)
    shape[dims[-1]] = last_dim_size
    sizes = [shape[d] for d in dims]
    full = tnp.fft.irfftn(x, s=sizes, axes=dims, norm=_no_factor(False))
    return _scaled(full, shape, dims, normalization)


def _no_factor(forward: bool) -> str:
    return "backward" if forward else "forward"


def _view_as_real(x: Value) -> Any:
    return tnp.stack([x.real, x.imag], -1)


def _view_as_complex(x: Value) -> Any:
    return lax.complex(x[..., 0], x[..., 1])


def _complex(real: Value, imag: Value) -> Any:
    return lax.complex(*tnp.broadcast_arrays(*promoted(real, imag)))


def _polar(size: Value, angle: Value) -> Any:
    return _complex(size * tnp.cos(angle), size * tnp.sin(angle))


def _angle(x: Value) -> Any:
    (x,) = promoted(x, floats=True)
    if x.dtype.kind == "c":
        return tnp.angle(x)
    turned = tnp.where(x < 0, np.asarray(np.pi, x.dtype), np.asarray(0, x.dtype))
    return tnp.where(lax.ne(x, x), x, turned)  # the angle of what is no number is none


ROWS: Final[dict[str, Operator]] = {
    "_conj.default": tnp.conj,
    "_conj_physical.default": tnp.conj,
    "_fft_c2c.default": _fft_c2c,
    "_fft_c2r.default": _fft_c2r,
    "_fft_r2c.default": _fft_r2c,
    "angle.default": _angle,
    "complex.default": _complex,
    "polar.default": _polar,
    "view_as_complex.default": _view_as_complex,
    "view_as_real.default": _view_as_real,
}
