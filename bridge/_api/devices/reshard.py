"""Other splits over meshes with explicit axes, and functions that see axes as of another type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tracebridge._api.args.argnums import check_callable
from tracebridge.core.config.state import enter_scope, leave_scope, with_entered_mesh
from tracebridge.core.config.values import mesh_in_force
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.lax.unsplit import unsplit_leaves
from tracebridge.core.sharding.axis_types import AxisType, axis_names_of, with_types
from tracebridge.core.sharding.context import get_abstract_mesh
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import flatten


def _split(call: str, option: str, xs: object, shardings: Any) -> Any:
    """A tree of arrays, split as a tree prefix of shardings says."""
    flat, tree = flatten(xs)
    wanted = flatten_axes(call, tree, shardings, axes_name=option, full_name="xs")
    if any([w is None for w in wanted]):
        raise AxisSpecError(f"{call}: {option} has a None", expected="shardings")
    return tree.unflatten(
        [constrained_result(call, x, w) for x, w in zip(flat, wanted, strict=True)]
    )


@api_boundary
def reshard(xs: object, out_shardings: object) -> Any:
    """The arrays of ``xs``, split in another way over a mesh with axes of the type Explicit.

    Args:
        xs: tree of arrays.
        out_shardings: ``NamedSharding``, or ``PartitionSpec`` for the mesh in force; a tree
            prefix of ``xs``.

    Returns:
        A tree like ``xs``.

    Raises:
        AxisSpecError: an axis has another type, there is no mesh, or an entry is None.
        ArgumentTypeError: something is no sharding.

    >>> import tracebridge as tb
    >>> mesh = tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Explicit)
    >>> with tb.set_mesh(mesh):
    ...     tb.sharding.reshard(tb.numpy.ones(4), tb.P("x")).sharding.spec
    P('x',)
    """
    return _split("reshard", "out_shardings", xs, out_shardings)


def _explicit(shardings: Any) -> bool:
    """Whether all axes that shardings name are of the type Explicit."""
    mesh = get_abstract_mesh()
    for place in flatten(shardings)[0]:
        named = isinstance(place, NamedSharding)
        where, spec = (place.mesh, place.spec) if named else (mesh, place)
        types = dict(zip(where.axis_names, where.axis_types, strict=True))
        names = [name for entry in spec for name in entry_names(entry)]
        if any([types.get(name, AxisType.Explicit) is not AxisType.Explicit for name in names]):
            return False
    return True


@contextmanager
def _axes_as(kind: str, names: Sequence[Any] | None) -> Iterator[None]:
    """Axes of the mesh in force with another type; None: all but those of a shard_map."""
    mesh: Any = mesh_in_force() if is_eager() else get_abstract_mesh()
    if mesh is None or mesh.empty:
        yield
        return
    wanted = [n for n in mesh.axis_names if n not in mesh.manual_axes] if names is None else names
    scope = enter_scope(with_entered_mesh, with_types(mesh, wanted, kind))
    try:
        yield
    finally:
        leave_scope(scope)


def auto_axes(
    f: Callable[..., object] | None = None,
    /,
    *,
    axes: str | tuple[str, ...] | None = None,
    out_sharding: Any = None,
) -> Callable[..., Any]:
    """A function in which the compiler splits values over axes of the type Explicit.

    Args:
        f: the function; without it a decorator is returned.
        axes: which axes; all by default.
        out_sharding: how the results are split, a tree prefix of them; it can also be given at
            the call, by this name.

    Raises:
        ArgumentTypeError: ``out_sharding`` is not given.

    >>> import tracebridge as tb
    >>> mesh = tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Explicit)
    >>> with tb.set_mesh(mesh):
    ...     f = tb.sharding.auto_axes(lambda x: x * 2, out_sharding=tb.P("x"))
    ...     f(tb.numpy.ones(4)).sharding.spec
    P('x',)
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)
    check_callable("auto_axes", f)
    inner: Callable[..., Any] = f

    @functools.wraps(inner)
    def call(*args: object, **kwargs: object) -> Any:
        wanted = kwargs.pop("out_sharding", None) if out_sharding is None else out_sharding
        if wanted is None:
            msg = "auto_axes: out_sharding is not given"
            raise ArgumentTypeError(msg, hint="give it to auto_axes, or at the call")
        if not _explicit(wanted):
            # Over other meshes the compiler splits everything: nothing changes.
            return inner(*args, **kwargs)
        names = None if axes is None else axis_names_of("auto_axes", axes)
        free, free_kw = unsplit_leaves((args, kwargs), names)
        with _axes_as("Auto", names):
            out = inner(*free, **free_kw)
        return _split("auto_axes", "out_sharding", out, wanted)

    return api_boundary(call)


def _split_explicitly(args: Any, wanted: Any, mesh: Any) -> Any:
    """Arguments, split as ``wanted`` says; those that are no traced values over devices."""
    if is_eager() and isinstance(mesh, Mesh):
        typed = mesh.update(axis_types=get_abstract_mesh().axis_types)
        flat, tree = flatten(wanted)
        specs = [NamedSharding(typed, w) if isinstance(w, PartitionSpec) else w for w in flat]
        wanted = tree.unflatten(specs)
    return _split("explicit_axes", "in_sharding", args, wanted)


def explicit_axes(
    f: Callable[..., object] | None = None,
    /,
    *,
    axes: str | tuple[str, ...] | None = None,
    in_sharding: Any = None,
) -> Callable[..., Any]:
    """A function whose arguments are split over axes of a mesh as ``in_sharding`` says.

    Args:
        f: the function; without it a decorator is returned.
        axes: which axes; all by default.
        in_sharding: how the arguments are split, a tree prefix of the tuple of them, or one for
            all; it can also be given at the call, by this name.

    Raises:
        ArgumentTypeError: ``in_sharding`` is not given.

    >>> import tracebridge as tb
    >>> with tb.set_mesh(tb.make_mesh((1,), ("x",))):
    ...     f = tb.sharding.explicit_axes(lambda x: x.sharding.spec, in_sharding=tb.P("x"))
    ...     f(tb.numpy.ones(4))
    P('x',)
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)
    check_callable("explicit_axes", f)
    inner: Callable[..., Any] = f

    @functools.wraps(inner)
    def call(*args: object, **kwargs: object) -> Any:
        wanted = kwargs.pop("in_sharding", None) if in_sharding is None else in_sharding
        if wanted is None:
            msg = "explicit_axes: in_sharding is not given"
            raise ArgumentTypeError(msg, hint="give it to explicit_axes, or at the call")
        names = None if axes is None else axis_names_of("explicit_axes", axes)
        mesh: Any = mesh_in_force()
        with _axes_as("Explicit", names):
            out = inner(*_split_explicitly(args, wanted, mesh), **kwargs)
        return unsplit_leaves(out, names)

    return api_boundary(call)
