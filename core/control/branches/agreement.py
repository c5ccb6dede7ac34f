"""Rules of cond on its branches: they must agree on what they take and give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.owners import largest_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of

Flags = tuple[bool, ...]
Branches = tuple[Jaxpr, ...]


def jvp_branches(branches: Branches, nonzero: Flags) -> tuple[Branches, Flags]:
    """The jvp of each branch, with tangents of all results that have one in some branch."""
    found = [jvp_jaxpr(b, nonzero)[1] for b in branches]
    union = tuple([any(nz) for nz in zip(*found, strict=True)])
    return tuple([jvp_jaxpr(b, nonzero, union)[0] for b in branches]), union


def transpose_branches(
    branches: Branches, linear: Flags, has_cotangent: Flags
) -> tuple[Branches, Flags]:
    """The transpose of each branch, with all cotangents that some branch gives."""
    key = ("cond_transpose", branches, linear, has_cotangent)
    cache = largest_jaxpr(branches).cache
    found = cache.get(key)
    if found is None:
        parts = [transpose_jaxpr(b, linear, has_cotangent, instantiate=False) for b in branches]
        union = tuple([any(flags) for flags in zip(*[p for _, p in parts], strict=True)])
        avals = [a for a, here in zip(branches[0].in_avals, linear, strict=True) if here]
        filled = tuple([_filled(back, present, union, avals) for back, present in parts])
        found = cache[key] = (filled, union)
    return found


def _filled(back: Jaxpr, present: Flags, union: Flags, avals: Sequence[ShapedArray]) -> Jaxpr:
    """``back`` with zeros for cotangents that only other branches give."""
    if present == union:
        return back

    def run(*args: Any) -> list[Any]:
        results = iter(eval_jaxpr(back, current_trace().process, args))
        return [
            next(results) if here else zeros_of(a)
            for here, wanted, a in zip(present, union, avals, strict=True)
            if wanted
        ]

    return stage(run, back.in_avals, back.debug, locate=False)


@final
class BranchSplit:
    """Branches in two parts: ``first`` gives residuals, ``second`` takes them.

    ``second`` takes (residuals, operands of ``first`` at ``forwarded``, its own arguments).
    """

    __slots__ = ("first", "forwarded", "second")

    def __init__(self, first: Branches, second: Branches, forwarded: tuple[int, ...]) -> None:
        self.first = first
        self.second = second
        self.forwarded = forwarded


def join_residuals(
    first: Sequence[tuple[Jaxpr, Sequence[int], int]],
    second: Sequence[Jaxpr],
    forwarded: Sequence[Sequence[int]],
) -> BranchSplit:
    """Let all branches give the same residuals.

    ``first``: per branch the program, the variables of its residuals, and how many results stand
    before them. ``second`` takes (forwarded operands, residuals, others). Residuals of one type
    share a place among the branches; a branch fills places that it does not need with zeros.
    """
    places: list[ShapedArray] = []
    taken: list[list[int]] = []
    for jaxpr, variables, _ in first:
        avals = jaxpr.variable_avals()
        free = list(range(len(places)))
        mine: list[int] = []
        for variable in variables:
            aval = avals[variable].strong
            at = next((i for i in free if places[i] is aval), None)
            if at is None:
                at = len(places)
                places.append(aval)
            else:
                free.remove(at)
            mine.append(at)
        taken.append(mine)
    union = tuple(dict.fromkeys([i for f in forwarded for i in f]))
    shared_avals = [first[0][0].in_avals[i] for i in union]
    return BranchSplit(
        tuple([_giving(f, t, places) for f, t in zip(first, taken, strict=True)]),
        tuple(
            [
                _taking(s, t, f, places, union, shared_avals)
                for s, t, f in zip(second, taken, forwarded, strict=True)
            ]
        ),
        union,
    )


def _giving(
    part: tuple[Jaxpr, Sequence[int], int], taken: Sequence[int], places: Sequence[ShapedArray]
) -> Jaxpr:
    """A branch that gives a value for each place."""
    jaxpr, _, n_out = part

    def run(*args: Any) -> list[Any]:
        results = eval_jaxpr(jaxpr, current_trace().process, args)
        residuals: list[Any] = [None] * len(places)
        for at, value in zip(taken, results[n_out:], strict=True):
            residuals[at] = value
        return [
            *results[:n_out],
            *[zeros_of(a) if r is None else r for r, a in zip(residuals, places, strict=True)],
        ]

    return stage(run, jaxpr.in_avals, jaxpr.debug, locate=False)


def _taking(
    jaxpr: Jaxpr,
    taken: Sequence[int],
    forwarded: Sequence[int],
    places: Sequence[ShapedArray],
    union: Sequence[int],
    shared_avals: Sequence[ShapedArray],
) -> Jaxpr:
    """A branch that takes a value for each place and each forwarded operand."""
    n_forwarded, n_res = len(forwarded), len(taken)
    residuals: list[int | ShapedArray] = list(places)
    for k, at in enumerate(taken):
        residuals[at] = n_forwarded + k
    operands: list[int | ShapedArray] = list(shared_avals)
    for k, position in enumerate(forwarded):
        operands[union.index(position)] = k
    operand_inputs = range(n_forwarded + n_res, jaxpr.n_in)
    return permute_jaxpr(jaxpr, [*residuals, *operands, *operand_inputs])
