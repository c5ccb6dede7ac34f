"""Exported programs as bytes."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracebridge._api.exports.checks import DisabledSafetyCheck
from tracebridge._api.exports.export import MAXIMUM_VERSION, MINIMUM_VERSION
from tracebridge._api.exports.exported import Exported, described
from tracebridge._api.exports.trees import tree_from_json, tree_to_json
from tracebridge.core.dtypes.dtypes import as_dtype, float0
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.export.archive import damaged, pack_bytes, unpack_bytes
from tracebridge.core.export.spread import spread_from_json
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.prng.keys import KeyDType, key_dtype_of
from tracebridge.core.symbolic.dims import DimExpr
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape

_KIND = "exported"
_FILE = "deserialize"


def serialize(exported: Exported, vjp_order: int = 0) -> bytearray:
    """See ``Exported.serialize``."""
    order = operator.index(vjp_order)
    if order < 0:
        raise ArgumentValueError(f"serialize: vjp_order={vjp_order}", expected="0 or more")
    blocks: list[bytes] = []
    header = {
        "kind": _KIND,
        "tracebridge": importlib.import_module("tracebridge").__version__,
        "scope": _scope_to_json(exported.in_avals),
        "program": _to_json(exported, order, blocks),
    }
    return bytearray(pack_bytes(header, blocks))


def _to_json(exported: Exported, order: int, blocks: list[bytes]) -> dict[str, Any]:
    block = len(blocks)
    blocks.append(exported.mlir_module_serialized)
    return {
        "name": exported.fun_name,
        "in_tree": tree_to_json(exported.in_tree),
        "in": [_aval_to_json(a) for a in exported.in_avals],
        "out_tree": tree_to_json(exported.out_tree),
        "out": [_aval_to_json(a) for a in exported.out_avals],
        "platforms": exported.platforms,
        "checks": [str(c) for c in exported.disabled_safety_checks],
        "version": exported.calling_convention_version,
        "kept": exported.module_kept_var_idx,
        "refine": exported.uses_global_constants,
        "spread": exported.spread_to_json(),
        "block": block,
        "vjp": _to_json(exported.vjp(), order - 1, blocks) if order > 0 else None,
    }


def _aval_to_json(aval: ShapedArray) -> list[Any]:
    sizes = ",".join([str(d) for d in aval.shape])
    return [_dtype_to_text(aval.dtype), sizes, aval.weak_type]


def _dtype_to_text(dtype: Any) -> str:
    if isinstance(dtype, KeyDType):
        return f"key {dtype.implementation.name}"
    return "float0" if dtype == float0 else str(dtype.name)


def _scope_to_json(avals: Sequence[ShapedArray]) -> Any:
    scopes = [d.scope for a in avals for d in a.shape if isinstance(d, DimExpr)]
    if not scopes:
        return None
    scope: Any = scopes[0]
    return {"constraints": list(scope.constraints), "least": scope.least}


# reading -----------------------------------------------------------------------------------------


@api_boundary
def deserialize(blob: Any) -> Exported:
    """The program that ``Exported.serialize`` wrote, here or in another process.

    Nothing in it is executed by reading it. Calling it runs StableHLO, which reaches its arguments,
    and those library functions alone that it was allowed to call (``DisabledSafetyCheck``) and
    that ``ffi.register_ffi_target`` registered here.

    Args:
        blob: the bytes.

    Raises:
        ArgumentTypeError: ``blob`` is something else.
        ExportError: they are damaged, or were written by a later version; or a class of a
            structure is not registered in this process.

    >>> import tracebridge as tb
    >>> blob = tb.export.export(tb.jit(lambda x: {"twice": 2 * x}))(1.0).serialize()
    >>> tb.export.deserialize(blob).call(3.0)
    {'twice': Array(6., dtype=float32, weak_type=True)}
    """
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise ArgumentTypeError(
            f"{_FILE}: got an object of type {type(blob).__name__}",
            expected="bytes, such as Exported.serialize gives",
        )
    header, blocks = unpack_bytes(bytes(blob), _FILE)
    try:
        if header["kind"] != _KIND:
            raise damaged(_FILE, f"it holds {header['kind']!r}")
        wanted = header["scope"]
        scope = (
            SymbolicScope()
            if wanted is None
            else SymbolicScope(wanted["constraints"], least=wanted["least"])
        )
        return _from_json(header["program"], blocks, scope)
    except ExportError:
        raise
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise damaged(_FILE, "its parts do not fit") from error


def _from_json(saved: dict[str, Any], blocks: Sequence[bytes], scope: SymbolicScope) -> Exported:
    name, version = saved["name"], saved["version"]
    if not MINIMUM_VERSION <= version <= MAXIMUM_VERSION:
        raise ExportError(
            f"{name}: the saved program has the calling convention {version}",
            expected=f"{MINIMUM_VERSION} to {MAXIMUM_VERSION}",
            hint="install a newer tracebridge" if version > MAXIMUM_VERSION else "export it again",
        )
    in_avals = tuple([_aval(a, scope) for a in saved["in"]])
    out_avals = tuple([_aval(a, scope) for a in saved["out"]])
    vjp = None if saved["vjp"] is None else _from_json(saved["vjp"], blocks, scope)
    return Exported(
        fun_name=name,
        in_tree=tree_from_json(saved["in_tree"]),
        in_avals=in_avals,
        out_tree=tree_from_json(saved["out_tree"]),
        out_avals=out_avals,
        **described(spread_from_json(saved.get("spread")), in_avals, out_avals),
        platforms=tuple(saved["platforms"]),
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=tuple([DisabledSafetyCheck(c) for c in saved["checks"]]),
        mlir_module_serialized=blocks[saved["block"]],
        calling_convention_version=version,
        module_kept_var_idx=tuple(saved["kept"]),
        uses_global_constants=saved["refine"],
        _get_vjp=None if vjp is None else lambda _: vjp,
    )


def _aval(saved: Sequence[Any], scope: SymbolicScope) -> ShapedArray:
    text, sizes, weak = saved
    kind, _, generator = text.partition(" ")
    dtype: Any = np.dtype(float0) if text == "float0" else None
    if kind == "key":
        dtype = key_dtype_of(generator)
    return ShapedArray(symbolic_shape(sizes, scope=scope), dtype or as_dtype(text), weak)
