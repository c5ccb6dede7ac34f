"""Batching: tracers that carry a value with an extra axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.config.state import enter_scope, leave_scope, with_mapped_trace
from tracebridge.core.config.values import option
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.leaks import check_no_leaks
from tracebridge.core.interpreters.located import Located, located, origin_of, wants_location
from tracebridge.core.interpreters.staged_rules import (
    SpmdAxis,
    axis_of_types,
    batched_with,
    name_of_axis,
    staged_batch,
    type_split,
)
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray, element_aval
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.splits import entries_of
from tracebridge.core.ir.trace import Trace, current_trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import element_of_users
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis
from tracebridge.core.sharding.context import get_abstract_mesh
from tracebridge.core.sharding.partition_spec import entry_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.values import Value


@final
class BatchTracer(Tracer):
    """One element of a batch: ``value`` has the batch axis at ``dim``."""

    __slots__ = ("dim", "source", "value")
    value: Any
    dim: int

    @property
    def origin(self) -> Any:
        return origin_of(self, self.value)

    def details(self) -> str:
        return f"(one of a batch {self.value.aval.str_short()}, axis {self.dim})"


_new = BatchTracer.__new__


class BatchTrace(Trace):
    """Runs each application's staged batching rule on the parent trace.

    ``axis``: the name of the mapped axis, None, or a ``SpmdAxis``.
    """

    __slots__ = ("axis", "axis_name", "parent", "size")
    scope_kind = "vmap"

    def __init__(self, parent: Trace, size: Any, axis: Any = None) -> None:
        super().__init__()
        self.parent = parent
        self.size = size
        self.axis = axis
        self.axis_name = name_of_axis(axis)

    def tracer(self, aval: ShapedArray, value: Value, dim: int) -> BatchTracer:
        """The tracer of one element."""
        t = _new(BatchTracer)
        t.aval = aval
        t._trace = self
        t.value = value
        t.dim = dim
        return t

    def input(self, value: Value, dim: int | None) -> Value:
        """The element of ``value`` along axis ``dim`` (the value itself if ``dim`` is None)."""
        if dim is None:
            return value
        aval = value.aval
        if type(aval) is not ShapedArray:
            return self.tracer(element_of_users(aval, self.size, dim), value, dim)
        return self.tracer(element_aval(aval, dim), value, dim)

    def process(self, app: Application, args: Sequence[Value]) -> Any:
        values: list[Any] = []
        dims: list[int | None] = []
        batched = False
        for a in args:
            if a._trace is self:
                batched = True
                values.append(a.value)
                dims.append(a.dim)
            else:
                values.append(a)
                dims.append(None)
        if not batched and not self._names_axis(app):
            return self.parent.process(app, args)
        if self.done:
            raise UnexpectedTracerError(tracer=next((a for a in args if a._trace is self), None))
        key = (self.size, tuple(dims), self.axis)
        staged_rules = app.staged_batches
        staged = None if staged_rules is None else staged_rules.get(key)
        if staged is None:
            staged = staged_batch(app, *key)
        out_dims = staged.extra[1]
        if staged.single is not None and not app.multiple:
            out = self.parent.process(staged.single, values)
            (dim,) = out_dims
            return out if dim is None else self.tracer(app.out, out, dim)
        results = staged.replay(self.parent.process, values)
        outs = [
            r if d is None else self.tracer(aval, r, d)
            for r, d, aval in zip(results, out_dims, app.outs, strict=True)
        ]
        return outs if app.multiple else outs[0]

    def _names_axis(self, app: Application) -> bool:
        """Whether ``app`` is a collective over the axis of this trace."""
        return self.axis_name is not None and app.primitive.names_axis(self.axis_name, app.params)


@final
class LocatedBatchTrace(Located, BatchTrace):
    """With the lines that made its tracers."""

    __slots__ = ("label", "source")


def batch_flat(
    fun: Callable[..., Sequence[Any]],
    values: Sequence[Value],
    dims: Sequence[int | None],
    size: object,
    axis: object = None,
    label: str = "",
) -> tuple[list[Value], list[int | None]]:
    """Results of a flat function mapped over one axis of its arguments, and their axes.

    ``label``: what messages call the transformation.
    """
    if any([type_split(v) is not None for v in values]):
        axis = axis_of_types(axis, values, dims)
    trace = BatchTrace(current_trace(), size, axis)
    if wants_location(label):
        trace = located(LocatedBatchTrace(trace.parent, size, axis), label)
    args = [trace.input(v, d) for v, d in zip(values, dims, strict=True)]
    scope = enter_scope(with_mapped_trace, trace, trace.axis_name, size)
    try:
        results = [as_value(r) for r in fun(*args)]
    finally:
        leave_scope(scope)
        trace.done = True
    outs = [r.value if r._trace is trace else r for r in results]
    out_dims = [r.dim if r._trace is trace else None for r in results]
    if option("check_tracer_leaks"):
        args = results = None
        check_no_leaks(trace)
    return outs, out_dims


def spread_of(axis: object, values: Sequence[Value], dims: Sequence[int | None]) -> SpmdAxis | None:
    """The axis of ``batch_flat`` where the mesh in force splits it; else None.

    Results that are the same for all elements are then split as the others are.
    """
    mesh = get_abstract_mesh()
    if mesh.empty or all([type_split(v) is None for v in values]):
        return None
    spread = axis_of_types(axis, values, dims)
    return spread if type(spread) is SpmdAxis and spread.mesh == mesh else None


def broadcast_spread(x: Value, size: object, dim: int, spread: SpmdAxis | None) -> Value:
    """``broadcast_batch``, whose new axis is split as ``spread`` says."""
    if spread is None:
        return broadcast_batch(x, size, dim)
    taken = {name for entry in entries_of(x.aval) for name in entry_names(entry)}
    if not taken.isdisjoint(spread.spmd_name):
        return broadcast_batch(x, size, dim)
    rank = x.aval.ndim
    whole = batched_with(x.aval, size, dim, spread)
    places = tuple([i if i < dim else i + 1 for i in range(rank)])
    return lax.broadcast_in_dim(x, whole.shape, places, out_sharding=whole.split)


def batch_jaxpr(
    jaxpr: Jaxpr,
    size: object,
    axis: object,
    in_dims: tuple[int | None, ...],
    instantiate: tuple[bool, ...] | bool = False,
) -> tuple[Jaxpr, tuple[int | None, ...]]:
    """``jaxpr`` mapped over an axis; batched results have it in front.

    ``instantiate`` says which results are batched even if they need not be. The second result
    says, per result, 0 or ``None``.
    """
    n_out = len(jaxpr.outs)
    wanted = (instantiate,) * n_out if isinstance(instantiate, bool) else instantiate
    key = ("batch", size, axis, in_dims, wanted)
    cached = jaxpr.cache.get(key)
    if cached is None:
        cached = jaxpr.cache[key] = _stage_batch(jaxpr, size, axis, in_dims, wanted)
    return cached


def _stage_batch(
    jaxpr: Jaxpr,
    size: Any,
    axis: Any,
    in_dims: tuple[int | None, ...],
    wanted: tuple[bool, ...],
) -> tuple[Jaxpr, tuple[int | None, ...]]:
    out_dims: list[int | None] = []

    def run(*values: Any) -> list[Any]:
        def body(*xs: Any) -> list[Any]:
            return eval_jaxpr(jaxpr, current_trace().process, xs)

        outs, dims = batch_flat(body, values, in_dims, size, axis)
        results: list[Any] = []
        for out, dim, want in zip(outs, dims, wanted, strict=True):
            if dim is None and want:
                results.append(broadcast_batch(out, size, 0))
                out_dims.append(0)
            elif dim is None:
                results.append(out)
                out_dims.append(None)
            else:
                results.append(move_batch_axis(out, dim, 0))
                out_dims.append(0 if type(dim) is int else dim)
        return results

    avals = [batched_with(a, size, d, axis) for a, d in zip(jaxpr.in_avals, in_dims, strict=True)]
    return stage(run, avals, jaxpr.debug, locate=False), tuple(out_dims)
