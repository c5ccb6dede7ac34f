"""Foreign functions: functions of C++ libraries as operations of programs.

A library exports handlers of XLA's typed FFI, made with the headers in ``include_dir()``. A handler
is registered under a name, by which ``ffi_call`` calls it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import ffi as _ffi
from tracebridge.core.control.callbacks.ffi import (
    TYPED_VERSION,
    LayoutOption,
    aliases_attribute,
    attribute_of,
    ffi_call,
    layouts_attribute,
)
from tracebridge.core.errors.filtering import shield
from tracebridge.core.mlir.attrs import array, boolean, dictionary, i32, string
from tracebridge.core.mlir.types import tensor_type
from tracebridge.core.sharding.layout import Layout

if TYPE_CHECKING:
    from tracebridge.core.compat.lowering import LoweringRuleContext

__all__ = [
    "build_ffi_lowering_function",
    "ffi_call",
    "ffi_lowering",
    "include_dir",
    "pycapsule",
    "register_ffi_target",
    "register_ffi_target_as_batch_partitionable",
    "register_ffi_type",
]


def include_dir() -> str:
    """The folder with the C++ headers of XLA's FFI, for the option ``-I`` of a compiler.

    >>> import os
    >>> import tracebridge as tb
    >>> os.path.exists(os.path.join(tb.ffi.include_dir(), "xla", "ffi", "api", "ffi.h"))
    True
    """
    return _ffi.include_dir()


def pycapsule(funcptr: Any) -> Any:
    """A capsule around a function of a library that ``ctypes`` loaded.

    Args:
        funcptr: attribute of a ``ctypes.CDLL``.

    >>> import ctypes
    >>> import tracebridge as tb
    >>> type(tb.ffi.pycapsule(ctypes.pythonapi.Py_IsInitialized)).__name__
    'PyCapsule'
    """
    return _ffi.make_capsule(funcptr)


def register_ffi_target(
    name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any
) -> None:
    """Make a foreign function known to the compiler.

    Args:
        name: by which programs call it; unique in the process.
        fn: a capsule with the handler, or a dict of capsules by the name of a stage
            ("instantiate", "prepare", "initialize", "execute").
        platform: the platform that it is for.
        api_version: 1 for handlers of the typed FFI, 0 for old targets.
        **kwargs: further arguments of jaxlib's ``register_custom_call_target``.

    >>> import tracebridge as tb
    >>> def register(library):
    ...     tb.ffi.register_ffi_target("rms_norm", tb.ffi.pycapsule(library.RmsNorm))
    """
    _ffi.register_target(name, fn, platform, api_version, **kwargs)


def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """Say that a target treats the elements of its first axis alone, so that XLA may split it.

    Args:
        name: as given to ``register_ffi_target``.

    >>> import tracebridge as tb
    >>> tb.ffi.register_ffi_target_as_batch_partitionable("rms_norm")
    """
    _ffi.register_as_batch_partitionable(name)


def register_ffi_type(name: str, type_registration: Any, platform: str = "cpu") -> None:
    """Make a type known of which handlers keep state.

    Args:
        name: unique in the process.
        type_registration: dict of capsules: "type_id", and "type_info" where it has state.
        platform: the platform that it is for.

    >>> import tracebridge as tb
    >>> def register(library):
    ...     tb.ffi.register_ffi_type("counter", library.type_registration())
    """
    _ffi.register_type(name, type_registration, platform)


def build_ffi_lowering_function(
    call_target_name: str,
    *,
    operand_layouts: Sequence[LayoutOption] | None = None,
    result_layouts: Sequence[LayoutOption] | None = None,
    backend_config: Mapping[str, Any] | str | None = None,
    skip_ffi_layout_processing: bool = False,
    **lowering_args: Any,
) -> Callable[..., Any]:
    """A function that emits a call of a target, for rules of ``interpreters.mlir``.

    Args:
        call_target_name: as given to ``register_ffi_target``.
        operand_layouts: for each operand None (row-major), a ``Layout``, or its axes from minor to
            major, as XLA orders them.
        result_layouts: likewise for the results.
        backend_config: attributes of every call, or the text for an old target.
        skip_ffi_layout_processing: leave the layouts to the compiler.
        **lowering_args: ``result_types`` (MLIR types instead of those of the equation),
            ``has_side_effect``, ``api_version``, ``operand_output_aliases`` (a dict), and
            ``extra_attributes`` of the operation.

    Returns:
        ``emit(ctx, *operands, **attributes)``, which gives the operation.

    >>> import tracebridge as tb
    >>> emit = tb.ffi.build_ffi_lowering_function("my_target", has_side_effect=True)
    """

    def emit(ctx: LoweringRuleContext, *operands: Any, **attributes: Any) -> Any:
        emit_args = dict(lowering_args)
        version = emit_args.pop("api_version", TYPED_VERSION)
        types = emit_args.pop("result_types", None) or [tensor_type(a) for a in ctx.avals_out]
        aliases = emit_args.pop("operand_output_aliases", None) or {}
        extra = emit_args.pop("extra_attributes", None) or {}
        config: Any = backend_config
        if not isinstance(config, str):
            merged = {**(config or {}), **attributes}
            config = dictionary({k: attribute_of(v) for k, v in merged.items()})
        else:
            config = string(config)
        options: dict[str, Any] = {
            "call_target_name": string(call_target_name),
            "has_side_effect": boolean(bool(emit_args.pop("has_side_effect", False))),
            "api_version": i32(version),
            "backend_config": config,
            "output_operand_aliases": aliases_attribute(sorted(aliases.items()), len(types)),
            "called_computations": array([]),
            **extra,
            **emit_args,
        }
        if not skip_ffi_layout_processing:
            ins, outs = ctx.avals_in, ctx.avals_out
            options["operand_layouts"] = layouts_attribute(_minor_to_major(operand_layouts, ins))
            options["result_layouts"] = layouts_attribute(_minor_to_major(result_layouts, outs))
        return ctx.builder.create(
            "stablehlo.custom_call", results=types, operands=list(operands), attributes=options
        )

    return emit


def ffi_lowering(
    call_target_name: str,
    *,
    operand_layouts: Sequence[LayoutOption] | None = None,
    result_layouts: Sequence[LayoutOption] | None = None,
    backend_config: Mapping[str, Any] | str | None = None,
    skip_ffi_layout_processing: bool = False,
    **lowering_args: Any,
) -> Callable[..., Any]:
    """A lowering rule that calls a target; arguments as of ``build_ffi_lowering_function``.

    Returns:
        A rule for ``interpreters.mlir.register_lowering``. The parameters of the primitive are
        attributes of the call.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> norm_p = tb.extend.core.Primitive("rms_norm")
    >>> mlir.register_lowering(norm_p, tb.ffi.ffi_lowering("rms_norm"), platform="cpu")
    """
    emit = build_ffi_lowering_function(
        call_target_name,
        operand_layouts=operand_layouts,
        result_layouts=result_layouts,
        backend_config=backend_config,
        skip_ffi_layout_processing=skip_ffi_layout_processing,
        **lowering_args,
    )

    def rule(ctx: LoweringRuleContext, *operands: Any, **params: Any) -> list[Any]:
        return list(emit(ctx, *operands, **params).results)

    return rule


def _minor_to_major(
    layouts_or_none: Sequence[LayoutOption] | None, avals: Sequence[Any]
) -> list[Any]:
    layouts: Any = [None] * len(avals) if layouts_or_none is None else layouts_or_none
    found: list[Any] = []
    for layout, aval in zip(layouts, avals, strict=True):
        if layout is None:
            found.append(range(aval.ndim - 1, -1, -1))
        elif isinstance(layout, Layout):
            found.append(layout.major_to_minor[::-1])
        else:
            found.append(layout)
    return found


shield(globals(), __name__)

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> Any:
        raise importlib.import_module("tracebridge._api.programs.missing").missing(__name__, name)
