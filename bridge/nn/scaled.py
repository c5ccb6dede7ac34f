"""Products of matrices in formats of few bits, with a scale for each block of a row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_vjp import custom_vjp
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.products.scaled import scaled
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

__all__ = ["get_scaled_dot_general_config", "scaled_dot_general", "scaled_matmul"]

_FLOAT32 = np.dtype(np.float32)


@public_path("tracebridge.nn")
@dataclasses.dataclass(frozen=True, eq=False)
class BlockScaleConfig:
    """How an array becomes elements of few bits and scales of blocks."""

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(
    mode: Literal["nvfp4", "mxfp8"], global_scale: ArrayLike | None = None
) -> BlockScaleConfig:
    """A format for ``scaled_dot_general``.

    Args:
        mode: ``"mxfp8"``: float8_e4m3fn, blocks of 32 elements, scales that are powers of 2;
            ``"nvfp4"``: float4_e2m1fn, blocks of 16 elements, scales of float8_e4m3fn.
        global_scale: for ``"nvfp4"``, one more factor of the whole array, by default 1.

    Raises:
        ArgumentValueError: there is no such format.

    >>> import tracebridge as tb
    >>> tb.nn.get_scaled_dot_general_config("mxfp8").block_size
    32
    """
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, tnp.float8_e4m3fn, tnp.float8_e8m0fnu, None, False)
    if mode == "nvfp4":
        whole = tnp.ones((1,), _FLOAT32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, tnp.float4_e2m1fn, tnp.float8_e4m3fn, whole, False)
    raise ArgumentValueError(
        call="get_scaled_dot_general_config",
        where="argument mode",
        got=repr(mode),
        expected="'nvfp4' or 'mxfp8'",
    )


def scaled_matmul(
    lhs: ArrayLike,
    rhs: ArrayLike,
    lhs_scales: ArrayLike,
    rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike = np.float32,
) -> Array:
    """Products of rows of ``lhs`` and rows of ``rhs``, both times the scales of their blocks.

    Args:
        lhs: array of shape ``(b, m, k)``, of few bits or more.
        rhs: array of shape ``(b, n, k)``.
        lhs_scales: array of shape ``(b, m, k / block)``: one scale for each block of a row.
        rhs_scales: array of shape ``(b, n, k / block)``.
        preferred_element_type: dtype of the result; products are added up in float32.

    Returns:
        Array of shape ``(b, m, n)``.

    Raises:
        RankError: an argument has not three axes.
        ShapeMismatchError: sizes do not agree.

    >>> import tracebridge as tb
    >>> x, half = tb.numpy.ones((1, 1, 4)), tb.numpy.full((1, 1, 1), 0.5)
    >>> tb.nn.scaled_matmul(x, x, half, half).tolist()
    [[[1.0]]]
    """
    dtype = canonicalize_explicit(preferred_element_type, "scaled_matmul")
    a, b, s, t = [as_value(v, "scaled_matmul") for v in (lhs, rhs, lhs_scales, rhs_scales)]
    got = ", ".join([v.aval.str_short() for v in (a, b, s, t)])
    if any([v.aval.ndim != 3 for v in (a, b, s, t)]):
        raise RankError(f"scaled_matmul: got {got}", expected="arrays of three axes")
    for x, y in ((a, b), (s, t)):
        if x.aval.shape[0] != y.aval.shape[0] or x.aval.shape[2] != y.aval.shape[2]:
            msg = f"scaled_matmul: got {got}"
            raise ShapeMismatchError(msg, expected="the same first and last sizes on both sides")
    left, right = [
        scaled(f"scaled_matmul: {name}", v, w, (2,), _FLOAT32)
        for name, v, w in (("lhs", a, s), ("rhs", b, t))
    ]
    out: Any = lax.dot_general(left, right, (((2,), (2,)), ((0,), (0,))), "highest")
    return out.astype(dtype)


def scaled_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: Any,
    preferred_element_type: DTypeLike = np.float32,
    configs: list[BlockScaleConfig] | None = None,
    implementation: Literal["cudnn"] | None = None,
) -> Array:
    """``dot_general`` of operands that are rounded to a format of few bits.

    In reverse mode, the cotangent and the other operand are rounded likewise for ``"mxfp8"``;
    for ``"nvfp4"`` they are not, and elements that were cut off get no cotangent.

    Args:
        lhs: floating array.
        rhs: floating array.
        dimension_numbers: as in ``dot_general``.
        preferred_element_type: float32, bfloat16 or float16.
        configs: formats of ``lhs``, of ``rhs`` and of cotangents, see
            ``get_scaled_dot_general_config``; ``None`` means ``dot_general`` as it is.
        implementation: no effect.

    Returns:
        Array with the batch axes, the free axes of ``lhs``, then those of ``rhs``.

    Raises:
        UnsupportedDtypeError: another ``preferred_element_type``.
        ArgumentValueError: not three formats.

    >>> import tracebridge as tb
    >>> x = tb.numpy.ones((2, 32))
    >>> formats = [tb.nn.get_scaled_dot_general_config("mxfp8")] * 3
    >>> tb.nn.scaled_dot_general(x, x, (((1,), (1,)), ((), ())), configs=formats)[0].tolist()
    [32.0, 32.0]
    """
    if implementation is not None:
        warn_user("scaled_dot_general: implementation has no effect", DeprecationWarning)
    dtype = canonicalize_explicit(preferred_element_type, "scaled_dot_general")
    if dtype.name not in ("float32", "bfloat16", "float16"):
        msg = f"scaled_dot_general: preferred_element_type is {dtype.name}"
        raise UnsupportedDtypeError(msg, hint="float32, bfloat16 or float16")
    if configs is None:
        return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=dtype)
    if len(configs) != 3:
        msg = f"scaled_dot_general: {len(configs)} configs, expected those of lhs, rhs, cotangents"
        raise ArgumentValueError(msg)
    x, y = tnp.asarray(lhs), tnp.asarray(rhs)
    (xc, yc), (xb, yb) = dimension_numbers
    rows, free_x = _as_rows(x, xc, xb)
    columns, free_y = _as_rows(y, yc, yb)
    wholes = [None if c.global_scale is None else tnp.asarray(c.global_scale) for c in configs]
    out = _product(tuple(configs), dtype)(rows, columns, wholes)
    return out.reshape((*[x.shape[i] for i in xb], *free_x, *free_y))


def _as_rows(x: Value, contracting: Sequence[int], batch: Sequence[int]) -> tuple[Any, list[Any]]:
    """``x`` with one batch axis, one free axis and one contracting axis; the free sizes."""
    free = [i for i in range(x.ndim) if i not in (*contracting, *batch)]
    sizes = [[x.shape[i] for i in axes] for axes in (batch, free, contracting)]
    moved = x.transpose((*batch, *free, *contracting))
    return moved.reshape([math.prod(s) for s in sizes]), sizes[1]


def _product(formats: tuple[BlockScaleConfig, ...], dtype: Any) -> Any:
    """The product of rows ``(b, m, k)`` and ``(b, n, k)``, with its rule."""
    of_x, of_y, of_ct = formats
    mode = of_x.mode

    def product(x: Any, y: Any, wholes: Any) -> Any:
        return _rounded_product(x, y, of_x, of_y, wholes[:2], dtype)

    def forward(x: Any, y: Any, wholes: Any) -> Any:
        return product(x, y, wholes), (x, y, wholes)

    def backward(residuals: Any, ct: Any) -> Any:
        x, y, wholes = residuals
        x_t, y_t, ct_t = (tnp.swapaxes(v, 1, 2) for v in (x, y, ct))
        if mode == "nvfp4":
            gx = lax.batch_matmul(ct.astype(_FLOAT32), y.astype(_FLOAT32))
            gy = lax.batch_matmul(ct_t.astype(_FLOAT32), x.astype(_FLOAT32))
            gx, gy = (
                tnp.where(abs(v) <= whole * _largest(f.data_type) * _largest(f.scale_type), g, 0)
                for g, v, f, whole in ((gx, x, of_x, wholes[0]), (gy, y, of_y, wholes[1]))
            )
        else:
            gx = _rounded_product(ct, y_t, of_ct, of_y, (None, None), dtype)
            gy = _rounded_product(ct_t, x_t, of_ct, of_x, (None, None), dtype)
        none = [None if w is None else tnp.zeros_like(w) for w in wholes]
        return gx.astype(x.dtype), gy.astype(y.dtype), none

    made = custom_vjp(product)
    made.defvjp(forward, backward)
    return made


def _rounded_product(
    x: Value, y: Value, of_x: BlockScaleConfig, of_y: BlockScaleConfig, wholes: Any, dtype: Any
) -> Any:
    """The product of both operands, rounded to their formats."""
    left, left_scales = _rounded(x, of_x, wholes[0])
    right, right_scales = _rounded(y, of_y, wholes[1])
    out: Any = scaled_matmul(left, right, left_scales, right_scales)
    for whole in wholes:
        out = out if whole is None else out * whole
    return out.astype(dtype)


def _rounded(x: Value, form: BlockScaleConfig, whole: Any) -> tuple[Any, Any]:
    """Elements in a format of few bits, and the scales of their blocks.

    Blocks are filled up with zeros, which change no scale and no sum.
    """
    batch, rows, k = x.shape
    size = form.block_size
    count = -(-k // size)
    x = tnp.pad(x.astype(_FLOAT32), ((0, 0), (0, 0), (0, count * size - k)))
    x = x.reshape(batch, rows, count, size)
    if whole is not None:
        x = x / whole
    share = abs(x).max(-1, keepdims=True, initial=0.0) / _largest(form.data_type)
    if form.mode == "nvfp4":
        scales = tnp.clip(share, 0, _largest(form.scale_type)).astype(form.scale_type)
        scales = lax.optimization_barrier(scales)
    else:
        scales = _power_of_2_above(share)
    number = scales.astype(_FLOAT32)
    # A block of zeros has the scale 0 where the format has a 0.
    parts = tnp.where(number == 0, 0, x / tnp.where(number == 0, 1, number))
    top = _largest(form.data_type)
    elements = tnp.clip(parts, -top, top).astype(form.data_type)
    return elements.reshape(batch, rows, count * size), scales[..., 0]


def _power_of_2_above(x: Value) -> Any:
    """The least power of 2 that is not below ``x``, as float8_e8m0fnu: the exponent of a float32.

    Below the smallest of them comes the smallest; above the largest the largest.
    """
    bits = lax.bitcast_convert_type(x, np.uint32)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    # Subnormals up to half of the smallest normal number are not above 2 ** -127.
    up = (mantissa > 0) & (exponent != 0xFE) & ~((exponent == 0) & (mantissa <= 0x400000))
    stored = (exponent + up.astype(np.uint32)).astype(np.uint8)
    return lax.bitcast_convert_type(stored, tnp.float8_e8m0fnu)


def _largest(dtype: Any) -> float:
    return float(tnp.finfo(dtype).max)
