"""shard_map and smap: functions of the blocks that the devices of a mesh have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast, final

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.values import name_of_leaf
from tracebridge._api.args.wraps import named_like
from tracebridge._api.devices.partial_sums import names_sums, summed, sums_of
from tracebridge.core.config.values import mesh_in_force
from tracebridge.core.control.calls.traced_call import Arguments, argument_names
from tracebridge.core.control.refs.ref import has_refs
from tracebridge.core.control.shard_map.call import BlockCalls
from tracebridge.core.control.shard_map.places import Place, count
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import AxisSizeError, AxisSpecError
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.splits import entries_of
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import is_array_like
from tracebridge.core.sharding.abstract_mesh import AbstractMesh
from tracebridge.core.sharding.axis_types import AxisType
from tracebridge.core.sharding.equivalent import over_mesh
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import PyTreeDef, flatten, leaves


@final
class InferFromArgs:
    """Type of the value that says: as the arguments are spread."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Infer"


Infer = InferFromArgs()
_NUMBERS = (bool, int, float, complex)


def shard_map(
    f: Callable[..., object] | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = Infer,
    mesh: Mesh | AbstractMesh | None = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
) -> Callable[..., Any]:
    """A function of whole arrays, of which each device of a mesh runs ``f`` on its blocks.

    Inside ``f`` arrays are the blocks of one device, and the axes of the mesh are named axes for
    collectives (``lax.psum``, ``lax.ppermute``, ...). The results of the devices are blocks of the
    whole results.

    Derivatives of the function are those of a function of whole arrays: the gradient of an
    argument that all devices get whole is the sum of what they contribute. So is, inside of ``f``,
    the gradient of a value that all devices share: types say along which axes values vary
    (``typeof(x).vma``), and ``lax.pcast`` lets a value vary whose gradient each device is to have
    for itself. With ``check_vma=False`` derivatives that ``f`` takes are those of one device, where
    a ``psum`` passes on the sum of all cotangents.

    In programs for one device the blocks are elements of batches, as in ``vmap``.

    Args:
        f: function of blocks and trees of them; without it a decorator is returned.
        out_specs: for each result a ``PartitionSpec``: which axes of the mesh the blocks of the
            result lie along. Along axes that it does not name the result has to be the same on
            all devices. A tree prefix of the result; None stands for ``PartitionSpec()``.
        in_specs: for each argument a ``PartitionSpec``: which axes of the mesh split which axes
            of the array. Devices along axes that it does not name get the same. A tree prefix of
            the tuple of arguments; None stands for ``PartitionSpec()``. By default arguments are
            split as they are spread over the mesh, which is not known under ``jit``.
        mesh: the devices; by default the mesh that is in force (``set_mesh``, ``with mesh``).
        axis_names: the axes of the mesh whose devices have blocks of their own; the others are
            left to the compiler, as in ``jit``. By default all.
        check_vma: let types say what varies, check that results are the same along axes that
            ``out_specs`` does not name, and that no devices wait for others in vain.

    Returns:
        A function of whole arrays with the positional arguments of ``f``.

    Raises:
        AxisSpecError: there is no mesh; a specification names other axes, or more than an array
            has; a result varies over an axis that ``out_specs`` does not name.
        AxisSizeError: an axis of an array cannot be split into as many parts.
        ArgumentTypeError: there are keyword arguments, or ``in_specs`` is not known.
        EffectError: ``f`` has ordered effects.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> mesh = tb.make_mesh((1,), ("x",))
    >>> share = tb.shard_map(
    ...     lambda x: x / tb.lax.psum(x.sum(), "x"),
    ...     mesh=mesh, in_specs=tb.P("x"), out_specs=tb.P("x"),
    ... )
    >>> share(tnp.ones(4)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    if f is None:
        return functools.partial(
            shard_map,
            out_specs=out_specs,
            in_specs=in_specs,
            mesh=mesh,
            axis_names=axis_names,
            check_vma=check_vma,
        )
    check_callable("shard_map", f)
    call = f"shard_map({name_of(f)})"
    _check_mesh(call, mesh)
    for option, specs in (("in_specs", in_specs), ("out_specs", out_specs)):
        _check_leaves(call, option, specs, PartitionSpec, "PartitionSpec")
    return _function(f, _Specs(f, call, in_specs, out_specs, mesh, axis_names), check_vma)


def smap(
    f: Callable[..., object] | None = None,
    /,
    *,
    in_axes: Any = Infer,
    out_axes: Any,
    axis_name: Any,
) -> Callable[..., Any]:
    """``shard_map`` over one axis of the mesh that is in force; the others are left to XLA.

    Args:
        f: function of blocks; without it a decorator is returned.
        in_axes: which axis of each argument is split; None for arguments that all devices get
            whole. A tree prefix of the tuple of arguments; by default as in ``shard_map``.
        out_axes: along which axis the blocks of each result lie; None for results that are the
            same on all devices. A tree prefix of the result.
        axis_name: the axis of the mesh.

    Raises:
        AxisSpecError: as in ``shard_map``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.set_mesh(tb.make_mesh((1,), ("x",))):
    ...     total = tb.smap(
    ...         lambda x: tb.lax.psum(x.sum(), "x"), in_axes=0, out_axes=None, axis_name="x"
    ...     )
    ...     print(total(tnp.arange(4)))
    6
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    check_callable("smap", f)
    call = f"smap({name_of(f)})"
    for option, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        _check_leaves(call, option, axes, int, "int")
    specs = _Specs(f, call, in_axes, out_axes, None, (axis_name,), one=axis_name)
    return _function(f, specs, True)


def _function(f: Callable[..., Any], specs: _Specs, check: bool) -> Callable[..., Any]:
    calls = BlockCalls(f, name_of(f), specs, check=check)

    def call(*args: object, **kwargs: object) -> Any:
        return calls(args, kwargs)

    return api_boundary(named_like(f)(call))


def _check_mesh(call: str, mesh: object) -> None:
    if mesh is not None and not isinstance(mesh, Mesh | AbstractMesh):
        msg = f"{call}: mesh is {shown(mesh)} of type {type(mesh).__name__}"
        raise AxisSpecError(msg, expected="a Mesh, an AbstractMesh, or None")


def _check_leaves(call: str, option: str, specs: Any, kind: type, label: str) -> None:
    if specs is Infer and option.startswith("in_"):
        return
    for leaf in leaves(specs):
        if not isinstance(leaf, kind) or isinstance(leaf, bool):
            msg = f"{call}: {option} contains {shown(leaf)} of type {type(leaf).__name__}"
            hint = "write P() for tuples of names: P(('x', 'y')), P('x', None)" if (
                isinstance(leaf, str)) else ""  # fmt: skip
            raise AxisSpecError(
                msg,
                expected=f"{label}, None, and trees of them",
                **({"hint": hint} if hint else {}),
            )


@final
class _Specs:
    """How the arguments and results of one function are understood."""

    def __init__(
        self,
        fun: Callable[..., object],
        call: str,
        ins: Any,
        outs: Any,
        mesh: Mesh | AbstractMesh | None,
        axis_names: Any,
        one: Any = None,
    ) -> None:
        self.fun = fun
        self.parameters = parameter_names(fun)
        self.call = call
        self.ins = ins
        self.outs = outs
        self.mesh = mesh
        lone = isinstance(axis_names, str)
        self.axis_names: tuple[Any, ...] = (axis_names,) if lone else tuple(axis_names)
        # The axis that ints stand for, and what messages call the two arguments.
        self.one = one
        self.labels = ("in_specs", "out_specs") if one is None else ("in_axes", "out_axes")
        self.sums = names_sums((() if ins is Infer else ins, outs))

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The flat arguments of a call."""
        if kwargs:
            given = ", ".join(kwargs)
            raise ArgumentTypeError(
                f"{self.call}: got the keyword arguments {given}",
                hint="give all arguments by position, in the order of in_specs",
            )
        found = self._given(*flatten((args, kwargs)))
        if self.ins is Infer:
            specs = [getattr(getattr(x, "sharding", None), "spec", None) for x in found.leaves]
            if not self.sums and not names_sums(specs):
                return found
        elif self.sums:
            specs = self._leaf_specs(found.tree.children()[0], self.ins, 0)
        else:
            return found
        outs = functools.partial(self._leaf_specs, specs=self.outs, label=1)
        found.fun = summed(found.fun, specs, outs, self.name_of_result)
        # What is traced is remembered for the user's function, and has the sums in it.
        results, tree = flatten(self.outs)
        found.static_key = (*found.static_key, *map(sums_of, [*specs, *results]), tree)
        return found

    def _leaf_specs(self, tree: PyTreeDef, specs: Any, label: int) -> Any:
        """The specification of each leaf of the arguments, or of the result."""
        full_name = ("the arguments", "the result")[label]
        return flatten_axes(
            self.call, tree, specs, axes_name=self.labels[label], full_name=full_name
        )

    def _given(self, flat: list[Any], tree: PyTreeDef) -> Arguments:
        """The arguments that are arrays, and a function of them."""
        passed = self._passed(flat, tree)
        if not passed:
            return Arguments(self.fun, flat, tree, parameters=self.parameters)

        def fun(*blocks: object) -> Any:
            rest = iter(leaves(blocks))
            given = [passed[i] if i in passed else next(rest) for i in range(len(flat))]
            return self.fun(*tree.unflatten(given)[0])

        rest, left = flatten(tree.unflatten([() if i in passed else x for i, x in enumerate(flat)]))
        keys = [x if type(x) in _NUMBERS else object() for x in passed.values()]
        key = tuple(zip(passed, map(type, passed.values()), keys, strict=True))
        return Arguments(fun, rest, left, key, parameters=self.parameters)

    def _passed(self, flat: Sequence[Any], tree: PyTreeDef) -> dict[int, Any]:
        """Arguments that are no arrays and have no specification: they are passed as they are."""
        found = [i for i, x in enumerate(flat) if type(x) in _NUMBERS or not is_array_like(x)]
        if not found or self.ins is Infer or has_refs([flat[i] for i in found]):
            return {}
        specs = self._leaf_specs(tree.children()[0], self.ins, 0)
        return {i: flat[i] for i in found if specs[i] is None}

    def axes(self) -> tuple[Mesh, tuple[Any, ...]]:
        """The mesh of a call, and the axes whose devices have blocks of their own."""
        force: Any = mesh_in_force()
        mesh: Any = force if self.mesh is None else self.mesh
        if type(mesh) is AbstractMesh and type(force) is Mesh:
            mesh = force if force.shape_tuple == mesh.shape_tuple else self.mesh
        if mesh is None or mesh.empty:
            raise AxisSpecError(
                f"{self.call}: no mesh is given, and none is in force",
                hint="give mesh=..., or call it inside of `with tracebridge.set_mesh(mesh):`",
            )
        taken: tuple[Any, ...] = ()
        if force is not None and force.shape_tuple == mesh.shape_tuple:
            # Inside another shard_map over this mesh.
            taken = force.manual_axes
        for name in self.axis_names:
            if name not in mesh.axis_names:
                raise AxisSpecError(
                    f"{self.call}: {self._names_label()} {name!r} is no axis of {mesh}",
                    expected=f"one of {tuple(mesh.axis_names)}",
                )
            if name in taken:
                raise AxisSpecError(
                    f"{self.call}: the axis {name!r} is one of a shard_map around it, whose "
                    "devices have their own blocks already",
                    hint="give axis_names the axes that are left",
                )
        wanted = self.axis_names or [n for n in mesh.axis_names if n not in taken]
        if not wanted:
            raise AxisSpecError(
                f"{self.call}: a shard_map around it has all axes of {mesh}",
                hint="give the outer one axis_names, so that some are left",
            )
        if taken or AxisType.Manual in mesh.axis_types:
            mesh = mesh.update(
                axis_types=tuple(
                    [AxisType.Auto if t is AxisType.Manual else t for t in mesh.axis_types]
                )
            )
        names = tuple([name for name in mesh.axis_names if name in wanted])
        return cast("Mesh", mesh), names  # an abstract one has the same axes

    def _names_label(self) -> str:
        return "axis_name" if self.one is not None else "axis_names:"

    def in_places(
        self, call: Arguments, values: Sequence[Any], mesh: Mesh, names: Sequence[Any]
    ) -> tuple[Place, ...]:
        """How each argument is spread."""
        label = self.labels[0]
        if self.ins is Infer:
            specs = [self._inferred(call, i, v, mesh, names) for i, v in enumerate(values)]
        else:
            specs = self._leaf_specs(call.tree.children()[0], self.ins, 0)
        places: list[Place] = []
        for i, (value, spec) in enumerate(zip(values, specs, strict=True)):
            aval = value.aval

            def what(i: int = i) -> str:
                return f"argument {self._argument(call, i)}"

            place = self._place(spec, aval.ndim, mesh, names, label, what)
            self._check_sizes(place, aval, mesh, what)
            places.append(place)
        return tuple(places)

    def _argument(self, call: Arguments, index: int) -> str:
        return argument_names(call.tree, call.parameters)[index]

    def _inferred(
        self, call: Arguments, index: int, value: Any, mesh: Mesh, names: Sequence[Any]
    ) -> PartitionSpec:
        """How an array is spread over the mesh."""
        if value.aval.split is not None or set(names) <= set(mesh.explicit_axes):
            entries = entries_of(value.aval)
            return PartitionSpec(
                *[tuple([n for n in entry_names(e) if n in names]) for e in entries]
            )
        sharding = getattr(value, "sharding", None)
        known = isinstance(sharding, NamedSharding)
        if isinstance(value, Tracer) or (self.one is not None and not known):
            raise ArgumentTypeError(
                f"{self.call}: {self.labels[0]} was not specified, and the type of argument "
                f"{self._argument(call, index)} does not say how it is spread over {tuple(names)}",
                hint=f"give {self.labels[0]}",
            )
        if not isinstance(sharding, NamedSharding) or type(mesh) is not Mesh:
            return PartitionSpec()
        found = over_mesh(mesh, sharding, value.aval.ndim)
        entries = () if found is None else found.spec
        return PartitionSpec(*[tuple([n for n in entry_names(e) if n in names]) for e in entries])

    def out_places(
        self, tree: PyTreeDef, avals: Sequence[Any], mesh: Mesh, names: Sequence[Any]
    ) -> tuple[Place, ...]:
        """How each result is spread."""
        label = self.labels[1]
        specs = self._leaf_specs(tree, self.outs, 1)
        return tuple(
            [
                self._place(
                    spec,
                    aval.ndim,
                    mesh,
                    names,
                    label,
                    functools.partial(self.name_of_result, tree, i),
                )
                for i, (aval, spec) in enumerate(zip(avals, specs, strict=True))
            ]
        )

    def name_of_result(self, tree: PyTreeDef, index: int) -> str:
        """What messages call a result."""
        return name_of_leaf(tree, index, "the result")

    def _place(
        self,
        spec: Any,
        ndim: int,
        mesh: Mesh,
        names: Sequence[Any],
        label: str,
        what: Callable[[], str],
    ) -> Place:
        """A specification, checked, for an array with ``ndim`` axes."""
        if isinstance(spec, int):
            if not -ndim <= spec < ndim:
                raise AxisSpecError(
                    f"{self.call}: {label} is {spec} for {what()}, which has {ndim} axes",
                    expected=f"an axis from {-ndim} to {ndim - 1}" if ndim else "None",
                )
            spec = PartitionSpec(*[None] * (spec % ndim), self.one)
        spec = PartitionSpec() if spec is None else spec
        if len(spec) > ndim:
            raise AxisSpecError(
                f"{self.call}: {label} is {spec}, which has length {len(spec)}, for {what()}, "
                f"which has rank {ndim}",
                expected=f"at most {ndim} entries, one for each axis",
                **({} if ndim else {"hint": f"consider using an {label} entry of `P()`"}),
            )
        rows = [entry_names(entry) for entry in spec]
        flat = [name for row in rows for name in row]
        flat += [name for role in sums_of(spec) for name in sorted(role, key=repr)]
        if PartitionSpec.UNCONSTRAINED in tuple(spec):
            raise AxisSpecError(
                f"{self.call}: {label} is {spec} for {what()}",
                expected="names of axes, or None: blocks have one size",
            )
        for name in flat:
            if name not in names:
                known = name in mesh.axis_names
                left = "is not one that it splits by itself" if known else f"is no axis of {mesh}"
                raise AxisSpecError(
                    f"{self.call}: {label} is {spec} for {what()}, but {name!r} {left}",
                    expected=f"names from {tuple(names)}",
                )
        if len(set(flat)) != len(flat):
            raise AxisSpecError(f"{self.call}: {label} is {spec} for {what()}: it repeats a name")
        return Place((*rows, *[()] * (ndim - len(rows))), n_entries=len(rows))

    def _check_sizes(self, place: Place, aval: Any, mesh: Mesh, what: Callable[[], str]) -> None:
        """Raise unless each axis can be split into equal parts."""
        sizes = mesh.shape
        for axis, (n, names) in enumerate(zip(aval.shape, place.axes, strict=True)):
            parts = count(names, sizes)
            rest = 0 if parts == 1 else n % parts
            # Of a symbolic size it is a number, where it follows from the expression.
            if type(rest) is int and not rest:
                continue
            over = ", ".join([f"{name!r} of size {sizes[name]}" for name in names])
            raise AxisSizeError(
                f"{self.call}: axis {axis} of {what()}, {aval.str_short()}, has size {n}, which "
                f"{self.labels[0]} {place.spec} splits over the mesh axis {over} into {parts} "
                "blocks",
                expected=f"a size divisible by {parts}",
                hint="pad the array, or leave the axis whole (None)",
            )
