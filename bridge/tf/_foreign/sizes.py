"""Shapes of results at sizes that are not known: found by tracing at two choices of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.symbolic.dims import is_static
from tracebridge.core.symbolic.evaluate import dims_evaluate

# Large primes: no size of a function is a sum or multiple of one by chance, twice.
_FIRST = (1009, 2003, 3001, 4001, 5003, 6007, 7001, 8009)
_SECOND = (1511, 2503, 3511, 4507, 5501, 6521, 7507, 8501)


def is_dynamic(avals: Sequence[ShapedArray]) -> bool:
    """Whether some size is not known."""
    return not all([is_static(a.shape) for a in avals])


def types_at_any_size(name: str, trace: Any, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
    """The types of the results; ``trace(avals).out_avals`` are those at known sizes.

    Raises:
        ArgumentSpecError: a size is not one of an argument, a multiple of it, or one that is
            larger or smaller by a constant.
    """
    known = [d for a in avals for d in a.shape if type(d) is not int]
    symbols = sorted({v for d in known for v in d.variables()})
    if len(symbols) > len(_FIRST):
        raise _unknown(name, f"there are {len(symbols)} unknown sizes")
    found: list[list[ShapedArray]] = []
    values: list[dict[Any, int]] = []
    for primes in (_FIRST, _SECOND):
        env = dict(zip(symbols, primes, strict=False))
        at = [a.update(shape=tuple([dims_evaluate(d, env) for d in a.shape])) for a in avals]
        found.append(list(trace(at).out_avals))
        values.append({d: dims_evaluate(d, env) for d in known})
    results: list[ShapedArray] = []
    for i, (first, second) in enumerate(zip(*found, strict=True)):
        if first.ndim != second.ndim:
            raise _unknown(name, f"the number of axes of result {i} depends on sizes")
        shape: list[Any] = []
        for axis, pair in enumerate(zip(first.shape, second.shape, strict=True)):
            size = _size(pair, values)
            if size is None:
                raise _unknown(name, f"size {axis} of result {i} is another than those known")
            shape.append(size)
        results.append(first.update(shape=tuple(shape)))
    return results


def _size(pair: tuple[int, int], values: Sequence[dict[Any, int]]) -> Any:
    """The size that has these two values; None if it is none of those that are looked for."""
    if pair[0] == pair[1]:
        return pair[0]
    for d, first in values[0].items():
        second = values[1][d]
        times = pair[0] // first
        if pair == (times * first, times * second):
            return times * d
    for d, first in values[0].items():
        if pair[0] - first == pair[1] - values[1][d]:
            return d + (pair[0] - first)
    return None


def _unknown(name: str, what: str) -> ArgumentSpecError:
    return ArgumentSpecError(
        f"{name}: {what}",
        hint="declare the types of the results by output_shape_dtype=..., whose shapes may have "
        "symbolic sizes",
    )
