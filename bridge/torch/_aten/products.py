"""Products of matrices, convolutions and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_integer
from tracebridge.torch._aten.arithmetic import converted
from tracebridge.torch._aten.builder import Builder, aten, rule
from tracebridge.torch._aten.carriers import DType, carrier
from tracebridge.torch._aten.integers import masked
from tracebridge.torch._aten.shapes import permuted, reshaped, with_padding


def _operand(b: Builder, x: fx.Proxy, i: int, out: DType) -> Any:
    """An operand in the dtype of the result, where that is wider or of another kind."""
    dtype = b.avals[i].dtype
    return converted(b, x, dtype, out) if dtype != out else x


@rule("dot_general")
def _dot_general(
    b: Builder,
    x: fx.Proxy,
    y: fx.Proxy,
    dimension_numbers: Any,
    preferred_element_type: Any = None,
    **_: object,
) -> Any:
    del preferred_element_type
    out = b.aval.dtype
    narrow = out.itemsize < max(b.avals[0].dtype.itemsize, b.avals[1].dtype.itemsize)
    inner = b.avals[0].dtype if narrow and b.avals[0].dtype == b.avals[1].dtype else out
    if is_bool(inner):
        inner = d.float32  # sums of ones, which are no zero
    x, y = _operand(b, x, 0, inner), _operand(b, y, 1, inner)
    (cx, cy), (bx, by) = dimension_numbers
    sx, sy = b.avals[0].shape, b.avals[1].shape
    fx = [a for a in range(len(sx)) if a not in (*cx, *bx)]
    fy = [a for a in range(len(sy)) if a not in (*cy, *by)]
    rows, columns = [sx[a] for a in fx], [sy[a] for a in fy]
    batch, inside = [sx[a] for a in bx], [sx[a] for a in cx]
    x = permuted(b, x, [*bx, *fx, *cx])
    y = permuted(b, y, [*by, *cy, *fy])
    n, m, k, p = (math.prod(dims) for dims in (batch, rows, inside, columns))
    lead = [n] if batch else []
    x = reshaped(b, x, [*batch, *rows, *inside], [*lead, m, k])
    y = reshaped(b, y, [*batch, *inside, *columns], [*lead, k, p])
    product = b.call(aten.bmm.default if batch else aten.mm.default, x, y)
    product = reshaped(b, product, [*lead, m, p], [*batch, *rows, *columns])
    return masked(b, product, out) if inner == out else converted(b, product, inner, out)


@rule("conv_general_dilated")
def _convolution(
    b: Builder,
    x: fx.Proxy,
    w: fx.Proxy,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    dimension_numbers: Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    **_: object,
) -> Any:
    out = b.aval.dtype
    ndim = len(window_strides)
    if not 1 <= ndim <= 3 or is_complex(out):
        return NotImplemented
    x, w = _operand(b, x, 0, out), _operand(b, w, 1, out)
    if is_integer(out) and out.itemsize > 4:
        return NotImplemented
    if any([type(n) is int and n == 0 for n in b.aval.shape]):
        return b.filled(0, b.aval)
    x_spec, w_spec, out_spec = dimension_numbers
    x = permuted(b, x, x_spec)
    w = permuted(b, w, w_spec)
    shape = [b.avals[0].shape[a] for a in x_spec]
    config = [(0, 0, 0), (0, 0, 0)]
    same = all([low == high >= 0 for low, high in padding]) and set(lhs_dilation) <= {1}
    config += [
        (0, 0, 0) if same else (low, high, step - 1)
        for (low, high), step in zip(padding, lhs_dilation, strict=True)
    ]
    x = _padded(b, x, config, shape)
    groups = feature_group_count
    if batch_group_count > 1:
        groups = batch_group_count
        x = b.call(aten.unflatten.int, x, 0, [groups, -1])
        x = b.call(aten.flatten.using_ints, b.call(aten.transpose.int, x, 0, 1), 1, 2)
    pads = [low for low, _ in padding] if same else [0] * ndim
    options = (None, [*window_strides], pads, [*rhs_dilation], False, [0] * ndim, groups)

    def convolved(x: Any, w: Any) -> Any:
        return b.call(aten.convolution.default, x, w, *options)

    result = _of_integers(b, x, w, convolved) if is_integer(out) else convolved(x, w)
    inverse = [list(out_spec).index(a) for a in range(ndim + 2)]
    result = permuted(b, result, inverse)
    return masked(b, b.convert(result, carrier(out)), out) if is_integer(out) else result


def _of_integers(b: Builder, x: fx.Proxy, w: fx.Proxy, convolved: Any) -> Any:
    """A convolution of integers as ``int64``: sums of products of 32 bits are exact in 53."""

    def exact(x: fx.Proxy, w: fx.Proxy) -> Any:
        sums = convolved(b.convert(x, torch.float64), b.convert(w, torch.float64))
        return b.convert(sums, torch.int64)

    if sum([a.dtype.itemsize for a in b.avals[:2]]) <= 4:
        return exact(x, w)
    # In halves of 16 bits; the product of the high ones is beyond the result.
    (x0, x1), (w0, w1) = (
        (
            b.call(aten.bitwise_and.Scalar, v, 2**16 - 1),
            b.call(aten.bitwise_right_shift.Tensor_Scalar, v, 16),
        )
        for v in (x, w)
    )
    middle = b.call(aten.add.Tensor, exact(x0, w1), exact(x1, w0))
    return b.call(aten.add.Tensor, exact(x0, w0), b.call(aten.mul.Scalar, middle, 2**16))


def _padded(b: Builder, x: fx.Proxy, config: Any, shape: Sequence[object]) -> Any:
    """Padding of a convolution: zeros between elements first, then around them, or less of them."""
    return with_padding(b, x, 0, config, shape)


@rule("fft")
def _fft(b: Builder, x: fx.Proxy, fft_type: Any, fft_lengths: Any) -> Any:
    kind = getattr(fft_type, "name", str(fft_type)).rpartition(".")[2].upper()
    if 0 in b.aval.shape:  # MKL refuses them
        return b.filled(0, b.aval)
    lengths = b.shape(fft_lengths)
    axes = list(range(-len(lengths), 0))
    targets = {
        "FFT": aten.fft_fftn.default,
        "IFFT": aten.fft_ifftn.default,
        "RFFT": aten.fft_rfftn.default,
        "IRFFT": aten.fft_irfftn.default,
    }
    return b.call(targets[kind], x, lengths, axes)
