"""with_sharding_constraint: how an array inside a program is split over the devices of a mesh."""

from __future__ import annotations

__all__ = ["sharding_constraint_p", "with_sharding_constraint"]

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import api_boundary, hide_internal_frames
from tracebridge.core.errors.transform_errors import AxisSpecError, ShardingAssertionError
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import Constraint
from tracebridge.core.lax.unsplit import unsplit, unsplit_leaves
from tracebridge.core.mlir.shardy import split_operand
from tracebridge.core.sharding.abstract_mesh import AbstractMesh
from tracebridge.core.sharding.axis_types import AxisType
from tracebridge.core.sharding.context import get_abstract_mesh, get_mesh, named_sharding
from tracebridge.core.sharding.layout import Format, Layout
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.sharding.splits import check_even, explicit_split
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import flatten

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class ShardingConstraint(Constraint):
    """The operand itself, split as parameter ``sharding`` (a NamedSharding) says."""

    name = "sharding_constraint"
    decides_splits = True

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        return [explicit_split(params["sharding"], avals[0].ndim)]

    def wanted_sharding(self, params: Params) -> Any:
        """Programs with this operation run on the mesh of its sharding."""
        return params["sharding"]

    def destination(self, x: Any, *, sharding: Any) -> Any:
        """Where an array goes eagerly; axes without a constraint become whole."""
        # An abstract mesh is that of the array, or the one that is in force, if they have its axes.
        for mesh in (getattr(x.sharding, "mesh", None), get_mesh()):
            if mesh is not None:
                sharding = sharding.on_mesh(mesh)
        if type(sharding.mesh) is AbstractMesh and explicit_split(sharding, x.aval.ndim):
            return None  # a type has no devices: the array stays where it is
        split = explicit_split(sharding, x.aval.ndim)
        if sharding.mesh.are_all_axes_explicit:
            spec = sharding.spec
            entries = [*spec, *[None] * (x.aval.ndim - len(spec))]
            whole = PartitionSpec(*entries, unreduced=spec.unreduced, reduced=spec.reduced)
            return sharding.with_spec(whole if split is None else split.spec)
        return sharding.without_open_axes()

    def lower(self, ctx: LoweringContext, x: Any, *, sharding: Any) -> Any:
        return x if ctx.mesh is None else split_operand(self.name, ctx, x, sharding)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        """Cotangents are split as the operand is, where types say how."""
        aval = args[0].aval
        if aval.split is not None:
            return [self.bind(ct, sharding=aval.split)]
        if explicit_split(params["sharding"], aval.ndim) is not None:
            return [unsplit(ct)]
        return [self.bind(ct, **params)]

    def with_axis(self, ctx: BatchContext, axis: int, params: Params) -> dict[str, Any]:
        """XLA chooses how the mapped axis is split, unless ``vmap`` says it."""
        names, sharding = ctx.spmd_name, params["sharding"]
        _check_free(names or (), sharding.spec)
        entries = [*sharding.spec, *[None] * (axis - len(sharding.spec))]
        free = None if sharding.mesh.are_all_axes_explicit else PartitionSpec.UNCONSTRAINED
        entries.insert(axis, free if names is None else names)
        return {"sharding": sharding.update(spec=PartitionSpec(*entries))}


def _check_free(names: Sequence[object], spec: PartitionSpec) -> None:
    """Raise AxisSpecError if ``spec`` names one of the axes that the mapped axis is split over."""
    taken = [name for entry in spec for name in entry_names(entry) if name in names]
    if taken:
        raise AxisSpecError(
            f"vmap: spmd_axis_name is {_shown(names)}, but a with_sharding_constraint inside it has"
            f" {spec}, which names {_shown(taken)} too",
            expected="an axis of the mesh that no constraint inside names",
            hint="leave it out of the specification: vmap puts it at the mapped axis",
        )


def _shown(names: Sequence[object]) -> str:
    return repr(names[0] if len(names) == 1 else tuple(names))


sharding_constraint_p = ShardingConstraint()


@api_boundary
def with_sharding_constraint(x: object, shardings: object) -> Any:
    """``x``, split over devices in a certain way, also inside compiled programs.

    The programs that XLA splits over several devices choose by themselves how values between
    arguments and results are split; a constraint chooses for one of them, and for its derivatives.
    A program with a constraint runs on the devices of the mesh. In programs for one device, and
    inside ``pmap``, a constraint changes nothing.

    Args:
        x: tree of arrays.
        shardings: shardings, or ``PartitionSpec`` for the mesh that is in force (``set_mesh``), or
            a ``Format`` of a layout and a sharding; a tree prefix of ``x``. Entries
            ``PartitionSpec.UNCONSTRAINED`` leave an axis to XLA, entries None keep it whole.

    Returns:
        A tree like ``x``.

    Raises:
        NoMeshError: a ``PartitionSpec`` is given and no mesh is in force.
        DevicePlacementError: something is no sharding.
        ShapeMismatchError: a sharding splits more axes than an array has.
        ArgumentValueError: the layout of a format has other axes than its array.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> mesh = tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Auto)
    >>> rows = tb.sharding.NamedSharding(mesh, tb.sharding.PartitionSpec("x"))
    >>> f = tb.jit(lambda x: tb.lax.with_sharding_constraint(x * 2, rows).sum())
    >>> print(f(tnp.ones((4, 2))))
    16.0
    """
    flat, tree = flatten(x)
    wanted = flatten_axes(
        "with_sharding_constraint", tree, shardings, axes_name="shardings", full_name="x"
    )
    return tree.unflatten(
        [
            leaf if w is None else _placed(as_value(leaf), w)
            for leaf, w in zip(flat, wanted, strict=True)
        ]
    )


def _placed(value: Value, wanted: object) -> Any:
    """``value`` under what one leaf of the constraints says."""
    if not isinstance(wanted, Format):
        return _checked(value, wanted)
    placed = value if wanted.sharding is None else _checked(value, wanted.sharding)
    layout = wanted.layout
    return lax.with_layout_constraint(placed, layout) if isinstance(layout, Layout) else placed


def _checked(value: Value, wanted: object) -> Any:
    """``value`` with a constraint; where types say how it is split they have to say so.

    Raises:
        ShardingAssertionError: they say something else.
    """
    sharding = named_sharding("with_sharding_constraint", wanted)
    if not isinstance(sharding, NamedSharding):
        return _constrained(value, sharding)
    if not sharding.mesh.are_all_axes_explicit:
        return _constrained(value, _beside_type(value.aval, sharding))
    sharding.parts_of(value.aval.ndim)
    split = explicit_split(sharding, value.aval.ndim)
    if split is None is value.aval.split or (
        split is not None and value.aval.split is not None and split.spec == value.aval.split.spec
    ):
        return value
    raise ShardingAssertionError(
        f"with_sharding_constraint: the array is {value.aval.str_short()}, which is not split as "
        f"{sharding.spec}; over axes of the type Explicit a constraint is a check",
        hint="use tracebridge.sharding.reshard to change how an array is split, or make the mesh "
        "with axis_types=AxisType.Auto to leave it to the compiler",
    )


def _beside_type(aval: ShapedArray, sharding: NamedSharding) -> NamedSharding:
    """``sharding``, where the axes of type Explicit split as the type says, before the others."""
    split = aval.split
    if split is None or split.mesh.shape_tuple != sharding.mesh.shape_tuple:
        return sharding
    sharding.parts_of(aval.ndim)
    given = [*sharding.spec, *[None] * (aval.ndim - len(sharding.spec))]
    entries: list[Any] = []
    for own, entry in zip(split.spec, given, strict=True):
        names = entry_names(own)
        free = entry is PartitionSpec.UNCONSTRAINED
        others = [] if free else [n for n in entry_names(entry) if n not in names]
        entries.append(entry if not names else (*names, *others))
    return sharding.with_spec(PartitionSpec(*entries))


def _constrained(value: Value, wanted: object) -> Any:
    sharding = named_sharding("with_sharding_constraint", wanted)
    if type(sharding) is SingleDeviceSharding:
        return lax.device_put_p.bind(value, placement=sharding, source=None)
    sharding.parts_of(value.aval.ndim)
    if isinstance(sharding, NamedSharding) and _is_of_no_mesh(sharding):
        return value
    return sharding_constraint_p.bind(value, sharding=sharding)


def _is_of_no_mesh(sharding: NamedSharding) -> bool:
    """Whether it is the sharding in the type of an array where no mesh is in force."""
    mesh: Any = sharding.mesh  # or an abstract one
    return not mesh.axis_names and (type(mesh) is AbstractMesh or not mesh.size)


def _differ(mesh: Any, context: Any) -> bool:
    """Whether two meshes have other axes, or the same ones with other types."""
    pairs = mesh.shape_tuple, context.shape_tuple
    return pairs[0] != pairs[1] or mesh.axis_types != context.axis_types


def split_result(
    call: str, out_sharding: Any, fun: Callable[..., Any], *args: Any, **kw: Any
) -> Any:
    """``fun(*args, **kw)``, split as the argument ``out_sharding`` of the function ``call`` says.

    Raises:
        AxisSpecError: it names an axis whose type is not Explicit, or there is no mesh.
        ArgumentTypeError: it is neither a NamedSharding nor a PartitionSpec.
    """
    try:
        free, free_kw = unsplit_leaves((args, kw))
        return constrained_result(call, fun(*free, **free_kw), out_sharding)
    except Exception as error:
        hide_internal_frames(error)
        raise


def constrained_result(call: str, value: Operand, out_sharding: object) -> Any:
    """The array ``value``, split as ``out_sharding`` says."""
    if not isinstance(out_sharding, NamedSharding | PartitionSpec):
        msg = f"{call}: out_sharding is {out_sharding!r} of type {type(out_sharding).__name__}"
        raise ArgumentTypeError(msg, expected="a NamedSharding or a PartitionSpec")
    sharding = named_sharding(call, out_sharding)
    context = get_abstract_mesh()
    if not context.empty and not _is_of_no_mesh(sharding) and _differ(sharding.mesh, context):
        raise AxisSpecError(
            f"{call}: out_sharding is over {sharding.mesh.abstract_mesh}, but the mesh in force is "
            f"{context}",
            hint="give a PartitionSpec",
        )
    types = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True))
    for name in [name for entry in sharding.spec for name in entry_names(entry)]:
        if types[name] is not AxisType.Explicit:
            raise AxisSpecError(
                f"{call}: out_sharding is {sharding.spec}, and its axis {name!r} has the type "
                f"{types[name]}",
                expected="axes of the type Explicit",
                hint="use lax.with_sharding_constraint, or make the mesh with "
                "axis_types=AxisType.Explicit",
            )
    result = as_value(value)
    split = explicit_split(sharding, result.aval.ndim)
    if split is not None and not is_eager():  # devices take no others
        check_even(split, result.aval.shape)
    return _constrained(result, sharding)


def constrained_to(values: Sequence[Any], wanted: Sequence[NamedSharding | None]) -> list[Any]:
    """Values with constraints; those without a wish, and beyond the wishes, stay."""
    wishes = (*wanted, *[None] * len(values))[: len(values)]
    return [
        v if w is None else sharding_constraint_p.bind(v, sharding=w)
        for v, w in zip(values, wishes, strict=True)
    ]
