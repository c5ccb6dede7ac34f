"""MLIR: the Python bindings, the dialects, one kind of context, portable artifacts.

The bindings cost 10 to 40 ms to import, so the names `ir`, `stablehlo`, `func`, `chlo`, `sdy`,
`mhlo` and `jax_mlir_ext` are loaded at first access (PEP 562) and are plain module attributes
afterwards. Write `from tracebridge.core._jaxlib import mlir` and `mlir.ir`;
`from ... import ir` loads them at once.

Never leave a context or a location entered at module level: an exception at interpreter exit
would then abort the process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import pkgutil
from typing import TYPE_CHECKING, Any

from jaxlib import _jax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext as jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, func, mhlo, sdy, stablehlo

    IrValue = ir.Value
    """A value of MLIR, for annotations: a result of an operation or an argument of a block."""

__all__ = [
    "TracebackToLocationCache",
    "chlo",
    "current_stablehlo_version",
    "deserialize_portable_artifact",
    "dialect",
    "expand_chlo",
    "func",
    "hlo_to_stablehlo",
    "ir",
    "jax_mlir_ext",
    "make_context",
    "mhlo",
    "minimum_version",
    "module_to_bytecode",
    "parse_module",
    "refine_polymorphic_shapes",
    "sdy",
    "serialize_portable_artifact",
    "stablehlo",
    "stablehlo_for_weeks",
    "stablehlo_to_hlo",
]

# Of the dialects only the C++ part: it registers them and has their attributes. The Python part
# beside it is thousands of lines of generated operation classes.
_LAZY = {
    "ir": "jaxlib.mlir.ir",
    "stablehlo": "jaxlib.mlir._mlir_libs._stablehlo",
    "func": "jaxlib.mlir.dialects.func",
    "chlo": "jaxlib.mlir._mlir_libs._chlo",
    "sdy": "jaxlib.mlir._mlir_libs._sdy",
    "mhlo": "jaxlib.mlir._mlir_libs._mlirHlo",
    "jax_mlir_ext": "jaxlib.mlir._mlir_libs._jax_mlir_ext",
    "passmanager": "jaxlib.mlir.passmanager",
}


def __getattr__(name: str) -> Any:
    """Load a binding at its first access and keep it as an ordinary attribute."""
    if name in _LAZY:
        value = importlib.import_module(_LAZY[name])
    elif name == "TracebackToLocationCache":
        value = _load("jax_mlir_ext").TracebackToLocationCache
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _load(name: str) -> Any:
    """Return a lazy binding from inside this module, where a bare name would be a NameError."""
    found = globals().get(name)
    return __getattr__(name) if found is None else found


def dialect(name: str) -> Any:
    """The Python part of a dialect, with a class for each operation.

    Raises:
        AttributeError: jaxlib has no such dialect.
    """
    try:
        return importlib.import_module(f"jaxlib.mlir.dialects.{name}")
    except ModuleNotFoundError as error:
        msg = f"jaxlib has no MLIR dialect {name!r}"
        raise AttributeError(msg) from error


def dialect_names() -> list[str]:
    """The dialects of which jaxlib has the Python part."""
    modules = pkgutil.iter_modules(importlib.import_module("jaxlib.mlir.dialects").__path__)
    return sorted(module.name for module in modules if module.name[0] != "_")


@contextlib.contextmanager
def no_dialect_classes() -> Iterator[None]:
    """A block in which attributes and operations do not load the Python part of their dialect.

    The bindings import it at the first attribute of a dialect, to show it as the class that the
    dialect has for it: 15 ms for StableHLO, in the first program of a process. Who builds modules
    needs no such classes; who reads them gets them after the block.
    """
    places = _mlir_globals()
    modules = getattr(places, "dialect_search_modules", None)
    if modules is None:  # bindings of another version: slower, and nothing else
        yield
        return
    places.dialect_search_modules = []
    try:
        yield
    finally:
        places.dialect_search_modules = modules


def _mlir_globals() -> Any:
    return importlib.import_module("jaxlib.mlir._mlir_libs._mlir").globals


def make_context() -> ir.Context:
    """Return a new MLIR context that knows StableHLO, CHLO, MHLO, Shardy and func.

    3 to 10 ms: make one and keep it. Threading is off (a thread pool per context costs more than
    our modules gain), and unregistered dialects are rejected.
    """
    bindings = _load("ir")
    # The Python subclass of Context loads every dialect of the build in its constructor; the C++
    # class below it loads none.
    cpp_context: type[ir.Context] = bindings.Context.__mro__[1]
    context = cpp_context()
    registry = bindings.DialectRegistry()
    _load("jax_mlir_ext").register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    _load("sdy").register_dialect(context)
    _load("mhlo").register_mhlo_dialect(context)
    _load("chlo").register_dialect(context)
    _load("stablehlo").register_dialect(context)
    context.enable_multithreading(False)
    return context


def parse_module(source: bytes | str, context: ir.Context) -> ir.Module:
    """Parse bytecode or text into a module of `context`."""
    return _load("ir").Module.parse(source, context=context)


def module_to_bytecode(module: ir.Module, target_version: int | None = None) -> bytes:
    """Return the MLIR bytecode of a module; only the same jaxlib is sure to read it."""
    out = io.BytesIO()
    module.operation.write_bytecode(file=out, desired_version=target_version)
    return out.getvalue()


def current_stablehlo_version() -> str:
    """Return the StableHLO version of the installed jaxlib, e.g. '1.17.0'."""
    return _load("stablehlo").get_current_version()


def stablehlo_for_weeks() -> str:
    """Return the StableHLO version that consumers of the last twelve weeks read."""
    bindings = _load("stablehlo")
    try:
        weeks = bindings.StablehloCompatibilityRequirement.WEEK_12
        return bindings.get_version_from_compatibility_requirement(weeks)
    except AttributeError:  # bindings of another version
        return bindings.get_current_version()


def minimum_version() -> str:
    """Return the oldest StableHLO version that portable artifacts can be written for."""
    return _load("stablehlo").get_minimum_version()


def serialize_portable_artifact(
    module: ir.Module | bytes, target: str | None = None, *, mixed: bool = False
) -> bytes:
    """Return bytes that any StableHLO consumer of version `target` or later reads.

    `mixed` allows ops of other dialects (Shardy) beside StableHLO.
    """
    version = current_stablehlo_version() if target is None else target
    return _jax.mlir.serialize_portable_artifact(module, version, mixed)


def deserialize_portable_artifact(data: bytes, context: ir.Context) -> ir.Module:
    """Return the module of a portable artifact, in `context`."""
    return _jax.mlir.deserialize_portable_artifact(data, context)


@functools.cache
def _register_passes() -> None:
    _load("stablehlo").register_stablehlo_passes()


def expand_chlo(module: ir.Module) -> None:
    """Replace CHLO operations by StableHLO ones. The context of `module` must be entered.

    Serialization would make composites of them, whose bodies keep dynamic shapes when the shapes
    of the module are refined.
    """
    _register_passes()
    passes = "chlo-legalize-to-stablehlo,shape-legalize-to-stablehlo"
    pipeline = f"builtin.module(func.func({passes}))"
    _load("passmanager").PassManager.parse(pipeline).run(module.operation)


def hlo_to_stablehlo(computation: bytes) -> bytes:
    """Return the StableHLO bytecode of a serialised HLO module proto."""
    return _jax.mlir.hlo_to_stablehlo(computation)


def stablehlo_to_hlo(module: bytes, *, tuple_args: bool = False, return_tuple: bool = False) -> Any:
    """Return the `XlaComputation` of StableHLO bytecode: HLO before XLA's passes."""
    return _jax.mlir.mlir_module_to_xla_computation(module, tuple_args, return_tuple)


def refine_polymorphic_shapes(
    module: bytes,
    *,
    enable_shape_assertions: bool = True,
    validate_static_shapes: bool = True,
    enable_shardy: bool = False,
) -> bytes:
    """Return the module with all shapes static; its `main` must have static argument shapes."""
    return _jax.mlir.refine_polymorphic_shapes(
        module, enable_shape_assertions, validate_static_shapes, enable_shardy
    )


if TYPE_CHECKING:

    class TracebackToLocationCache:
        """Convert stored `Traceback` objects to MLIR locations, with a cache for each frame."""

        def __init__(
            self,
            code_to_filename: Callable[[Any], str | None],
            frame_limit: int,
            context: ir.Context | None = None,
        ) -> None: ...

        def get(self, traceback: Any, /) -> ir.Location: ...
