"""vmap: a function of one element becomes a function of a batch."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar, final

import tracebridge.core.lax as lax
from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.values import name_of_leaf, public, short_repr, values_of
from tracebridge._api.args.wraps import named_like
from tracebridge._api.vectorize.vmappable import (
    SPEC_TYPES,
    VMAPPABLES,
    assembled,
    elements,
    flatten_for_vmap,
    is_vmappable,
    size_of,
    take_registered,
)
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.control.refs.calls import MappedRefs
from tracebridge.core.control.refs.ref import has_refs
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import AxisSizeError, AxisSpecError
from tracebridge.core.interpreters.batching import batch_flat, broadcast_spread, spread_of
from tracebridge.core.interpreters.staged_rules import SpmdAxis
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.float0 import is_float0
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import MappingSpec, is_user_type
from tracebridge.core.ir.values import Value
from tracebridge.core.lax.ad_util import float0_of
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.symbolic.dims import is_symbolic_dim
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import PyTreeDef, leaves

P = ParamSpec("P")
R = TypeVar("R")
# The first lines of the documentation of the functions that are made here.
_DOC = (
    "{fun}, vectorized.\n\n"
    "Takes the arguments of {fun} and gives its results, with an additional axis along which {fun} "
    "is mapped."
)


def vmap(
    fun: Callable[P, R],
    in_axes: int | Sequence[Any] | None = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable[P, R]:
    """A function that maps ``fun`` over axes of its arguments.

    Args:
        fun: function of arrays and trees of arrays.
        in_axes: which axis of each positional argument is mapped: an int (negative counts from
            the last axis), None (not mapped), or a tuple or list with one entry per argument.
            An entry may be a tree of ints and None that is a prefix of the argument's tree.
            Keyword arguments are always mapped over their first axis.
        out_axes: where the mapped axis goes in the results: an int, or a tree prefix of the
            result. None for results that do not depend on mapped arguments.
        axis_name: name of the mapped axis, for collectives inside ``fun``.
        axis_size: size of the mapped axis; needed only if no argument is mapped.
        spmd_axis_name: axis of a mesh, or a tuple of axes, that the mapped axis is split over
            where ``fun`` has a ``with_sharding_constraint``. None leaves that to XLA.
        sum_match: where ``out_axes`` is None, sum a mapped result over the mapped axis, instead
            of raising.

    Returns:
        A function with the arguments of ``fun``, each with one more axis where it is mapped.

    Raises:
        AxisSpecError: ``in_axes`` or ``out_axes`` does not fit.
        AxisSizeError: mapped axes have different sizes, or no size is known.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> print(tb.vmap(lambda x, y: x + y, in_axes=(0, None))(tnp.arange(3.0), 10.0))
    [10. 11. 12.]
    """
    check_callable("vmap", fun)
    axis = _checked_axis(axis_name, spmd_axis_name)
    axis_size = _checked_size(axis_size)
    in_axes = tuple(in_axes) if type(in_axes) is list else in_axes
    _check_specs(in_axes=in_axes, out_axes=out_axes)
    if not (in_axes is None or isinstance(in_axes, (int, tuple, MappingSpec, *SPEC_TYPES))):
        raise AxisSpecError(
            "vmap in_axes must be an int, None, or a tuple with one entry per positional "
            f"argument, but got {in_axes!r}",
        )
    mapped: Callable[..., R] = fun  # it is called with tracers in place of arrays

    @named_like(fun, _DOC)
    def vmap_f(*args: Any, **kwargs: Any) -> Any:
        flat_args, tree = flatten_for_vmap((args, kwargs))
        same = type(in_axes) is int and in_axes == 0
        dims = [0] * len(flat_args) if same else _input_dims(fun, in_axes, args, kwargs)
        if has_refs([a for a, d in zip(flat_args, dims, strict=True) if d is not None]):
            options = axis_name, axis_size, spmd_axis_name, sum_match
            return _map_refs(mapped, flat_args, dims, tree, out_axes, options)
        specs = take_registered(flat_args, dims) if VMAPPABLES else {}
        values = _argument_values(fun, flat_args, dims, tree)
        known = size_of(flat_args, specs) if specs and axis_size is None else axis_size
        dims, size = _resolve(fun, values, dims, tree, known)
        _take_elements(values, dims)
        out_tree: list[PyTreeDef] = []
        # Results of dtype float0 have no value, those of registered types several.
        special: dict[int, Any] = {}

        def flat(*xs: Any) -> list[Any]:
            a, k = tree.unflatten(elements(xs, specs, size) if specs else xs)
            out = mapped(*a, **k)
            flat_out, structure = flatten_for_vmap(out)
            out_tree.append(structure)
            _take_special(fun, flat_out, special, structure, out_axes, size)
            return values_of(f"vmap({name_of(fun)})", flat_out, structure, "the result")

        outs, out_dims = batch_flat(flat, values, dims, size, axis, f"vmap({name_of(fun)})")
        (structure,) = out_tree
        wanted = _output_dims(fun, out_axes, structure)
        spread = spread_of(axis, values, dims) if None in out_dims else None
        placed = [
            special[i]
            if i in special
            else _place(fun, o, d, w, size, (structure, i), spread, sum_match=sum_match)
            for i, (o, d, w) in enumerate(zip(outs, out_dims, wanted, strict=True))
        ]
        return structure.unflatten(placed)

    # Collectives could mix entries.
    return _noted(api_boundary(vmap_f), None if axis_name else (fun, in_axes, out_axes))


class Mapped(NamedTuple):
    """What a function that ``vmap`` has made does: ``fun`` for each entry along an axis."""

    made: Callable[[], Any]
    """Gives the function itself: what copies its attributes is another one."""
    fun: Any
    in_axes: Any
    out_axes: Any


def _noted(made: Callable[P, R], how: tuple[Any, Any, Any] | None) -> Callable[P, R]:
    """``made``, which says in its attribute ``mapped`` what it maps, where that is all it does."""
    if how is not None:
        note = Mapped(weakref.ref(made), *how)
        made.mapped = note  # type: ignore[attr-defined]  # it is a function of ours
    return made


def _map_refs(
    fun: Callable[..., Any],
    leaves: Sequence[Any],
    dims: Sequence[int | None],
    tree: PyTreeDef,
    out_axes: Any,
    options: tuple[Any, ...],
) -> Any:
    """The call of a function that maps over mutable references: over their contents."""
    refs = MappedRefs(f"vmap({name_of(fun)})", fun, leaves, dims, tree)

    @named_like(fun)
    def call(values: list[Any]) -> Any:
        return refs.call(values)

    return refs.run(vmap(call, (dims,), (out_axes, refs.dims), *options))


def _check_specs(**options: Any) -> None:
    """Raise AxisSpecError unless all leaves are ints or None."""
    for option, axes in options.items():
        for leaf in leaves(axes):
            if type(leaf) in SPEC_TYPES or isinstance(leaf, MappingSpec):
                continue
            # A bool, or an array, can be an index for Python, but is hardly meant as an axis.
            is_array = hasattr(leaf, "aval")
            if is_array or isinstance(leaf, bool) or not hasattr(leaf, "__index__"):
                raise AxisSpecError(
                    f"vmap {option} must be an int, None, or a tree of them, but got "
                    f"{shown(leaf)} of type {type(leaf).__name__}",
                )


def _checked_axis(axis_name: Any, spmd_axis_name: Any) -> Any:
    """The mapped axis as ``batch_flat`` takes it.

    Raises:
        AxisSpecError: a name can be no name.
    """
    for option, name, expected in (
        ("axis_name", axis_name, "a name, such as a string, or None"),
        ("spmd_axis_name", spmd_axis_name, "a name of a mesh axis, a tuple of names, or None"),
    ):
        try:
            hash(name)
        except TypeError:
            raise AxisSpecError(f"vmap: {option} is {name!r}", expected=expected) from None
    if spmd_axis_name is None:
        return axis_name
    names = spmd_axis_name if isinstance(spmd_axis_name, tuple) else (spmd_axis_name,)
    return SpmdAxis(axis_name, names)


def _checked_size(size: Any) -> Any:
    """``axis_size``: None, an int that is not negative, or a symbolic size."""
    if size is None or is_symbolic_dim(size):
        return size
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise AxisSpecError(
            f"vmap: axis_size is {size!r} of type {type(size).__name__}", expected="an int or None"
        )
    found = operator.index(size)
    if found < 0:
        raise AxisSpecError(f"vmap: axis_size is {found}", expected="an int of at least 0")
    return found


def _input_dims(
    fun: Any, in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[int | None]:
    """The mapped axis of each leaf of the arguments; keyword arguments come last."""
    call = f"vmap({name_of(fun)})"
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise AxisSpecError(
            f"{call}: in_axes has {len(in_axes)} entries, but the call has {len(args)} positional "
            f"arguments",
            expected="one entry per positional argument, or one int for all",
            hint="keyword arguments are mapped over their first axis and have no entry",
        )
    tree = flatten_for_vmap(args)[1]
    dims = flatten_axes(call, tree, in_axes, axes_name="in_axes", full_name="args")
    n_keyword = len(flatten_for_vmap(kwargs)[0])
    return [*dims, *[0] * n_keyword]


def _resolve(
    fun: Any,
    values: Sequence[Value],
    dims: Sequence[int | None],
    tree: PyTreeDef,
    axis_size: int | None,
) -> tuple[list[int | None], Any]:
    """The axes as non-negative ints, and the common size."""
    size: Any = axis_size
    known = axis_size is not None
    result: list[int | None] = []
    for i, (value, dim) in enumerate(zip(values, dims, strict=True)):
        if dim is None:
            result.append(None)
            continue
        if is_user_type(value.aval):
            result.append(_spec_of(fun, value, dim, tree, i))
            continue
        shape = value.aval.shape
        n = len(shape)
        if not -n <= dim < n:
            raise _bad_axis(fun, value, dim, tree, i)
        axis = dim % n
        result.append(axis)
        if not known:
            size, known = shape[axis], True
        elif shape[axis] != size:
            raise _sizes_differ(fun, values, dims, tree, axis_size)
    if not known:
        name = name_of(fun)
        if not values:
            msg = f"vmap({name}): the call has no array argument and axis_size is not given"
        else:
            msg = f"vmap({name}): no argument is mapped (all of in_axes is None)"
        raise AxisSizeError(msg, hint="map an argument, or give axis_size")
    return result, size


def _spec_of(fun: Any, value: Value, spec: Any, tree: PyTreeDef, index: int) -> Any:
    """How a value of a type of users is mapped.

    Raises:
        AxisSpecError: by a number, which is for arrays.
    """
    if isinstance(spec, MappingSpec):
        return spec
    raise AxisSpecError(
        f"vmap({name_of(fun)}): axis {spec} of argument {_argument(fun, tree, index)} is to be "
        f"mapped, which is of the non-array type {value.aval.str_short()}",
        expected="an entry of in_axes of a subclass of MappingSpec",
    )


@final
class _Float0Leaf:
    """Stands for a mapped float0 array: it has a shape, but no elements to map over."""

    __slots__ = ("aval",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.aval = ShapedArray(shape, float0)

    def element(self, dim: int | None) -> Any:
        """The float0 array of one element of the batch."""
        return float0_of([s for i, s in enumerate(self.aval.shape) if i != dim])


def _take_elements(values: list[Any], dims: list[int | None]) -> None:
    """Replace mapped float0 arrays by unmapped ones."""
    for i, value in enumerate(values):
        if type(value) is _Float0Leaf:
            values[i], dims[i] = value.element(dims[i]), None


def _argument_values(
    fun: Any, leaves: Sequence[Any], dims: Sequence[int | None], tree: PyTreeDef
) -> list[Any]:
    """Mapped leaves as values; the others as they are: they may be no arrays at all."""
    return [
        leaf
        if d is None or issubclass(type(leaf), EngineValue)
        else _argument_value(fun, leaf, tree, i)
        for i, (leaf, d) in enumerate(zip(leaves, dims, strict=True))
    ]


def _argument_value(fun: Any, leaf: Any, tree: PyTreeDef, index: int) -> Value | _Float0Leaf:
    if is_float0(leaf):
        return _Float0Leaf(leaf.shape)
    try:
        return as_value(leaf)
    except UnsupportedDtypeError as error:
        msg = (
            f"vmap({name_of(fun)}): argument {_argument(fun, tree, index)} is {short_repr(leaf)} "
            f"of type {type(leaf).__name__}; expected arrays, numbers, and trees of them"
        )
        raise UnsupportedDtypeError(
            msg, hint=way_out_of(leaf, "give in_axes=None for arguments that are not mapped")
        ) from error


def _argument(fun: Any, tree: PyTreeDef, index: int) -> str:
    """The name of leaf ``index`` of ``(args, kwargs)``: ``params['w']``."""
    return argument_names(tree, parameter_names(fun))[index]


def _bad_axis(fun: Any, value: Value, dim: int, tree: PyTreeDef, i: int) -> AxisSpecError:
    n = value.aval.ndim
    allowed = f"an axis from {-n} to {n - 1}" if n else "None: a scalar has no axis to map"
    return AxisSpecError(
        f"vmap({name_of(fun)}): axis {dim} of argument {_argument(fun, tree, i)} is to be mapped, "
        f"but it is {value.aval.str_short()}",
        expected=allowed,
        hint="give in_axes=None for arguments that are not mapped",
    )


def _sizes_differ(
    fun: Any,
    values: Sequence[Value],
    dims: Sequence[int | None],
    tree: PyTreeDef,
    axis_size: int | None,
) -> AxisSizeError:
    lines = [] if axis_size is None else [f"axis_size={axis_size}"]
    for i, (value, dim) in enumerate(zip(values, dims, strict=True)):
        if dim is None:
            continue
        shape = value.aval.shape
        if -len(shape) <= dim < len(shape):
            lines.append(
                f"argument {_argument(fun, tree, i)} has size {shape[dim]} at axis {dim} of "
                f"{value.aval.str_short()}"
            )
    shown = "\n      ".join(lines)
    return AxisSizeError(
        "vmap got inconsistent sizes for array axes to be mapped: those of "
        f"vmap({name_of(fun)})\n      {shown}",
        hint="map axes of one size, or give in_axes=None for arguments that are not mapped",
    )


def _place_of_users(fun: Any, out: Any, dim: Any, wanted: Any, where: str) -> Any:
    """A value of a type of users lies as its operations say; ``out_axes`` must say the same."""
    if dim == wanted:
        return out
    raise AxisSpecError(
        f"vmap({name_of(fun)}): out_axes is {wanted} for {where} of type {out.aval.str_short()}",
        expected=f"{dim}, as its operations map it",
    )


def _output_dims(fun: Any, out_axes: Any, structure: PyTreeDef) -> list[Any]:
    """The entry of out_axes for each leaf of the result."""
    if type(out_axes) is int:
        return [out_axes] * structure.num_leaves
    return flatten_axes(
        f"vmap({name_of(fun)})",
        structure,
        out_axes,
        axes_name="out_axes",
        full_name="the result",
    )


def _take_special(
    fun: Any,
    results: list[Any],
    special: dict[int, Any],
    structure: PyTreeDef,
    out_axes: Any,
    size: Any,
) -> None:
    """Put the batches of results that are no values into ``special``, and 0 in their places."""
    special_positions = [i for i, r in enumerate(results) if is_float0(r) or is_vmappable(r)]
    wanted = _output_dims(fun, out_axes, structure) if special_positions else []
    for i in special_positions:
        result, results[i] = results[i], 0
        if is_float0(result):
            special[i] = _float0_batch(result.shape, wanted[i], size)
            continue

        def place(out: Value, dim: int | None, axis: Any, i: int = i) -> Any:
            return _place(fun, out, dim, axis, size, (structure, i), None, sum_match=False)

        special[i] = assembled(result, wanted[i], size, place)


def _float0_batch(shape: tuple[Any, ...], wanted: int | None, size: Any) -> Any:
    """A batch of float0 arrays; they differ in nothing."""
    batch = list(shape)
    if wanted is not None:
        batch.insert(wanted % (len(shape) + 1), size)
    return float0_of(batch)


def _place(
    fun: Any,
    out: Value,
    dim: int | None,
    wanted: Any,
    size: Any,
    place: tuple[PyTreeDef, int],
    spread: Any,
    *,
    sum_match: bool,
) -> Any:
    """``out`` with its batch axis where ``out_axes`` wants it; ``spread`` as in `spread_of`."""
    if is_user_type(out.aval):
        return _place_of_users(fun, out, dim, wanted, name_of_leaf(*place, "the result"))
    if wanted is None:
        if dim is None:
            return public(out)
        if sum_match:
            return lax.reduce_sum(out, (dim,))
        where = name_of_leaf(*place, "the result")
        raise AxisSpecError(
            f"vmap({name_of(fun)}): out_axes is None for {where}, which depends on mapped "
            "arguments",
            expected="an int",
            hint="None is only for results that are the same for all elements; sum_match=True "
            "sums the others",
        )
    n = out.aval.ndim + (dim is None)
    if not -n <= wanted < n:
        where = name_of_leaf(*place, "the result")
        shape = list(out.aval.shape)
        if dim is not None:
            del shape[dim]
        raise AxisSpecError(
            f"vmap({name_of(fun)}): out_axes is {wanted} for {where}, whose shape per element "
            f"is {tuple(shape)}",
            expected=f"an axis from {-n} to {n - 1}",
        )
    if dim is None:
        return public(broadcast_spread(out, size, wanted % n, spread))
    return move_batch_axis(out, dim, wanted % n)
