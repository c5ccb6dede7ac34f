"""Masking rules of operations that combine entries: the padding gets what changes no result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.dtypes.dtypes import is_bool, is_inexact
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.values import Literal, literal
from tracebridge.core.lax.contract.dot import dot_general_p
from tracebridge.core.lax.reduce import argminmax, cumulative, reductions
from tracebridge.core.lax.reduce.sort import sort_p
from tracebridge.core.transforms.masking.interpreter import Masker, rule_for

if TYPE_CHECKING:
    from collections.abc import Sequence


_ZERO = frozenset({"reduce_sum", "reduce_or", "reduce_xor", "cumsum"})
_ONE = frozenset({"reduce_prod", "cumprod"})
_LEAST = frozenset({"reduce_max", "argmax", "cummax", "cumlogsumexp"})


def least(dtype: np.dtype[Any]) -> Literal:
    """What is below all numbers of a dtype."""
    if is_bool(dtype):
        return literal(False, dtype)
    return literal(-np.inf if is_inexact(dtype) else int(iinfo(dtype).min), dtype)


def greatest(dtype: np.dtype[Any]) -> Literal:
    """What is above all numbers of a dtype."""
    if is_bool(dtype):
        return literal(True, dtype)
    return literal(np.inf if is_inexact(dtype) else int(iinfo(dtype).max), dtype)


def neutral(name: str, dtype: np.dtype[Any]) -> Literal:
    """The value that changes no result of the operation ``name``."""
    if name in _ZERO:
        return literal(0, dtype)
    if name in _ONE:
        return literal(1, dtype)
    if name in _LEAST:
        return least(dtype)
    if name == "reduce_and":
        return literal(True if is_bool(dtype) else -1, dtype)
    return greatest(dtype)


@rule_for(
    reductions.reduce_sum_p,
    reductions.reduce_prod_p,
    reductions.reduce_max_p,
    reductions.reduce_min_p,
    reductions.reduce_and_p,
    reductions.reduce_or_p,
    reductions.reduce_xor_p,
    argminmax.argmax_p,
    argminmax.argmin_p,
)
def _reduce(masker: Masker, app: Application, args: Sequence[object]) -> Any:
    (x,), (aval,) = args, app.avals
    filler = neutral(app.primitive.name, aval.dtype)
    return masker.direct(app, [masker.fill(x, aval, app.params["axes"], filler)])


@rule_for(
    cumulative.cumsum_p,
    cumulative.cumprod_p,
    cumulative.cummax_p,
    cumulative.cummin_p,
    cumulative.cumlogsumexp_p,
)
def _running(masker: Masker, app: Application, args: Sequence[object]) -> Any:
    """Only in reverse does the padding come before other entries."""
    (x,), (aval,) = args, app.avals
    filler = neutral(app.primitive.name, aval.dtype)
    return masker.direct(app, [masker.fill(x, aval, [app.params["axis"]], filler)])


@rule_for(dot_general_p)
def _dot_general(masker: Masker, app: Application, args: Sequence[object]) -> Any:
    """Both operands: the padding of one may be NaN, which zeros of the other do not cancel."""
    contracted, _ = app.params["dimension_numbers"]
    filled = [
        masker.fill(x, aval, axes, literal(0, aval.dtype))
        for x, aval, axes in zip(args, app.avals, contracted, strict=True)
    ]
    return masker.direct(app, filled)


@rule_for(sort_p)
def _sort(masker: Masker, app: Application, args: list[Any]) -> list[Any]:
    """Keys in the padding come last; equal ones, of which those in front, keep their order."""
    axis, n = app.params["dimension"], app.params["num_keys"]
    keys = [
        masker.fill(x, aval, [axis], _last_key(aval.dtype))
        for x, aval in zip(args[:n], app.avals[:n], strict=True)
    ]
    return app.primitive.bind(*keys, *args[n:], **{**masker.params(app), "is_stable": True})


def _last_key(dtype: np.dtype[Any]) -> Any:
    return literal(np.nan, dtype) if is_inexact(dtype) else greatest(dtype)
