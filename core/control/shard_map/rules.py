"""The Jaxprs of a shard_map in the forms in which it is computed.

``params`` are those of the primitive shard_map (control/shard_map/primitive.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.collectives.axis_index import axis_index_p
from tracebridge.core.config.state import enter_scope, leave_scope, with_axes, with_entered_mesh
from tracebridge.core.config.values import mesh_in_force
from tracebridge.core.control.shard_map.places import Place, count
from tracebridge.core.control.shard_map.untyped import untyped
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr, jaxprs_in_params
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.varied import typed_axes, varied, with_typed_axes
from tracebridge.core.lax.batch_util import broadcast_batch
from tracebridge.core.sharding.axis_types import with_types

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray


def sizes_of(params: Params) -> dict[Any, int]:
    """The sizes of the axes whose devices have blocks of their own, in the order of the mesh."""
    sizes = params["mesh"].shape
    return {name: sizes[name] for name in params["names"]}


def mesh_inside(params: Params) -> Any:
    """The mesh as programs of one device see it: their own axes are Manual ones."""
    given, names = params["mesh"], params["names"]
    outer: Any = mesh_in_force()
    if outer is not None and outer.shape_tuple == given.shape_tuple:
        names = (*names, *outer.manual_axes)
    return with_types(given, names, "Manual")


@contextmanager
def axes_scope(params: Params) -> Iterator[None]:
    """Where programs of one device are traced and derived: with names of axes, and the mesh."""
    mesh = enter_scope(with_entered_mesh, mesh_inside(params))
    axes = enter_scope(with_axes, tuple(sizes_of(params).items()))
    around = typed_axes().difference(params["names"])
    typed = enter_scope(with_typed_axes, around.union(params["typed"]))
    try:
        yield
    finally:
        leave_scope(typed)
        leave_scope(axes)
        leave_scope(mesh)


def asks_for_position(jaxpr: Jaxpr) -> bool:
    """Whether an axis_index is inside, at any depth."""
    found = jaxpr.cache.get("asks for position")
    if found is None:
        found = jaxpr.cache["asks for position"] = any(
            [
                app.primitive is axis_index_p
                or any([asks_for_position(j) for j in jaxprs_in_params(app.params)])
                for app, _ in jaxpr.equations
            ]
        )
    return found


def whole_avals(params: Params) -> list[ShapedArray]:
    """The avals of whole arguments."""
    sizes, mesh = sizes_of(params), params["mesh"]
    pairs = zip(params["jaxpr"].in_avals, params["in_places"], strict=True)
    return [place.whole(aval, sizes, mesh) for aval, place in pairs]


def spread(jaxpr: Jaxpr, outs: Sequence[Place], typed: Sequence[Any]) -> Jaxpr:
    """``jaxpr`` with results that vary, in the sense of types, along the axes of their places.

    A result that all devices have is given by each of them then, and gets the cotangents of all.
    """
    wanted = [place.names.intersection(typed) for place in outs]
    if all([w <= a.vma for w, a in zip(wanted, jaxpr.out_avals, strict=True)]):
        return jaxpr
    key = ("spread", tuple(wanted))
    cached = jaxpr.cache.get(key)
    if cached is None:

        def run(*xs: Any) -> list[Any]:
            results = eval_jaxpr(jaxpr, current_trace().process, xs)
            return [varied(r, names) for r, names in zip(results, wanted, strict=True)]

        cached = jaxpr.cache[key] = stage(run, jaxpr.in_avals, jaxpr.debug, locate=False)
    return cached


def as_parts(params: Params) -> Jaxpr:
    """What one device runs: of parts, whose axes are those of whole arrays."""
    jaxpr, ins, outs = untyped(params["jaxpr"]), params["in_places"], params["out_places"]
    if all([place.stacked is None for place in (*ins, *outs)]):
        return jaxpr
    key = ("shard_map as parts", ins, outs)
    cached = jaxpr.cache.get(key)
    if cached is None:
        ones = dict.fromkeys(params["names"], 1)
        avals = [place.whole(a, ones) for a, place in zip(jaxpr.in_avals, ins, strict=True)]

        def run(*xs: Any) -> list[Any]:
            blocks = [
                x if place.stacked is None else lax.squeeze(x, (place.stacked,))
                for x, place in zip(xs, ins, strict=True)
            ]
            results = eval_jaxpr(jaxpr, current_trace().process, blocks)
            return [
                r if place.stacked is None else lax.expand_dims(r, (place.stacked,))
                for r, place in zip(results, outs, strict=True)
            ]

        cached = jaxpr.cache[key] = stage(run, avals, jaxpr.debug, locate=False)
    return cached


def on_one_device(params: Params) -> Jaxpr:
    """The program of whole arrays on one device: the blocks are elements of batches."""
    jaxpr, ins, outs = params["jaxpr"], params["in_places"], params["out_places"]
    sizes = sizes_of(params)
    key = ("shard_map on one device", tuple(sizes.items()), ins, outs)
    cached = jaxpr.cache.get(key)
    if cached is None:
        body, batched = _batched(params, sizes)

        def run(*xs: Any) -> list[Any]:
            blocks = [_split(x, place, sizes) for x, place in zip(xs, ins, strict=True)]
            results = eval_jaxpr(body, current_trace().process, blocks)
            return [
                _joined(r, names, place, sizes)
                for r, names, place in zip(results, batched, outs, strict=True)
            ]

        cached = jaxpr.cache[key] = stage(run, whole_avals(params), jaxpr.debug, locate=False)
    return cached


def _batched(params: Params, sizes: dict[Any, int]) -> tuple[Jaxpr, list[list[Any]]]:
    """The program of all blocks, and the axes that each result has in front."""
    body = untyped(params["jaxpr"])
    batched: list[list[Any]] = [[] for _ in body.outs]
    with axes_scope({**params, "typed": ()}):
        for name in reversed(sizes):
            dims = tuple([0 if name in place.names else None for place in params["in_places"]])
            body, out_dims = batch_jaxpr(body, sizes[name], name, dims)
            for names, dim in zip(batched, out_dims, strict=True):
                if dim is not None:
                    names.insert(0, name)
    return body, batched


def _split(x: Any, place: Place, sizes: dict[Any, int]) -> Any:
    """The blocks of a whole array, with the axes that split it in front."""
    shape: list[Any] = []
    found: dict[Any, int] = {}
    rest: list[int] = []
    for i, (n, axes) in enumerate(zip(x.aval.shape, place.axes, strict=True)):
        for name in axes:
            found[name] = len(shape)
            shape.append(sizes[name])
        if i != place.stacked:
            rest.append(len(shape))
            shape.append(n // count(axes, sizes))
    order = [found[name] for name in sizes if name in found]
    return lax.transpose(lax.reshape(x, tuple(shape)), (*order, *rest))


def _joined(x: Any, names: Sequence[Any], place: Place, sizes: dict[Any, int]) -> Any:
    """The whole array of blocks that have the axes ``names`` in front."""
    front = list(names)
    for name in names:
        if name not in place.names:
            # The same for all of them: the first one's.
            x = lax.index_in_dim(x, 0, front.index(name), keepdims=False)
            front.remove(name)
    for name, size in sizes.items():
        if name in place.names and name not in front:
            x = broadcast_batch(x, size, 0)
            front.insert(0, name)
    order: list[int] = []
    shape: list[Any] = []
    block = len(front)
    for i, axes in enumerate(place.axes):
        order += [front.index(name) for name in axes]
        n = 1
        if i != place.stacked:
            order.append(block)
            n = x.aval.shape[block]
            block += 1
        shape.append(n * count(axes, sizes))
    return lax.reshape(lax.transpose(x, tuple(order)), tuple(shape))
