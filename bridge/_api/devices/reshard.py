"""Other splits over meshes with explicit axes, and functions that see axes as of another type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracebridge._api.args.argnums import check_callable
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.lax.sharding_constraint import (
    constrained_result,
    with_sharding_constraint,
)
from tracebridge.core.sharding.axis_types import AxisType
from tracebridge.core.sharding.context import get_abstract_mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import entry_names
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
    PartitionSpec('x')
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
    PartitionSpec('x')
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
        out = inner(*args, **kwargs)
        # Over other meshes the compiler splits everything: nothing changes.
        return _split("auto_axes", "out_sharding", out, wanted) if _explicit(wanted) else out

    return api_boundary(call)


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
    PartitionSpec('x')
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
        return inner(*with_sharding_constraint(args, wanted), **kwargs)

    return api_boundary(call)
