"""The Jaxprs of a mapped function in the forms in which it is computed.

``params`` are those of the primitive pmap (control/pmap/primitive.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.collectives.all_gather import all_gather_p
from tracebridge.core.collectives.axis_index import axis_index_p
from tracebridge.core.config.state import enter_scope, leave_scope, with_axis
from tracebridge.core.errors.runtime_errors import OtherProcessesError
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray, batched_aval, element_aval
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr, jaxprs_in_params
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis
from tracebridge.core.runtime.backends.clients import get_backend

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.value import Value


def n_processes(params: Params) -> int:
    """How many processes run the map together, each on as many elements."""
    if params["devices"] is not None:
        return len({d.process_index for d in params["devices"]})
    return get_backend(params["backend"]).n_processes


def total_size(params: Params) -> int:
    """The size of the named axis: the elements of all processes."""
    return params["axis_size"] * n_processes(params)


@contextmanager
def axis_scope(params: Params) -> Iterator[None]:
    """Where programs of elements are traced and derived: custom rules may name the axis."""
    scope = enter_scope(with_axis, params["axis_name"], total_size(params))
    try:
        yield
    finally:
        leave_scope(scope)


def _run(jaxpr: Jaxpr, values: Sequence[Any]) -> list[Any]:
    return eval_jaxpr(jaxpr, current_trace().process, values)


def as_vmap(params: Params) -> Jaxpr:
    """The map of whole arrays on one device, as vmap computes it where it can.

    Raises:
        OtherProcessesError: other processes have elements.
    """
    if n_processes(params) > 1:
        msg = f"pmap({params['name']}) is inside of a program for one device, such as that of jit, "
        raise OtherProcessesError(
            msg + "which knows the elements of this process only",
            hint="call pmap from outside of jit, or use shard_map over a mesh of all devices",
        )
    jaxpr, size, name = params["jaxpr"], params["axis_size"], params["axis_name"]
    in_axes, out_axes = params["in_axes"], params["out_axes"]
    # vmap cannot call in order, but there is an order of elements that know nothing of the others.
    in_order = any([e.ordered and e.over_devices for e in jaxpr.effects])
    if in_order and not any([a.primitive.names_axis(name, a.params) for a, _ in jaxpr.equations]):
        return _one_by_one(params)
    key = ("pmap as vmap", name, size, in_axes, out_axes)
    cached = jaxpr.cache.get(key)
    if cached is None:
        dims = tuple([None if axis is None else 0 for axis in in_axes])
        with axis_scope(params):
            body, out_dims = batch_jaxpr(jaxpr, size, name, dims)

        def run(*xs: Any) -> list[Any]:
            fronts = [
                x if a is None else move_batch_axis(x, a, 0)
                for x, a in zip(xs, in_axes, strict=True)
            ]
            outs = _run(body, fronts)
            return [
                _placed(o, d, a, size) for o, d, a in zip(outs, out_dims, out_axes, strict=True)
            ]

        cached = jaxpr.cache[key] = stage(run, _whole_avals(params), jaxpr.debug, locate=False)
    return cached


def _one_by_one(params: Params) -> Jaxpr:
    """The map of whole arrays, each element after the one before."""
    jaxpr, size = params["jaxpr"], params["axis_size"]
    in_axes, out_axes = params["in_axes"], params["out_axes"]
    key = ("pmap one by one", size, in_axes, out_axes)
    cached = jaxpr.cache.get(key)
    if cached is None:

        def run(*xs: object) -> list[Any]:
            rows = [
                _run(
                    jaxpr,
                    [
                        x if a is None else lax.index_in_dim(x, i, a, keepdims=False)
                        for x, a in zip(xs, in_axes, strict=True)
                    ],
                )
                for i in range(size)
            ]
            return [
                outs[0]
                if a is None
                else lax.concatenate([lax.expand_dims(o, (a,)) for o in outs], a)
                for outs, a in zip(zip(*rows, strict=True), out_axes, strict=True)
            ]

        cached = jaxpr.cache[key] = stage(run, _whole_avals(params), jaxpr.debug, locate=False)
    return cached


def _placed(out: Any, dim: int | None, axis: int | None, size: int) -> Any:
    """A result with its mapped axis at ``axis``; one of its equal elements if that is None."""
    if axis is None:
        return out if dim is None else lax.index_in_dim(out, 0, 0, keepdims=False)
    if dim is None:
        return broadcast_batch(out, size, axis)
    return move_batch_axis(out, 0, axis)


def as_replicas(params: Params) -> Jaxpr:
    """The map inside a program in replicas: each takes its element, and gets all results."""
    jaxpr, size, name = params["jaxpr"], params["axis_size"], params["axis_name"]
    in_axes, out_axes = params["in_axes"], params["out_axes"]
    key = ("pmap as replicas", name, size, in_axes, out_axes)
    cached = jaxpr.cache.get(key)
    if cached is None:

        def run(*xs: object) -> list[Any]:
            here = axis_index_p.bind(axes=(name,))
            mine = [
                x if a is None else lax.dynamic_index_in_dim(x, here, a, keepdims=False)
                for x, a in zip(xs, in_axes, strict=True)
            ]
            return [
                o if a is None else _gathered(o, name, size, a)
                for o, a in zip(_run(jaxpr, mine), out_axes, strict=True)
            ]

        cached = jaxpr.cache[key] = stage(run, _whole_avals(params), jaxpr.debug, locate=False)
    return cached


def _gathered(x: Value, name: Any, size: int, axis: int) -> Any:
    return all_gather_p.bind(
        x, axes=(name,), size=size, axis=axis, tiled=False, axis_index_groups=None
    )


def _whole_avals(params: Params) -> list[ShapedArray]:
    size = params["axis_size"]
    avals = zip(params["jaxpr"].in_avals, params["in_axes"], strict=True)
    return [batched_aval(a, size, axis) for a, axis in avals]


def as_parts(params: Params) -> Jaxpr:
    """What one device runs: its parts have the mapped axis with size 1."""
    jaxpr, in_axes, out_axes = params["jaxpr"], params["in_axes"], params["out_axes"]
    key = ("pmap as parts", in_axes, out_axes)
    cached = jaxpr.cache.get(key)
    if cached is None:
        avals = [batched_aval(a, 1, axis) for a, axis in zip(jaxpr.in_avals, in_axes, strict=True)]

        def run(*xs: Any) -> list[Any]:
            elements = [
                x if axis is None else lax.reshape(x, element_aval(x.aval, axis).shape)
                for x, axis in zip(xs, in_axes, strict=True)
            ]
            return [
                o if axis is None else lax.reshape(o, batched_aval(o.aval, 1, axis).shape)
                for o, axis in zip(_run(jaxpr, elements), out_axes, strict=True)
            ]

        cached = jaxpr.cache[key] = stage(run, avals, jaxpr.debug, locate=False)
    return cached


def inner_replicas(jaxpr: Jaxpr) -> int:
    """How many devices the maps inside ``jaxpr`` need, for each device that runs it."""
    found = jaxpr.cache.get("inner replicas")
    if found is None:
        counts = [1]
        for app, _ in jaxpr.equations:
            size = app.primitive.replicas(app.params)
            inner = [inner_replicas(j) for j in jaxprs_in_params(app.params)]
            counts.append(size * max(inner, default=1))
        found = jaxpr.cache["inner replicas"] = max(counts)
    return found


def inner_devices_given(jaxpr: Jaxpr) -> bool:
    """Whether a map inside ``jaxpr`` chooses its devices."""
    return any(
        [
            app.primitive.has_devices(app.params)
            or any([inner_devices_given(j) for j in jaxprs_in_params(app.params)])
            for app, _ in jaxpr.equations
        ]
    )
