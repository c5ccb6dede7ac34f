"""fft: discrete Fourier transforms of the last axes, of complex and of real arrays."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import complex_of, float32, float64, is_complex, real_of
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    UnsupportedArgumentError,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.splits import same_along_others
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lax.families import Linear
from tracebridge.core.lax.shape.axes import as_dims
from tracebridge.core.lowering.context import register_platform_lowering
from tracebridge.core.mlir.attrs import i64_array
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value

MOST_AXES = 3  # of one transform of XLA; those over more axes are done in parts


@public_path("tracebridge.lax")
class FftType(enum.IntEnum):
    """Kinds of discrete Fourier transforms.

    >>> import tracebridge as tb
    >>> [kind.name for kind in tb.lax.FftType]
    ['FFT', 'IFFT', 'RFFT', 'IRFFT']
    """

    FFT = 0
    """Forward, complex to complex."""

    IFFT = 1
    """Inverse, complex to complex."""

    RFFT = 2
    """Forward, real to the half of the complex spectrum that is not redundant."""

    IRFFT = 3
    """Inverse, from that half to real."""

    def __str__(self) -> str:
        return self.name


@final
class Fft(Linear):
    """``fft_type``, and ``fft_lengths``: the sizes of the last axes on the side of the signal."""

    name = "fft"
    cost = Cost.OTHER

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        kind, lengths = params["fft_type"], params["fft_lengths"]
        n = len(lengths)
        _check_dtype(x, kind)
        if not 1 <= n <= x.ndim:
            msg = f"fft: got {n} lengths {lengths} for {x.str_short()}, expected 1 to {x.ndim}"
            raise RankError(msg, hint="fft_lengths has the size of each of the last axes")
        spectrum = (*lengths[:-1], half(lengths[-1]))
        expected = spectrum if kind is FftType.IRFFT else lengths
        batch, sizes = x.shape[: x.ndim - n], x.shape[x.ndim - n :]
        if sizes != expected:
            msg = (
                f"fft: lengths {lengths} do not go with the last axes of {x.str_short()} "
                f"in a transform {kind}, expected sizes {expected}"
            )
            raise ShapeMismatchError(msg, hint="cut or pad the array first, as numpy.fft does")
        if kind is FftType.RFFT:
            return x.update(shape=(*batch, *spectrum), dtype=complex_of(x.dtype))
        if kind is FftType.IRFFT:
            return x.update(shape=(*batch, *lengths), dtype=real_of(x.dtype))
        return x

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[Any]:
        """As the operand is; XLA gathers what it transforms."""
        del params
        return [same_along_others(self.name, avals[0], outs[0].shape)]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        kind, lengths = params["fft_type"], params["fft_lengths"]
        (x,), (aval,), out = operands, ctx.avals_in, ctx.aval_out
        if 0 in aval.shape or 0 in out.shape:
            return ctx.splat(0, out)
        if len(lengths) > MOST_AXES:
            return ctx.lower_fun(_in_parts, x, kind=kind, lengths=lengths, last=MOST_AXES)[0]
        _check_constant(lengths)
        kind_attribute = mlir.stablehlo.FftTypeAttr.get(kind.name)
        attributes = {"fft_type": kind_attribute, "fft_length": i64_array(lengths)}
        return ctx.op1("stablehlo.fft", [x], out, attributes)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        """The matrices of complex transforms are symmetric; those of real ones drop a half."""
        (x,) = args
        kind, lengths = params["fft_type"], params["fft_lengths"]
        if kind is FftType.RFFT:
            return [_transposed_rfft(ct, lengths)]
        if kind is FftType.IRFFT:
            return [_transposed_irfft(ct, lengths, x.aval)]
        return [self.bind(ct, **params)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        # An axis before those that are transformed may stay where it is.
        first = x.aval.ndim - 1 - len(params["fft_lengths"])
        at = min(d, first)
        return self.bind(move_batch_axis(x, d, at), **params), at


fft_p = Fft()


def half(length: Any) -> Any:
    """How many coefficients of the spectrum of a real signal are not redundant."""
    return length // 2 + 1


def _check_dtype(x: ShapedArray, kind: FftType) -> None:
    if kind is FftType.RFFT:
        accepted, text = x.dtype in (float32, float64), "float32 or float64"
    else:
        accepted, text = is_complex(x.dtype), "complex64 or complex128"
    if not accepted:
        msg = f"fft: a transform {kind} works on {text}, got {x.str_short()}"
        raise UnsupportedDtypeError(msg)


# transforms made of others ----------------------------------------------------------------------


def _in_parts(x: Value, kind: FftType, lengths: tuple[int, ...], last: int) -> Any:
    """A transform over the ``last`` axes, and one over those before them, moved to the end.

    A real transform treats the last axis in its own way, at the side where the signal is real.
    """
    ndim, n = x.aval.ndim, len(lengths)
    first, split = ndim - n, ndim - last
    there = (*range(first), *range(split, ndim), *range(first, split))
    back = tuple(sorted(range(ndim), key=there.__getitem__))

    def over_first(y: Value, part: FftType) -> Any:
        moved = lax.transpose(y, there)
        done = fft_p.bind(moved, fft_type=part, fft_lengths=lengths[: n - last])
        return lax.transpose(done, back)

    if kind in {FftType.RFFT, FftType.FFT}:
        y = fft_p.bind(x, fft_type=kind, fft_lengths=lengths[n - last :])
        return over_first(y, FftType.FFT)
    y = over_first(x, FftType.IFFT)
    return fft_p.bind(y, fft_type=kind, fft_lengths=lengths[n - last :])


def _transposed_rfft(ct: Value, lengths: tuple[int, ...]) -> Any:
    """The real part of a forward transform, as an inverse one, which counts coefficients twice."""
    if 0 in lengths:
        return zeros_of(ct.aval.update(shape=(*ct.aval.shape[:-1], *lengths[-1:])))
    total = math.prod(lengths)
    scale = _by_multiplicity(ct.aval, lengths[-1], float(total), total / 2)
    return fft_p.bind(lax.mul(lax.conj(ct), scale), fft_type=FftType.IRFFT, fft_lengths=lengths)


def _transposed_irfft(ct: Value, lengths: tuple[int, ...], aval: ShapedArray) -> Any:
    if 0 in lengths:
        return zeros_of(aval)
    total = math.prod(lengths)
    spectrum = fft_p.bind(ct, fft_type=FftType.RFFT, fft_lengths=lengths)
    return lax.conj(lax.mul(spectrum, _by_multiplicity(aval, lengths[-1], 1 / total, 2 / total)))


def _by_multiplicity(aval: ShapedArray, length: int, once: float, twice: float) -> Any:
    """Factors for the coefficients that stand for one of the spectrum, and for those of two.

    The latter are all but the first, and the one of the highest frequency of an even length.
    """
    size = half(length)
    real = aval.update(shape=(size,), dtype=real_of(aval.dtype))
    k = lax.iota(np.int32, size)
    is_one = lax.eq(k, 0)
    if length % 2 == 0:
        is_one = lax.bitwise_or(is_one, lax.eq(k, size - 1))
    scale = lax.select(is_one, full_of(real, once), full_of(real, twice))
    scale = lax.convert_dtype(scale, aval.dtype)
    return lax.broadcast_in_dim(scale, aval.shape, (aval.ndim - 1,))


def _lower_on_cuda(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    """On CUDA inverse real transforms assume symmetry along every axis, not the last one only."""
    kind, lengths = params["fft_type"], params["fft_lengths"]
    if kind is FftType.IRFFT and len(lengths) > 1:
        return ctx.lower_fun(_in_parts, *operands, kind=kind, lengths=lengths, last=1)[0]
    return fft_p.lower(ctx, *operands, **params)


for _platform in ("cuda", "rocm"):
    register_platform_lowering(fft_p, _platform, _lower_on_cuda)


# the function ------------------------------------------------------------------------------------


def fft(x: Operand, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """Discrete Fourier transform of the last axes of an array.

    Args:
        x: array of shape ``(*batch, *sizes)``. For transforms ``RFFT`` it is real, and becomes
            float32 or float64; for the others it becomes complex.
        fft_type: an ``FftType``, or its name in either case: ``FFT``, ``IFFT``, ``RFFT`` or
            ``IRFFT``.
        fft_lengths: sizes of the signal along the axes that are transformed. They are the last
            sizes of ``x``; for ``IRFFT`` the last axis of ``x`` has ``fft_lengths[-1] // 2 + 1``
            coefficients.

    Returns:
        A complex array of the shape of ``x``, with ``fft_lengths[-1] // 2 + 1`` coefficients
        along the last axis for ``RFFT``; a real array of shape ``(*batch, *fft_lengths)`` for
        ``IRFFT``. Forward transforms are not scaled, inverse ones divide by the product of the
        lengths.

    Raises:
        ArgumentValueError: there is no such kind of transform.
        ArgumentTypeError: ``fft_type`` is neither an ``FftType`` nor a string.
        UnsupportedDtypeError: a complex array for ``RFFT``.
        RankError: more lengths than axes.
        ShapeMismatchError: the lengths are not the last sizes of ``x``.

    >>> import tracebridge as tb
    >>> tb.lax.fft(tb.numpy.array([1.0, 2.0, 3.0, 2.0]), "RFFT", (4,)).real.tolist()
    [8.0, -2.0, 0.0]
    """
    kind = _kind(fft_type)
    value = as_value(x, "fft")
    dtype = to_inexact(value.aval.dtype)
    if not is_complex(dtype):
        wide = dtype if dtype == float64 else float32
        dtype = wide if kind is FftType.RFFT else complex_of(wide)
    value = lax.convert_dtype(value, dtype)
    lengths = as_dims(fft_lengths)
    if not lengths:
        _check_dtype(value.aval, kind)
        return value
    return fft_p.bind(value, fft_type=kind, fft_lengths=lengths)


def _kind(fft_type: object) -> FftType:
    if isinstance(fft_type, FftType):
        return fft_type
    names = [kind.name for kind in FftType]
    if not isinstance(fft_type, str):
        msg = f"fft: fft_type is {fft_type!r}, expected an FftType or one of {names}"
        raise ArgumentTypeError(msg)
    if fft_type.upper() not in names:
        msg = f"fft: fft_type is {fft_type!r}, expected one of {names}"
        raise ArgumentValueError(msg)
    return FftType[fft_type.upper()]


def _check_constant(lengths: Sequence[object]) -> None:
    if not all([type(n) is int for n in lengths]):
        msg = f"fft: lengths {tuple(lengths)} of a transform are not constants"
        raise UnsupportedArgumentError(
            msg, hint="only the axes before those that are transformed may have symbolic sizes"
        )
