"""Masking rules of operations that combine entries: the padding gets what changes no result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.dtypes.dtypes import is_bool, is_inexact
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.values import Literal, literal
from tracebridge.core.lax.contract.dot import dot_general_p
from tracebridge.core.lax.reduce import argminmax, cumulative, exp_sums, reductions
from tracebridge.core.lax.reduce.sort import sort_p
from tracebridge.core.transforms.masking.interpreter import Masker, rule_for

if TYPE_CHECKING:
    from collections.abc import Sequence


Filler = Callable[[np.dtype[Any]], Literal]


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


def zero(dtype: np.dtype[Any]) -> Literal:
    """What changes no sum."""
    return literal(0, dtype)


def one(dtype: np.dtype[Any]) -> Literal:
    """What changes no product."""
    return literal(1, dtype)


def all_bits(dtype: np.dtype[Any]) -> Literal:
    """What changes no conjunction."""
    return literal(True if is_bool(dtype) else -1, dtype)


REDUCTIONS: dict[Primitive, Filler] = {
    reductions.reduce_sum_p: zero,
    reductions.reduce_prod_p: one,
    reductions.reduce_max_p: least,
    reductions.reduce_min_p: greatest,
    reductions.reduce_and_p: all_bits,
    reductions.reduce_or_p: zero,
    reductions.reduce_xor_p: zero,
    argminmax.argmax_p: least,
    argminmax.argmin_p: greatest,
    exp_sums.shifted_exp_sum_p: least,
}
RUNNING: dict[Primitive, Filler] = {
    cumulative.cumsum_p: zero,
    cumulative.cumprod_p: one,
    cumulative.cummax_p: least,
    cumulative.cummin_p: greatest,
    cumulative.cumlogsumexp_p: least,
}
"""Operations, and what the padding gets so that it changes no result."""


@rule_for(*REDUCTIONS)
def _reduce(masker: Masker, app: Application, args: Sequence[object]) -> Any:
    (x,), (aval,) = args, app.avals
    filler = REDUCTIONS[app.primitive](aval.dtype)
    return masker.direct(app, [masker.fill(x, aval, app.params["axes"], filler)])


@rule_for(*RUNNING)
def _running(masker: Masker, app: Application, args: Sequence[object]) -> Any:
    """Only in reverse does the padding come before other entries."""
    (x,), (aval,) = args, app.avals
    filler = RUNNING[app.primitive](aval.dtype)
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
