"""Along which axes a program can be divided over processes: where each axis of an input goes.

Axes of variables that have to be divided together form a class. Each primitive says which axes
pass from operands to results, and which are summed; an axis that it does anything else with (sort
it, take its maximum, count along it) cannot be divided, and nor can its class. What a sum over the
divided axis makes is terms: each process has one, and only what is linear may follow.

A function may read sizes, and its program at the sizes of shards then is another one: ``/
x.shape[0]`` makes a mean of what looks like a scale. So divisions are used only if the program of
the shards is the same, equation by equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.conv.primitive import conv_general_dilated_p
from tracebridge.core.dtypes.dtypes import is_bool, is_inexact
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.ad_util import stop_gradient_p
from tracebridge.core.lax.families import Elementwise
from tracebridge.core.lax.reduce.exp_sums import shifted_exp_sum_p

Axes = tuple[int | None, ...]
Place = tuple[int, int]
"""An axis of an operand of an equation, or of a result, which are counted after the operands."""

_KEY = "divisions"
WHOLE, TERMS = -1, -2


class Split(NamedTuple):
    """One way to divide the work of a family over processes.

    ``ins``: along which axis of each input, None for a whole one. ``outs``: likewise of each
    result, None for one whose terms the processes have.
    """

    ins: Axes
    outs: Axes


@final
class Division(NamedTuple):
    """A class of axes that can be divided: ``axes`` says which, per variable of the program."""

    split: Split
    axes: Axes


class Flow(NamedTuple):
    """What an equation does with axes; one that is not named cannot be divided.

    ``links``: axes that are divided together. ``summed``: axes of operands that go away in a sum.
    ``made``: axes of results that can have any size. ``linear``: in no operand, in each of them, or
    in all together, as a sum is.
    """

    links: Sequence[tuple[Place, Place]]
    summed: Sequence[Place] = ()
    made: Sequence[Place] = ()
    linear: str = ""


Avals = Sequence[ShapedArray]


# The primitives ----------------------------------------------------------------------------------


def _elementwise(app: Application, ins: Avals) -> Flow:
    primitive = app.primitive
    last = len(ins)
    links = [((k, d), (last, d)) for k, a in enumerate(ins) for d in range(a.ndim)]
    if primitive in _TOGETHER:
        inexact = [is_inexact(a.dtype) for a in (*ins, app.outs[0])]
        # Conversions that cut something off are not linear.
        linear = "all" if all(inexact) or primitive is not lax.convert_element_type_p else ""
    else:
        linear = "each" if primitive is lax.mul_p else ""
        linear = "first" if primitive is lax.div_p and is_inexact(ins[0].dtype) else linear
    made = [] if links else [(last, d) for d in range(app.outs[0].ndim)]
    return Flow(links, (), made, linear)


def _same_axes(app: Application, ins: Avals) -> Flow:
    links = [((0, d), (1, d)) for d in range(ins[0].ndim)]
    return Flow(links, linear="all")


def _broadcast(app: Application, ins: Avals) -> Flow:
    dims = app.params["broadcast_dimensions"]
    shape = app.outs[0].shape
    kept = [(k, d) for k, d in enumerate(dims) if ins[0].shape[k] == shape[d]]
    new = set(range(len(shape))) - {d for _, d in kept}
    links = [((0, k), (1, d)) for k, d in kept]
    return Flow(links, (), [(1, d) for d in sorted(new)], "all")


def _reshape(app: Application, ins: Avals) -> Flow:
    """An axis stays if it, and the product of the axes before it, are as they were."""
    before, after = ins[0].shape, app.outs[0].shape
    if 0 in before:  # nothing tells its axes apart
        return Flow([])
    starts = dict(zip(_products(after), range(len(after)), strict=True))
    links: list[tuple[Place, Place]] = []
    for k, product in enumerate(_products(before)):
        d = starts.get(product)
        if d is not None and before[k] == after[d] and before[k] != 1:
            links.append(((0, k), (1, d)))
    return Flow(links, linear="all")


def _products(shape: Sequence[int]) -> list[tuple[int, int]]:
    """Beside the size of each axis, the product of those before it."""
    found: list[tuple[int, int]] = []
    product = 1
    for size in shape:
        found.append((product, size))
        product *= size
    return found


def _transpose(app: Application, ins: Avals) -> Flow:
    del ins
    order = app.params["permutation"]
    return Flow([((0, k), (1, d)) for d, k in enumerate(order)], linear="all")


def _reduction(app: Application, ins: Avals) -> Flow:
    gone = app.params["axes"]
    kept = [k for k in range(ins[0].ndim) if k not in gone]
    links = [((0, k), (n, d)) for n in range(1, 1 + len(app.outs)) for d, k in enumerate(kept)]
    if app.primitive is not lax.reduce_sum_p:
        return Flow(links)
    return Flow(links, [(0, k) for k in gone], (), "all")


def _dot(app: Application, ins: Avals) -> Flow:
    (lhs, rhs), (lhs_batch, rhs_batch) = app.params["dimension_numbers"]
    links: list[tuple[Place, Place]] = []
    for d, (i, j) in enumerate(zip(lhs_batch, rhs_batch, strict=True)):
        links += [((0, i), (1, j)), ((0, i), (2, d))]
    d = len(lhs_batch)
    for k, gone in enumerate(((*lhs, *lhs_batch), (*rhs, *rhs_batch))):
        for i in [i for i in range(ins[k].ndim) if i not in gone]:
            links.append(((k, i), (2, d)))
            d += 1
    links += [((0, i), (1, j)) for i, j in zip(lhs, rhs, strict=True)]
    summed = [*[(0, i) for i in lhs], *[(1, j) for j in rhs]]
    return Flow(links, summed, (), "each")


def _convolution(app: Application, ins: Avals) -> Flow:
    del ins
    lhs, rhs, out = app.params["dimension_numbers"]
    if app.params["batch_group_count"] != 1:
        return Flow([])
    links = [((0, lhs[0]), (2, out[0]))]
    if app.params["feature_group_count"] != 1:
        return Flow(links, (), (), "each")
    links += [((1, rhs[0]), (2, out[1])), ((0, lhs[1]), (1, rhs[1]))]
    return Flow(links, [(0, lhs[1]), (1, rhs[1])], (), "each")


def _but(name: str, linear: str) -> Callable[[Application, Avals], Flow]:
    """All axes stay but the one, or those, of a parameter."""

    def rule(app: Application, ins: Avals) -> Flow:
        given = app.params[name]
        gone = given if isinstance(given, tuple) else (given,)
        n_in = len(ins)
        links: list[tuple[Place, Place]] = []
        for k in range(1, n_in + len(app.outs)):
            links += [((0, d), (k, d)) for d in range(ins[0].ndim) if d not in gone]
        return Flow(links, (), (), linear)

    return rule


def _slice(app: Application, ins: Avals) -> Flow:
    strides = app.params["strides"] or (1,) * ins[0].ndim
    pairs = enumerate(zip(ins[0].shape, app.outs[0].shape, strides, strict=True))
    return Flow([((0, d), (1, d)) for d, (n, m, s) in pairs if n == m and s == 1], linear="all")


def _pad(app: Application, ins: Avals) -> Flow:
    none = [d for d, widths in enumerate(app.params["padding_config"]) if not any(widths)]
    return Flow([((0, d), (2, d)) for d in none if d < ins[0].ndim])


def _iota(app: Application, ins: Avals) -> Flow:
    n_in = len(ins)
    along = app.params["dimension"]
    return Flow([], (), [(n_in, d) for d in range(app.outs[0].ndim) if d != along])


_TOGETHER = frozenset(
    [
        lax.add_p, lax.sub_p, lax.neg_p, lax.real_p, lax.imag_p, lax.conj_p, lax.complex_p,
        lax.copy_p, lax.convert_element_type_p,
    ]
)  # fmt: skip
_RULES: dict[Primitive, Callable[[Application, Avals], Flow]] = {
    lax.broadcast_in_dim_p: _broadcast,
    lax.reshape_p: _reshape,
    lax.squeeze_p: _reshape,
    lax.transpose_p: _transpose,
    lax.dot_general_p: _dot,
    conv_general_dilated_p: _convolution,
    lax.slice_p: _slice,
    lax.pad_p: _pad,
    lax.iota_p: _iota,
    lax.rev_p: _but("dimensions", "all"),
    lax.concatenate_p: _but("dimension", "all"),
    lax.cumsum_p: _but("axis", "all"),
    stop_gradient_p: _same_axes,
    **dict.fromkeys([lax.cumprod_p, lax.cummax_p, lax.cummin_p, lax.cumlogsumexp_p],
                    _but("axis", "")),
    **dict.fromkeys([lax.reduce_sum_p, lax.reduce_prod_p, lax.reduce_max_p, lax.reduce_min_p,
                     lax.reduce_and_p, lax.reduce_or_p, lax.argmax_p, lax.argmin_p,
                     shifted_exp_sum_p], _reduction),
    lax.sort_p: _but("dimension", ""),
}  # fmt: skip
# Parameters that say nothing but sizes of results.
_SIZES = {
    lax.broadcast_in_dim_p: "shape",
    lax.reshape_p: "new_sizes",
    lax.iota_p: "shape",
    lax.slice_p: "limit_indices",
}


def _flow_of(app: Application, ins: Avals) -> Flow:
    rule = _RULES.get(app.primitive)
    if rule is None:
        rule = _elementwise if isinstance(app.primitive, Elementwise) else None
    return Flow([]) if rule is None else rule(app, ins)


# A program ---------------------------------------------------------------------------------------


def divisions_of(jaxpr: Jaxpr) -> list[Division]:
    """The ways to divide a program along axes of its inputs."""
    found = jaxpr.cache.get(_KEY)
    if found is None:
        program = _inlined(jaxpr)
        found = jaxpr.cache[_KEY] = [] if program.effects else _divisions(program)
    return found


def _inlined(jaxpr: Jaxpr) -> Jaxpr:
    # A derivative is a program of its own, which is looked at by itself.
    program = inline_calls(jaxpr, rules=True)
    return dce_jaxpr(program, (True,) * len(program.outs), keep_in=True)[0]


@final
class _Classes:
    """Axes of variables that are divided together."""

    def __init__(self) -> None:
        self.parents: dict[Place, Place] = {}
        self.refused: set[Place] = set()

    def root(self, place: Place) -> Place:
        while (parent := self.parents.get(place, place)) != place:
            self.parents[place] = place = self.parents.get(parent, parent)
        return place

    def link(self, a: Place, b: Place) -> None:
        self.parents[self.root(a)] = self.root(b)

    def refuse(self, place: Place) -> None:
        self.refused.add(place)


def _divisions(program: Jaxpr) -> list[Division]:
    avals = program.variable_avals()
    if not all([type(n) is int for a in avals for n in a.shape]):
        return []
    classes = _Classes()
    n_in, n = program.n_in, program.n_in + len(program.consts)
    for v in range(n_in, n):
        for d in range(avals[v].ndim):
            classes.refuse((v, d))
    flows: list[Flow] = []
    for app, operands in program.equations:
        flow = _flow_of(app, [avals[v] for v in operands])
        variables = (*operands, *range(n, n + len(app.outs)))
        n += len(app.outs)
        flows.append(flow)
        named = {*flow.summed, *flow.made}
        for a, b in flow.links:
            classes.link((variables[a[0]], a[1]), (variables[b[0]], b[1]))
            named |= {a, b}
        for k, v in enumerate(variables):
            for d in range(avals[v].ndim):
                if (k, d) not in named:
                    classes.refuse((v, d))
    members: dict[Place, list[Place]] = {}
    for v, a in enumerate(avals):
        for d in range(a.ndim):
            members.setdefault(classes.root((v, d)), []).append((v, d))
    refused = {classes.root(place) for place in classes.refused}
    found: list[Division] = []
    for root, places in members.items():
        # Of one variable only one axis can be divided.
        twice = len({v for v, _ in places}) < len(places)
        if root in refused or twice or places[0][0] >= n_in:
            continue
        axes: list[int | None] = [None] * len(avals)
        for v, d in places:
            axes[v] = d
        split = _split_along(program, flows, axes)
        if split is not None:
            found.append(Division(split, tuple(axes)))
    return found


def _split_along(program: Jaxpr, flows: Sequence[Flow], axes: Sequence[int | None]) -> Split | None:
    """What comes out if that axis of each variable is divided; None if it cannot be."""
    start = program.n_in + len(program.consts)
    states = [WHOLE if d is None else d for d in axes[:start]]
    for (app, operands), flow in zip(program.equations, flows, strict=True):
        n = len(states)
        outs = [WHOLE if d is None else d for d in axes[n : n + len(app.outs)]]
        ins = [states[v] for v in operands]
        terms = ins.count(TERMS)
        if terms:
            others = [s for s in (*ins, *outs) if s != TERMS]
            fits = {
                "all": terms == len(ins),
                "each": terms == 1,
                "first": terms == 1 and ins[0] == TERMS,
            }
            if not fits.get(flow.linear, False) or any([s != WHOLE for s in others]):
                return None
            outs = [TERMS] * len(outs)
        elif any([(k, s) in flow.summed for k, s in enumerate(ins)]):
            outs = [TERMS] * len(outs)
        states += outs
    results = [states[v] for v in program.outs]
    for state, aval in zip(results, program.out_avals, strict=True):
        # A whole result would be one term of a gradient in each process.
        if state == WHOLE or (state == TERMS and is_bool(aval.dtype)):
            return None
    outs = [None if s == TERMS else s for s in results]
    return Split(tuple(axes[: program.n_in]), tuple(outs))


# The program of a shard --------------------------------------------------------------------------


def is_divided(whole: Jaxpr, shard: Jaxpr, sizes: Sequence[tuple[Division, int]]) -> bool:
    """Whether ``shard`` does to shards what ``whole`` does.

    ``sizes`` are those of the shards along each axis that is divided.
    """
    one, other = _inlined(whole), _inlined(shard)
    n_consts, n_equations = len(one.consts), len(one.equations)
    if (n_consts, n_equations, one.outs) != (len(other.consts), len(other.equations), other.outs):
        return False
    for a, b in zip(one.consts, other.consts, strict=True):
        if not _is_same_constant(a, b):
            return False
    for (app, operands), (app_b, operands_b) in zip(one.equations, other.equations, strict=True):
        if app.primitive is not app_b.primitive or operands != operands_b:
            return False
        if not _are_same_params(app.params, app_b.params, _SIZES.get(app.primitive)):
            return False
    return shard_avals(one.variable_avals(), sizes) == tuple(other.variable_avals())


def shard_avals(avals: Avals, sizes: Sequence[tuple[Division, int]]) -> tuple[ShapedArray, ...]:
    """Types of shards of the first variables of a program."""
    return tuple([_at(aval, v, sizes) for v, aval in enumerate(avals)])


def _at(aval: ShapedArray, v: int, sizes: Sequence[tuple[Division, int]]) -> ShapedArray:
    shape = list(aval.shape)
    for division, n in sizes:
        axis = division.axes[v]
        if axis is not None:
            shape[axis] = n
    return aval.update(shape=tuple(shape))


def _is_same_constant(a: Any, b: Any) -> bool:
    if a.aval != b.aval:
        return False
    if isinstance(a, Literal) and isinstance(b, Literal):
        return repr(a.value) == repr(b.value)
    if isinstance(a, Literal) or isinstance(b, Literal):
        return False
    return a is b or np.array_equal(a._to_numpy(), b._to_numpy())


def _are_same_params(a: dict[str, Any], b: dict[str, Any], size: str | None) -> bool:
    return a.keys() == b.keys() and all([name == size or _is_same(a[name], b[name]) for name in a])


def _is_same(a: Any, b: Any) -> bool:
    try:
        return a is b or (type(a) is type(b) and bool(a == b))
    except (TypeError, ValueError):  # arrays, say
        return False
