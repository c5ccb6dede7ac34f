"""Types and operations for the tests: pairs of arrays, and quantized arrays."""

from __future__ import annotations

import dataclasses
from typing import Any

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.experimental.hijax import (
    HiPrimitive,
    HiType,
    MappingSpec,
    ShapedArray,
    VJPHiPrimitive,
    Zero,
    instantiate_zeros,
    register_hitype,
)


@dataclasses.dataclass(frozen=True)
class Along(MappingSpec):
    """Where the axes of the parts are."""

    dims: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two values, no tree."""

    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class PairType(HiType):
    """The type of pairs."""

    parts: tuple[Any, Any]

    def lo_ty(self):
        return list(self.parts)

    def lower_val(self, pair):
        return [pair.first, pair.second]

    def raise_val(self, first, second):
        return Pair(first, second)

    def to_tangent_aval(self):
        return PairType(tuple([p.to_tangent_aval() for p in self.parts]))

    def vspace_zero(self):
        return Pair(*[tnp.zeros(p.shape, p.dtype) for p in self.parts])

    def vspace_add(self, x, y):
        return pair(part(x, 0) + part(y, 0), part(x, 1) + part(y, 1))

    def dec_rank(self, size, spec):
        return PairType(
            tuple([p.dec_rank(size, d) for p, d in zip(self.parts, spec.dims, strict=True)])
        )

    def inc_rank(self, size, spec):
        return PairType(
            tuple([p.inc_rank(size, d) for p, d in zip(self.parts, spec.dims, strict=True)])
        )

    def leading_axis_spec(self):
        return Along((0, 0))


register_hitype(Pair, lambda p: PairType((tb.typeof(p.first), tb.typeof(p.second))))


class MakePair(VJPHiPrimitive):
    """A pair of two values."""

    def __init__(self, first, second):
        self.in_avals = (first, second)
        self.out_aval = PairType((first, second))
        self.params = {}
        super().__init__()

    def expand(self, first, second):
        return Pair(first, second)

    def jvp(self, primals, tangents):
        return pair(*primals), pair(*map(instantiate_zeros, tangents))

    def vjp_fwd(self, nonzero, first, second):
        return pair(first, second), None

    def vjp_bwd_retval(self, residuals, cotangent):
        return part(cotangent, 0), part(cotangent, 1)

    def transpose(self, cotangent, *accums):
        for i, accum in enumerate(accums):
            accum.accum(part(cotangent, i))

    def batch(self, axis, args, dims):
        return pair(*args), Along(tuple(dims))


class PartOf(VJPHiPrimitive):
    """One of the values of a pair."""

    def __init__(self, of, index):
        self.in_avals = (of,)
        self.out_aval = of.parts[index]
        self.params = {"index": index}
        super().__init__()

    def expand(self, p):
        return (p.first, p.second)[self.index]

    def jvp(self, primals, tangents):
        return part(*primals, self.index), part(*tangents, self.index)

    def vjp_fwd(self, nonzero, p):
        return part(p, self.index), None

    def vjp_bwd_retval(self, residuals, cotangent):
        parts = [tnp.zeros(a.shape, a.dtype) for a in self.in_avals[0].parts]
        parts[self.index] = cotangent
        return (pair(*parts),)

    def transpose(self, cotangent, accum):
        accum.accum(self.vjp_bwd_retval(None, cotangent)[0])

    def batch(self, axis, args, dims):
        return part(*args, self.index), dims[0].dims[self.index]


def pair(first, second):
    """The pair of two values."""
    return MakePair(tb.typeof(first), tb.typeof(second))(first, second)


def part(p, index):
    """One of the values of a pair."""
    return PartOf(tb.typeof(p), index)(p)


@dataclasses.dataclass(frozen=True)
class Quantized:
    """Whole numbers with a scale."""

    numbers: Any
    scale: Any


@dataclasses.dataclass(frozen=True)
class QuantizedType(HiType):
    """Its tangents are arrays of floats."""

    shape: tuple[int, ...]

    def lo_ty(self):
        return [ShapedArray(self.shape, "int8"), ShapedArray((), "float32")]

    def lower_val(self, q):
        return [q.numbers, q.scale]

    def raise_val(self, numbers, scale):
        return Quantized(numbers, scale)

    def to_tangent_aval(self):
        return ShapedArray(self.shape, "float32")


register_hitype(Quantized, lambda q: QuantizedType(q.numbers.shape))


class Quantize(HiPrimitive):
    """float32 -> Quantized, with the derivative of the identity."""

    def abstract_eval(self, x):
        return QuantizedType(x.shape), set()

    def to_lojax(self, x):
        scale = abs(x).max() / 127
        return Quantized((x / scale).round().astype("int8"), scale)

    def jvp(self, primals, tangents):
        return quantize(*primals), instantiate_zeros(*tangents)


class Dequantize(VJPHiPrimitive):
    """Quantized -> float32."""

    def __init__(self, q):
        self.in_avals = (q,)
        self.out_aval = ShapedArray(q.shape, "float32")
        self.params = {}
        super().__init__()

    def expand(self, q):
        return q.numbers * q.scale

    def vjp_fwd(self, nonzero, q):
        return self(q), None

    def vjp_bwd_retval(self, residuals, cotangent):
        return (cotangent,)

    def jvp(self, primals, tangents):
        return self(*primals), instantiate_zeros(*tangents)


_quantize_p = Quantize("quantize")


def quantize(x):
    """``x`` with 8 bits."""
    return _quantize_p.bind(x)


def dequantize(q):
    """The floats again."""
    return Dequantize(tb.typeof(q))(q)


class Product(VJPHiPrimitive):
    """The product of two arrays; which of its rules ran is noted in ``log``."""

    log: list[Any] = []  # noqa: RUF012 - tests clear it

    def __init__(self, x, y):
        self.in_avals = (x, y)
        self.out_aval = tb.eval_shape(
            lambda a, b: a * b, *[tb.ShapeDtypeStruct(a.shape, a.dtype) for a in (x, y)]
        )
        self.out_aval = ShapedArray(self.out_aval.shape, self.out_aval.dtype)
        self.params = {}
        super().__init__()

    def expand(self, x, y):
        return x * y

    def vjp_fwd(self, nonzero, x, y):
        self.log.append(tuple(nonzero))
        return self(x, y), (x, y)

    def vjp_bwd_retval(self, residuals, cotangent):
        x, y = residuals
        return cotangent * y, x * cotangent

    def jvp(self, primals, tangents):
        x, y = primals
        self.log.append(tuple([type(t) is Zero for t in tangents]))
        dx, dy = map(instantiate_zeros, tangents)
        return self(x, y), dx * y + x * dy

    def batch_dim_rule(self, axis, dims):
        return dims[1] if dims[0] is None else dims[0]


def product(x, y):
    """``x * y``."""
    return Product(tb.typeof(x), tb.typeof(y))(x, y)
