"""All operators that have a translation."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from tracebridge.torch._translate.numbers import Operator, as_float, as_int, chosen, negation
from tracebridge.torch._translate.operators import (
    attention,
    bessel,
    calls,
    complex_numbers,
    counting,
    drawing,
    elementwise,
    indexing,
    linalg,
    normalisation,
    polynomials,
    products,
    pullbacks,
    quantizing,
    ranks,
    recurrent,
    reductions,
    sampling,
    shapes,
    special,
    whole_functions,
    windows,
)


def _overloads(*families: dict[str, Operator]) -> dict[Any, Operator]:
    """The rows by operator; those that this release of torch has not are left out."""
    found: dict[Any, Operator] = {}
    for rows in families:
        for name, fun in rows.items():
            packet, overload = name.split(".")
            target = getattr(getattr(torch.ops.aten, packet, None), overload, None)
            if target is not None:
                found[target] = fun
    return found


TABLE: Final[dict[Any, Operator]] = (
    calls.CALLS
    | whole_functions.WHOLE
    | _overloads(
        elementwise.ROWS,
        shapes.ROWS,
        reductions.ROWS,
        products.ROWS,
        normalisation.ROWS,
        windows.ROWS,
        indexing.ROWS,
        recurrent.ROWS,
        complex_numbers.ROWS,
        ranks.ROWS,
        linalg.ROWS,
        polynomials.ROWS,
        sampling.ROWS,
        pullbacks.ROWS,
        special.ROWS,
        bessel.ROWS,
        counting.ROWS,
        quantizing.ROWS,
    )
)
KEYED_TABLE: Final[dict[Any, Operator]] = _overloads(
    drawing.KEYED_ROWS, attention.KEYED_ROWS, recurrent.KEYED_ROWS
)
"""Operators that may draw random numbers: their first argument is a key."""

DRAWS: Final[dict[Any, Callable[..., bool]]] = _overloads(
    {"rrelu_with_noise_functional.default": drawing.draws_in_rrelu},
    dict.fromkeys(attention.KEYED_ROWS, attention.draws_in_attention),
    dict.fromkeys(recurrent.KEYED_ROWS, recurrent.draws_in_layers),
)
"""Which calls of operators in ``KEYED_TABLE`` draw; those of others always do."""

CHECKS: Final[frozenset[Any]] = frozenset(
    [
        getattr(torch.ops.aten, packet).__getattr__(overload)
        for packet, overload in (
            ("_assert_async", "msg"),
            ("_linalg_check_errors", "default"),
            ("_assert_scalar", "default"),
            ("_assert_tensor_metadata", "default"),
            ("sym_constrain_range", "default"),
            ("sym_constrain_range_for_size", "default"),
        )
        if hasattr(torch.ops.aten, packet)
    ]
)
"""Operators without a result, which check what the exporter assumed."""

_SYMBOLIC: Final[dict[Any, Callable[..., Any]]] = {
    torch.sym_float: as_float,
    torch.sym_int: as_int,
    torch.sym_ite: chosen,
    torch.sym_max: max,
    torch.sym_min: min,
    torch.sym_not: negation,
}


def number_function(target: Any) -> Callable[..., Any] | None:
    """The function of a node that computes with sizes, or takes an element of a tuple."""
    if target in _SYMBOLIC:
        return _SYMBOLIC[target]
    home = getattr(target, "__module__", None)
    if home in {operator.__name__, "_operator", math.__name__, builtins.__name__}:
        return target
    return None
