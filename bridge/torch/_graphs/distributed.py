"""The operator on DTensors: which shards of its inputs each process needs, and what comes out.

What ``vmap`` has made works entry by entry along the mapped axis: shards along it stay where they
are, and each process computes its entries, of results and of gradients. Gradients of inputs that
are not mapped are sums over the entries, so that each process has a term (``Partial``), as after
``x @ w`` in torch. Of other functions the program tells which axes can be divided (flow.py). Where
none can, each process gathers whole tensors and computes everything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from tracebridge._derived.families import Avals, Derived, Family, Jvp, Ruled, Vjp, Vmap
from tracebridge._derived.flow import (
    Axes,
    Division,
    Split,
    divisions_of,
    is_divided,
    shard_avals,
)
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.torch._crossing.numbers import aval_of
from tracebridge.torch._crossing.symbolic import has_symbolic
from tracebridge.torch._graphs.call_family import CallFamily

# How a family can be divided ---------------------------------------------------------------------


def splits_of(family: Family, avals: Avals) -> list[Split]:
    """The ways to divide the program of a family at ``avals`` along axes that are mapped."""
    if isinstance(family, CallFamily):
        return _mapped(family, avals)
    if not isinstance(family, Derived):
        return []
    of_parent = family.of_parent(avals)
    found = splits_of(family.parent, of_parent)
    if isinstance(family, Vjp):
        return [_of_vjp(family, split) for split in found]
    if isinstance(family, Jvp):
        results = family.parent.program(of_parent).out_avals
        inexact = [is_inexact(a.dtype) for a in results]
        return [_of_jvp(family, split, inexact) for split in found]
    if isinstance(family, Vmap):
        here = Split(family.dims, (0,) * len(family.program(avals).outs))
        return [here, *[_of_vmap(family, split) for split in found]]
    return found if isinstance(family, Ruled) else []


def _of_vjp(family: Vjp, split: Split) -> Split:
    pairs = zip(split.outs, family.cotangents, strict=True)
    grads = zip(split.ins, family.active, strict=True)
    # The cotangent of a sum is whole, and so is that of each of its terms.
    return Split((*split.ins, *[d for d, c in pairs if c]), tuple([d for d, a in grads if a]))


def _of_jvp(family: Jvp, split: Split, inexact: Sequence[bool]) -> Split:
    tangents = [d for d, t in zip(split.ins, family.nonzero, strict=True) if t]
    results = [d for d, t in zip(split.outs, inexact, strict=True) if t]
    return Split((*split.ins, *tangents), (*split.outs, *results))


def _of_vmap(family: Vmap, split: Split) -> Split:
    pairs = zip(split.ins, family.dims, strict=True)
    ins = [d if d is None or m is None or m > d else d + 1 for d, m in pairs]
    return Split(tuple(ins), tuple([None if d is None else d + 1 for d in split.outs]))


def _mapped(family: CallFamily, avals: Avals) -> list[Split]:
    """The mapped axes of functions that are calls of ``vmap``, the outermost first."""
    owner = family.owner()
    if owner is None:
        return []
    found: list[Split] = []
    ranks = [a.ndim for a in avals]
    out_ranks = [a.ndim for a in family.program(avals).out_avals]
    taken: list[list[int]] = [[] for _ in [*ranks, *out_ranks]]
    fun = owner.fun
    while True:
        mapped = getattr(fun, "mapped", None)
        # Decorators that copy attributes make other functions of it.
        if mapped is None or mapped.made() is not fun or type(mapped.out_axes) is not int:
            return found
        axes = _flat_axes(family, owner, mapped.in_axes)
        if axes is None:
            return found
        axes += [mapped.out_axes] * len(out_ranks)
        here: list[int | None] = []
        for axis, rank, gone in zip(axes, [*ranks, *out_ranks], taken, strict=True):
            if axis is None:
                here.append(None)
                continue
            left = [d for d in range(rank) if d not in gone]
            here.append(left[axis])
            gone.append(left[axis])
        found.append(Split(tuple(here[: len(ranks)]), tuple(here[len(ranks) :])))
        fun = mapped.fun


def _flat_axes(family: CallFamily, owner: Any, in_axes: Any) -> list[int | None] | None:
    """The mapped axis of each leaf; None if nothing is sure."""
    positional, keywords = family.in_tree.unflatten(list(family.kinds))
    if isinstance(in_axes, tuple):
        places = owner.splitter.layout(len(in_axes))[1]
        in_axes = tuple([in_axes[i] for i in places])
        if len(in_axes) != len(positional):
            return None
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(positional)
    found = flatten_axes("vmap: in_axes", family.in_tree, (axes, dict.fromkeys(keywords, 0)))
    return list(found) if all([d is None or type(d) is int for d in found]) else None


# A call ------------------------------------------------------------------------------------------


def call_distributed(
    family: Family,
    xs: Sequence[torch.Tensor],
    call: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]],
    shapes: Callable[[], Sequence[tuple[Any, torch.dtype]]],
) -> list[torch.Tensor]:
    """DTensors in, DTensors out: ``call`` is the operator on the shards of this process.

    ``shapes`` gives shapes and dtypes of the whole results.

    Raises:
        ExchangeError: tensors with elements stand beside DTensors, or there are two meshes.
    """
    mesh = _mesh_of(family, xs)
    plan = _plan_of(family, xs, mesh, shapes)
    with torch.no_grad():
        local = [_shard_of(x, mesh, wanted) for x, wanted in zip(xs, plan.wanted, strict=True)]
        if mesh.get_coordinate() is None:  # this process has no part in it
            outs: Sequence[torch.Tensor] = [torch.empty(0, dtype=r.dtype) for r in plan.results]
        else:
            outs = call(local)
        return [
            DTensor.from_local(out, mesh, r.placements, shape=r.shape, stride=r.stride)
            for out, r in zip(outs, plan.results, strict=True)
        ]


class Result(NamedTuple):
    """What is known of a whole result."""

    placements: tuple[Any, ...]
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype


class Plan(NamedTuple):
    """A call at given types and placements: what each process wants of inputs, and the results."""

    wanted: tuple[tuple[Any, ...], ...]
    results: tuple[Result, ...]


def _plan_of(
    family: Family,
    xs: Sequence[Any],
    mesh: Any,
    shapes: Callable[[], Sequence[tuple[Any, torch.dtype]]],
) -> Plan:
    # A graph for all sizes is made once.
    known: dict[Any, Any] = {}
    avals = tuple([aval_of(x) for x in xs])
    if not has_symbolic(xs):
        known = family.program(avals).cache
    key = ("shards", mesh, tuple([x.placements if isinstance(x, DTensor) else None for x in xs]))
    found = known.get(key)
    if found is None:
        made = shapes()
        chosen = _chosen(splits_of(family, avals), xs, mesh)
        if not has_symbolic(xs) and None in chosen:
            others = _chosen_by_program(family, avals, xs, mesh, made)
            chosen = others if others.count(None) < chosen.count(None) else chosen
        ins = [[None if s is None else s.ins[i] for s in chosen] for i in range(len(xs))]
        wanted = [tuple([Replicate() if d is None else Shard(d) for d in axes]) for axes in ins]
        results: list[Result] = []
        for i, (shape, dtype) in enumerate(made):
            stride = [1] * len(shape)
            for d in reversed(range(len(shape) - 1)):
                stride[d] = stride[d + 1] * max(shape[d + 1], 1)
            placements = tuple([_placement_of(split, i) for split in chosen])
            results.append(Result(placements, torch.Size(shape), tuple(stride), dtype))
        found = known[key] = Plan(tuple(wanted), tuple(results))
    return found


def _mesh_of(family: Family, xs: Sequence[Any]) -> Any:
    """The one mesh of all DTensors."""
    index = [isinstance(x, DTensor) for x in xs].index(True)
    mesh = xs[index].device_mesh
    for i, x in enumerate(xs):
        if isinstance(x, DTensor):
            if x.device_mesh != mesh:
                raise ExchangeError(
                    f"{family.name}: tensor {index} is a DTensor on {mesh}, tensor {i} one on "
                    f"{x.device_mesh}",
                    hint="bring them onto one mesh: distribute_tensor(x.full_tensor(), mesh, ...)",
                )
        elif x.ndim and not torch._C._get_dtensor_allow_implicit_replication():
            raise ExchangeError(
                f"{family.name}: tensor {i}, of shape {tuple(x.shape)}, is a "
                f"{type(x).__name__}, and tensor {index} a DTensor",
                hint="distribute it, by distribute_tensor(x, mesh, [Replicate()]), a module by "
                "distribute_module(module, mesh); or call the function on shards alone: "
                "x.to_local(), or torch.distributed.tensor.experimental.local_map",
            )
    return mesh


def _chosen(splits: Sequence[Split], xs: Sequence[Any], mesh: Any) -> list[Split | None]:
    """For each axis of the mesh how it divides the work; None: it does not."""
    chosen: list[Split | None] = []
    sizes: dict[int, set[Any]] = {}  # of the shards so far, by the index of the split
    for m in range(mesh.ndim):
        found = None
        for k, split in enumerate(splits):
            shard = _shard_along(split, xs, m)
            if shard is None:
                continue
            x, axis = shard
            before = sizes.get(k, {x.shape[axis]})
            after = {n for whole in before for n in _chunks(whole, mesh.size(m))}
            # An empty shard has no entry to compute; all processes decide alike.
            if all([n > 0 for n in after]):
                found, sizes[k] = split, after
                break
        chosen.append(found)
    return chosen


def _chosen_by_program(
    family: Family, avals: Avals, xs: Sequence[Any], mesh: Any, made: Sequence[tuple[Any, Any]]
) -> list[Split | None]:
    """Likewise by the axes of the program of a family, those first that move the least."""
    program = family.program(avals)
    chosen: list[Split | None] = []
    sizes: dict[Division, set[int]] = {}
    for m in range(mesh.ndim):
        found = None
        usable = [d for d in divisions_of(program) if _shard_along(d.split, xs, m) is not None]
        for division in sorted(usable, key=lambda d: _moved(d.split, xs, m, made)):
            before = sizes.get(division) or {_size_along(division.split.ins, avals)}
            after = {n for whole in before for n in _chunks(whole, mesh.size(m))}
            tried = {**sizes, division: after}
            if all([n > 0 for n in after]) and _is_divided(family, avals, tried):
                found, sizes = division.split, tried
                break
        chosen.append(found)
    return chosen


def _size_along(axes: Axes, avals: Avals) -> int:
    return next(a.shape[d] for a, d in zip(avals, axes, strict=True) if d is not None)


def _moved(split: Split, xs: Sequence[Any], m: int, made: Sequence[tuple[Any, Any]]) -> int:
    """How many elements change places along axis ``m`` of the mesh, counted roughly."""
    moved = 0
    for x, axis in zip(xs, split.ins, strict=True):
        placement = x.placements[m] if isinstance(x, DTensor) else Replicate()
        stays = type(placement) is Shard and placement.dim == axis
        moved += 0 if stays or placement.is_replicate() else x.numel()
    terms = [torch.Size(shape) for (shape, _), d in zip(made, split.outs, strict=True) if d is None]
    return moved + sum([shape.numel() for shape in terms])


def _is_divided(family: Family, avals: Avals, sizes: dict[Division, set[int]]) -> bool:
    """Whether the programs of all shards are that of the whole."""
    whole = family.program(avals)
    for combination in itertools.product(*sizes.values()):
        given = list(zip(sizes, combination, strict=True))
        try:
            shard = family.program(shard_avals(avals, given))
        except Exception:  # noqa: BLE001 - a function that wants one size says so as it likes
            return False
        if not is_divided(whole, shard, given):
            return False
    return True


def _shard_along(split: Split, xs: Sequence[Any], m: int) -> tuple[Any, int] | None:
    """An input that axis ``m`` of the mesh divides as ``split`` does, and its axis."""
    for x, axis in zip(xs, split.ins, strict=True):
        if isinstance(x, DTensor) and axis is not None:
            placement = x.placements[m]
            if type(placement) is Shard and placement.dim == axis:
                return x, axis
    return None


def _chunks(whole: Any, n: int) -> tuple[Any, Any]:
    """The largest and the smallest shard."""
    full = -(-whole // n)
    return full, whole - full * (n - 1)


def _shard_of(x: Any, mesh: Any, placements: tuple[Any, ...]) -> torch.Tensor:
    """What this process has of ``x`` when it is placed so."""
    if isinstance(x, DTensor):
        return (x if x.placements == placements else x.redistribute(mesh, placements)).to_local()
    # One value, or whole by the user's word.
    if all([placement.is_replicate() for placement in placements]):
        return x
    whole = DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim)
    return whole.redistribute(mesh, placements).to_local()


def _placement_of(split: Split | None, i: int) -> Any:
    if split is None:
        return Replicate()
    axis = split.outs[i]
    return Partial() if axis is None else Shard(axis)
