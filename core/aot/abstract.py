"""Avals of arguments that need not be arrays: ShapeDtypeStruct and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.config.values import mesh_in_force
from tracebridge.core.control.calls.traced_call import Arguments, argument_names
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.shown import attribute, shown
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.float0 import has_float0
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.ir.typeof import as_value, converter_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.signature import Signature, signature
from tracebridge.core.sharding.abstract_mesh import AbstractMesh
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding

if TYPE_CHECKING:
    from tracebridge.core.sharding.single_device import SingleDeviceSharding


def aval_of(x: Any) -> ShapedArray:
    """The aval of an argument, without a transfer to the device.

    Besides arrays, tracers and numbers takes any object with ``shape`` and ``dtype``.

    Raises:
        UnsupportedDtypeError: ``x`` is none of them.
    """
    kind = type(x)
    if kind is ShapeDtypeStruct:
        return x.to_aval()
    if kind is ShapedArray and canonicalize(x.dtype) == x.dtype:
        return x  # how it is divided is a part of it
    aval = attribute(x, "aval") if hasattr(kind, "aval") else None
    if isinstance(aval, ShapedArray):
        return aval
    if kind is not np.ndarray and (
        converter_of(kind) is not None or not (hasattr(x, "shape") and hasattr(x, "dtype"))
    ):
        return as_value(x).aval
    return ShapedArray(x.shape, canonicalize(x.dtype), bool(getattr(x, "weak_type", False)))


def avals_of(call: str, args: Arguments) -> tuple[ShapedArray, ...]:
    """The avals of flat arguments, float0 arrays left out; names the one that is no array."""
    if has_float0(args.leaves):
        args.hide_float0()
    avals: list[ShapedArray] = []
    for i, leaf in enumerate(args.leaves):
        try:
            avals.append(aval_of(leaf))
        except UnsupportedDtypeError as error:
            name = argument_names(args.tree, args.parameters)[i]
            raise UnsupportedDtypeError(
                f"{call}: argument {name} is {shown(leaf)} of type {type(leaf).__name__}; "
                "expected arrays, numbers, and trees of them",
                hint=way_out_of(
                    leaf, "mark it static (static_argnums, static_argnames) if it is a constant"
                ),
            ) from error
    return tuple(avals)


def signature_of(leaf: object, aval: ShapedArray, fallback: SingleDeviceSharding) -> Signature:
    """Where an argument lives: an array's own signature, the sharding of a stand-in."""
    if type(leaf) is Array:
        return leaf._sig
    if type(leaf) is Signature:
        return leaf
    sharding = _place_of(leaf.sharding) if type(leaf) is ShapeDtypeStruct else None
    if sharding is None:
        return signature(aval, fallback, False)
    return signature(aval, sharding, True)


def _place_of(sharding: Any) -> Any:
    """A sharding over devices: of an abstract mesh that of the mesh in force, if it is that one."""
    given: object = getattr(sharding, "mesh", None)
    if type(given) is not AbstractMesh:
        return sharding
    mesh = mesh_in_force()
    if type(mesh) is Mesh and mesh.abstract_mesh == given:
        return NamedSharding(mesh, sharding.spec)
    return None


def stand_in(leaf: object, aval: ShapedArray) -> Any:
    """What ``signature_of`` needs of an argument, without its memory."""
    if type(leaf) is Array:
        return leaf._sig
    return leaf if type(leaf) is ShapeDtypeStruct else aval
