"""Rules of programs that several devices run, each on its parts: those of pmap and shard_map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tracebridge.core import lax
from tracebridge.core.collectives.psum import psum_p
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.linearize import linearize_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.split_by_known import unknown_outs
from tracebridge.core.interpreters.staged_rules import SpmdAxis, axis_inside
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.batch_util import mapped_to_front

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value

NamedSizes = tuple[tuple[Any, int], ...]
"""Named axes with their sizes."""


class DevicesProgram(HigherOrderPrimitive):
    """Parameter ``jaxpr`` is what one device computes; places say how whole arrays are spread.

    The parameters ``place_names`` hold a place for each argument and each result.
    """

    place_names: ClassVar[tuple[str, str]]

    def scope(self, params: Params) -> AbstractContextManager[None]:
        """Where programs of one device are traced and derived: custom rules may name the axes."""
        raise TypeError(self.name)

    def whole(self, aval: ShapedArray, place: Any, params: Params) -> ShapedArray:
        """The aval of the whole array of which one device has a part of the aval ``aval``."""
        raise TypeError(self.name)

    def shared(self, aval: ShapedArray, place: Any, params: Params) -> NamedSizes:
        """The named axes along which whole arrays have one part, devices cotangents of their own.

        Cotangents of such an argument have to be summed, that of such a result divided.
        """
        raise TypeError(self.name)

    def untyped(self, params: Params, names: Sequence[object]) -> dict[str, Any]:
        """Parameters of a program whose types say nothing of more named axes."""
        del params, names
        return {}

    def own_names(self, params: Params) -> Sequence[Any]:
        """The named axes over which the devices are."""
        raise TypeError(self.name)

    def own(self, aval: ShapedArray, params: Params) -> Any:
        """The place of values of which each device has its own."""
        raise TypeError(self.name)

    def behind(self, place: Any, names: Sequence[object]) -> Any:
        """The place of an array with a batch axis in front, spread over the axes ``names``."""
        raise TypeError(self.name)

    def axes_of_batch(self, ctx: BatchContext, params: Params) -> NamedSizes:
        """The axes of devices over which a batch axis is spread; none by default."""
        del ctx, params
        return ()

    def places(self, params: Params) -> tuple[Sequence[Any], Sequence[Any]]:
        """The places of arguments and of results."""
        ins, outs = self.place_names
        return params[ins], params[outs]

    def derived(
        self, params: Params, jaxpr: Jaxpr, ins: Sequence[object], outs: Sequence[object]
    ) -> dict[str, Any]:
        """The parameters of an equation of another Jaxpr."""
        given, got = self.place_names
        return {**params, "jaxpr": jaxpr, given: tuple(ins), got: tuple(outs)}

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        outs = zip(params["jaxpr"].out_avals, self.places(params)[1], strict=True)
        return [self.whole(a, place, params) for a, place in outs]

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        """What the devices of a program around make of it; its own axes hide theirs."""
        inner = walk.without(self.own_names(app.params))
        outs = inner.walk(app.params["jaxpr"], [n & inner.names for n in ins])
        hidden = frozenset().union(*ins) - inner.names
        return [n | hidden for n in outs]

    def by_steps(self, walk: Callable[..., Any], arrays: Sequence[Any], **params: Any) -> None:
        """Nothing: what one device does cannot be done without the others."""

    # transformations -----------------------------------------------------------------------------

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        nonzero = tuple([t is not None for t in tangents])
        with self.scope(params):
            jaxpr, nonzero_out = jvp_jaxpr(params["jaxpr"], nonzero)
        ins, outs = self.places(params)
        all_ins = [*ins, *_chosen(ins, nonzero)]
        all_outs = [*outs, *_chosen(outs, nonzero_out)]
        given = [t for t in tangents if t is not None]
        results = self.bind(*primals, *given, **self.derived(params, jaxpr, all_ins, all_outs))
        n = len(nonzero_out)
        rest = iter(results[n:])
        return results[:n], [next(rest) if nz else None for nz in nonzero_out]

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """Two programs: the primal with residuals, which stay on their devices; the linear part."""
        nonzero = tuple([t is not None for t in tangents])
        with self.scope(params):
            split = linearize_jaxpr(params["jaxpr"], nonzero)
        ins, outs = self.places(params)
        n = len(split.nonzero_out)
        kept = [self.own(a, params) for a in split.primal.out_avals[n:]]
        primal = self.derived(params, split.primal, ins, [*outs, *kept])
        results = self.bind(*primals, **primal)
        residuals = [*[primals[i] for i in split.forwarded], *results[n:]]
        nonzero_tangents = [t for t in tangents if t is not None]
        linear_ins = [*[ins[i] for i in split.forwarded], *kept, *_chosen(ins, nonzero)]
        linear_outs = _chosen(outs, split.nonzero_out)
        linear = self.derived(params, split.linear, linear_ins, linear_outs)
        out = iter(
            self.bind(*residuals, *nonzero_tangents, **linear) if any(split.nonzero_out) else ()
        )
        return results[:n], [next(out) if nz else None for nz in split.nonzero_out]

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        """Each device gets the cotangent of its results; arguments of all devices get the sum."""
        linear = tuple([is_linear_input(a) for a in args])
        ct_in = tuple([c is not None for c in ct])
        with self.scope(params):
            jaxpr, present = transpose_jaxpr(params["jaxpr"], linear, ct_in, instantiate=False)
        if not any(present):
            return [None] * len(args)
        ins, outs = self.places(params)
        values = [a for a, is_linear in zip(args, linear, strict=True) if not is_linear]
        cts = [c for c in ct if c is not None]
        value_places = [p for p, is_linear in zip(ins, linear, strict=True) if not is_linear]
        ct_places = _chosen(outs, ct_in)
        result_places = _chosen(_chosen(ins, linear), present)

        def shared(avals: Sequence[ShapedArray], places: Sequence[Any]) -> Any:
            pairs = zip(avals, places, strict=True)
            return tuple([self.shared(a, place, params) for a, place in pairs])

        ct_avals = _chosen(params["jaxpr"].out_avals, ct_in)
        jaxpr = summed(
            jaxpr,
            len(values),
            shared(ct_avals, ct_places),
            shared(jaxpr.out_avals, result_places),
        )
        derived = self.derived(params, jaxpr, [*value_places, *ct_places], result_places)
        results = iter(self.bind(*values, *cts, **derived))
        remaining_cotangents = iter([next(results) if p else None for p in present])
        return [next(remaining_cotangents) if is_linear else None for is_linear in linear]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved, in_dims = mapped_to_front(args, dims)
        spread = self.axes_of_batch(ctx, params)
        size = ctx.size // math.prod([n for _, n in spread]) if spread else ctx.size
        axis = ctx.axis
        if ctx.axis_name is not None and ctx.axis_name in self.own_names(params):
            # Inside, the name means the devices.
            axis = None if ctx.spmd_name is None else SpmdAxis(None, ctx.spmd_name)
        with self.scope(params):
            axis = axis_inside(axis, spread=bool(spread))
            jaxpr, out_dims = batch_jaxpr(params["jaxpr"], size, axis, in_dims)
        ins, outs = self.places(params)
        names = [name for name, _ in spread]

        def behind(places: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
            pairs = zip(places, dims, strict=True)
            return [p if d is None else self.behind(p, names) for p, d in pairs]

        params = {**params, **self.untyped(params, names)}
        derived = self.derived(params, jaxpr, behind(ins, in_dims), behind(outs, out_dims))
        return self.bind(*moved, **derived), list(out_dims)

    def unknown_outs(self, unknown: tuple[bool, ...], **params: Any) -> Sequence[bool]:
        """Which results depend on unknown arguments."""
        return unknown_outs(params["jaxpr"], unknown)

    def split_by_known(
        self, unknown: tuple[bool, ...], args: Sequence[Value], **params: Any
    ) -> list[Any]:
        """Two programs: of the part that needs known arguments only, and of the rest."""
        with self.scope(params):
            split = partial_eval_jaxpr(params["jaxpr"], unknown)
        ins, outs = self.places(params)
        known_in = [not u for u in unknown]
        known_out = [not u for u in split.unknown_out]
        n_known = sum(known_out)
        kept = [self.own(a, params) for a in split.known.out_avals[n_known:]]
        first = self.derived(
            params, split.known, _chosen(ins, known_in), [*_chosen(outs, known_out), *kept]
        )
        known = self.bind(*_chosen(args, known_in), **first)
        second = self.derived(
            params,
            split.unknown,
            [*kept, *_chosen(ins, unknown)],
            _chosen(outs, split.unknown_out),
        )
        others = iter(self.bind(*known[n_known:], *_chosen(args, unknown), **second))
        remaining_known = iter(known[:n_known])
        return [next(others) if u else next(remaining_known) for u in split.unknown_out]

    def dce(
        self, used_outs: tuple[bool, ...], app: Application
    ) -> tuple[Any, list[bool], list[bool]]:
        """The program without unused results and the inputs that only they need."""
        params = app.params
        jaxpr, used_in = dce_jaxpr(params["jaxpr"], used_outs)
        ins, outs = self.places(params)
        derived = self.derived(params, jaxpr, _chosen(ins, used_in), _chosen(outs, used_outs))
        avals = tuple(_chosen(app.avals, used_in))
        return self.application(avals, derived), list(used_in), list(used_outs)


def _chosen(values: Sequence[object], flags: Sequence[bool]) -> list[Any]:
    return [v for v, flag in zip(values, flags, strict=True) if flag]


def summed(
    jaxpr: Jaxpr,
    n_values: int,
    shared_cts: tuple[NamedSizes, ...],
    shared_outs: tuple[NamedSizes, ...],
) -> Jaxpr:
    """A transposed Jaxpr that gives sums over the axes along which the argument was the same.

    A result that was the same on all devices of axes shares its cotangent among them.
    """
    if not any([*shared_cts, *shared_outs]):
        return jaxpr
    key = ("sums over devices", n_values, shared_cts, shared_outs)
    cached = jaxpr.cache.get(key)
    if cached is None:

        def run(*xs: Any) -> list[Any]:
            cts = [_share(c, axes) for c, axes in zip(xs[n_values:], shared_cts, strict=True)]
            outs = eval_jaxpr(jaxpr, current_trace().process, [*xs[:n_values], *cts])
            return [_sum(o, axes) for o, axes in zip(outs, shared_outs, strict=True)]

        cached = jaxpr.cache[key] = stage(run, jaxpr.in_avals, jaxpr.debug, locate=False)
    return cached


def _share(ct: Any, axes: NamedSizes) -> Any:
    size = math.prod([n for _, n in axes])
    return ct if size == 1 else lax.div(ct, lax.full_like(ct, size))


def _sum(x: Any, axes: NamedSizes) -> Any:
    names = tuple([name for name, _ in axes])
    return psum_p.bind(x, axes=names, axis_index_groups=None) if names else x
