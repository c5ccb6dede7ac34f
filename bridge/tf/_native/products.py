"""Products of matrices, convolutions and Fourier transforms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_float, is_integer
from tracebridge.tf._native.arithmetic import converted
from tracebridge.tf._native.builder import Builder, DType, Tensor, is_static, rule
from tracebridge.tf._native.shapes import padded, permuted, reshaped
from tracebridge.tf._xla_call_module import tf_dtype

_MOST = 1024  # positions of a kernel that are multiplied one after the other


def _inside(b: Builder) -> DType:
    """The dtype to multiply and add in: that of the result, or the wider one of the operands."""
    out = b.aval.dtype
    for aval in b.avals[:2]:
        if aval.dtype.itemsize > out.itemsize and is_integer(aval.dtype) == is_integer(out):
            out = aval.dtype
    if is_bool(out):
        return d.float32  # sums of ones, which are no zero
    if is_float(out) and out.itemsize == 2:
        return d.float32
    if not is_integer(out):
        return out
    # The low bits of sums and products are those of signed numbers.
    return d.int64 if out.itemsize == 8 else d.int32


def _operand(b: Builder, x: Tensor, i: int, inner: DType) -> Tensor:
    dtype = b.avals[i].dtype
    if is_integer(dtype) and is_integer(inner):
        return tf.cast(x, tf_dtype(inner))
    return converted(x, dtype, inner)


def _result(b: Builder, x: Tensor, inner: DType) -> Tensor:
    out = b.aval.dtype
    if is_integer(out) and is_integer(inner):
        return tf.cast(x, tf_dtype(out))
    return converted(x, inner, out)


@rule("dot_general")
def _dot_general(b: Builder, x: Tensor, y: Tensor, dimension_numbers: Any, **_: object) -> Any:
    inner = _inside(b)
    x, y = _operand(b, x, 0, inner), _operand(b, y, 1, inner)
    (cx, cy), (bx, by) = dimension_numbers
    sx, sy = b.avals[0].shape, b.avals[1].shape
    fx = [a for a in range(len(sx)) if a not in (*cx, *bx)]
    fy = [a for a in range(len(sy)) if a not in (*cy, *by)]
    rows, columns = [sx[a] for a in fx], [sy[a] for a in fy]
    batch, inside = [sx[a] for a in bx], [sx[a] for a in cx]
    x = permuted(x, [*bx, *fx, *cx])
    y = permuted(y, [*by, *cy, *fy])
    n, m, k, p = (math.prod(dims) for dims in (batch, rows, inside, columns))
    lead = [n] if batch else []
    x = reshaped(b, x, [*batch, *rows, *inside], [*lead, m, k])
    y = reshaped(b, y, [*batch, *inside, *columns], [*lead, k, p])
    product = reshaped(b, tf.matmul(x, y), [*lead, m, p], [*batch, *rows, *columns])
    return _result(b, product, inner)


@rule("conv_general_dilated")
def _convolution(
    b: Builder,
    x: Tensor,
    w: Tensor,
    window_strides: Sequence[int],
    padding: Sequence[Sequence[int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    **_: object,
) -> Any:
    ndim = len(window_strides)
    x_spec, w_spec, out_spec = dimension_numbers
    kernel = [b.avals[1].shape[a] for a in w_spec]
    if not ndim or not is_static(kernel[2:]):
        return NotImplemented
    if 0 in b.aval.shape or 0 in kernel or 0 in b.avals[0].shape:
        return b.zeros(b.aval)
    inner = _inside(b)
    x, w = _operand(b, x, 0, inner), _operand(b, w, 1, inner)
    # To images with channels last, and kernels with the outgoing ones last.
    x = permuted(x, [x_spec[0], *x_spec[2:], x_spec[1]])
    w = permuted(w, [*w_spec[2:], w_spec[1], w_spec[0]])
    shape = [b.avals[0].shape[a] for a in x_spec]
    shape = [shape[0], *shape[2:], shape[1]]
    around = [
        (low, high, step - 1) for (low, high), step in zip(padding, lhs_dilation, strict=True)
    ]
    zero = tf.zeros([], x.dtype)
    x = padded(b, x, zero, [(0, 0, 0), *around, (0, 0, 0)], shape)
    groups = feature_group_count
    if batch_group_count > 1:
        groups = batch_group_count
        x = _batch_groups_as_channels(b, x, groups)
    steps, gaps = list(window_strides), list(rhs_dilation)
    if is_complex(inner):
        result = _of_parts(x, w, lambda x, w: _convolved(b, x, w, steps, gaps, groups))
    else:
        result = _convolved(b, x, w, steps, gaps, groups)
    if result is NotImplemented:
        return result
    # From channels last to the places that they have in the result.
    here = [out_spec[0], *out_spec[2:], out_spec[1]]
    result = permuted(result, [here.index(a) for a in range(ndim + 2)])
    return _result(b, result, inner)


def _batch_groups_as_channels(b: Builder, x: Tensor, groups: int) -> Tensor:
    """Groups of the batch beside one another: batch, sizes, (group, channel)."""
    ndim = x.shape.rank
    sizes = tf.unstack(tf.shape(x))
    channels = sizes[-1]
    x = tf.reshape(x, [groups, sizes[0] // groups, *sizes[1:]])
    x = tf.transpose(x, [*range(1, ndim), 0, ndim])
    known = x.shape[-1]
    x = tf.reshape(x, [sizes[0] // groups, *sizes[1:-1], groups * channels])
    x.set_shape([*[None] * (ndim - 1), groups * known])
    return x


def _of_parts(x: Tensor, w: Tensor, convolved: Callable[[Tensor, Tensor], Any]) -> Any:
    """A convolution of complex numbers by those of their parts."""
    real, imag = tf.math.real, tf.math.imag
    parts = [convolved(p(x), q(w)) for p in (real, imag) for q in (real, imag)]
    if parts[0] is NotImplemented:
        return NotImplemented
    return tf.complex(parts[0] - parts[3], parts[1] + parts[2])


def _convolved(
    b: Builder, x: Tensor, w: Tensor, steps: list[int], gaps: list[int], groups: int
) -> Any:
    """The convolution of padded images, channels last."""
    ndim = len(steps)
    plain = x.dtype.is_floating and (groups == 1 or x.shape[-1] == groups * w.shape[-2])
    if plain and ndim <= 2:
        # Images of one row where there is one axis only.
        more = 2 - ndim
        for _ in range(more):
            x, w = tf.expand_dims(x, 1), tf.expand_dims(w, 0)
        strides, dilations = [1] * more + steps, [1] * more + gaps
        if groups == 1 or len(set(strides)) == 1:
            out = tf.nn.conv2d(x, w, strides, "VALID", dilations=dilations)
            return tf.squeeze(out, [1]) if more else out
        if more:
            x, w = tf.squeeze(x, [1]), tf.squeeze(w, [0])
    if plain and ndim == 3 and groups == 1 and set(gaps) == {1}:
        return tf.nn.conv3d(x, w, [1, *steps, 1], "VALID")
    return _by_positions(x, w, steps, gaps, groups)


def _by_positions(x: Tensor, w: Tensor, steps: list[int], gaps: list[int], groups: int) -> Any:
    """A convolution as the sum of the products of all positions of the kernel."""
    kernel = w.shape[:-2]
    if math.prod(kernel) > _MOST:
        return NotImplemented
    sizes = tf.unstack(tf.shape(x))
    total = None
    for place in itertools.product(*[range(k) for k in kernel]):
        window: list[slice] = [slice(None)]
        for axis, (at, k, step, gap) in enumerate(zip(place, kernel, steps, gaps, strict=True)):
            end = sizes[axis + 1] - (k - 1 - at) * gap
            window.append(slice(at * gap, end, step))
        term = _grouped(x[tuple(window)], w[place], groups)
        total = term if total is None else total + term
    return total


def _grouped(x: Tensor, w: Tensor, groups: int) -> Tensor:
    """The product of channels, the last axis of ``x``, group by group."""
    if groups == 1:
        return tf.matmul(x, tf.reshape(w, [*[1] * (x.shape.rank - 2), *w.shape]))
    inside, outside = w.shape
    rows = tf.unstack(tf.shape(x))[:-1]
    flat = tf.transpose(tf.reshape(x, [-1, groups, inside]), [1, 0, 2])
    kernels = tf.transpose(tf.reshape(w, [inside, groups, outside // groups]), [1, 0, 2])
    product = tf.transpose(tf.matmul(flat, kernels), [1, 0, 2])
    return tf.reshape(product, [*rows, outside])


# Fourier transforms -------------------------------------------------------------------------------

_TRANSFORMS = {
    "FFT": (tf.signal.fft, tf.signal.fft2d, tf.signal.fft3d),
    "IFFT": (tf.signal.ifft, tf.signal.ifft2d, tf.signal.ifft3d),
    "RFFT": (tf.signal.rfft, tf.signal.rfft2d, tf.signal.rfft3d),
    "IRFFT": (tf.signal.irfft, tf.signal.irfft2d, tf.signal.irfft3d),
}


@rule("fft")
def _fft(b: Builder, x: Tensor, fft_type: Any, fft_lengths: Sequence[object]) -> Any:
    kind = getattr(fft_type, "name", str(fft_type)).rpartition(".")[2].upper()
    if not 1 <= len(fft_lengths) <= 3:
        return NotImplemented
    target = _TRANSFORMS[kind][len(fft_lengths) - 1]
    return target(x, b.shape(fft_lengths)) if kind.endswith("RFFT") else target(x)
