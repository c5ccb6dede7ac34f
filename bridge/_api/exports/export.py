"""export: a jitted function as a program that other processes run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from tracebridge._api.exports.checks import DisabledSafetyCheck
from tracebridge._api.exports.exported import Exported, described, input_names
from tracebridge._api.exports.gradients import pullback_of, types_of_pullback
from tracebridge._api.programs.jit import jit
from tracebridge.core._jaxlib.mlir import current_stablehlo_version, stablehlo_for_weeks
from tracebridge.core._jaxlib.xla import platform_of
from tracebridge.core.aot.stages import Traced, Wrapped, program_for_export
from tracebridge.core.dtypes.dtypes import float0, is_inexact
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.export.portable import portable_program, smaller_version
from tracebridge.core.export.spread import Spread, spread_of
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lowering.symbolic import has_symbolic_dims
from tracebridge.core.runtime.backends.clients import default_placement
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.tree.tree import PyTreeDef, flatten

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_PACKAGE = __name__.partition(".")[0]
MAXIMUM_VERSION = 10
"""Of the calling convention; the one that is written. Readers take all from ``MINIMUM_VERSION``."""
MINIMUM_VERSION = 9


def default_export_platform() -> str:
    """The platform that programs are exported for where nothing is said: that of this process.

    >>> import tracebridge as tb
    >>> tb.export.default_export_platform() in ("cpu", "cuda", "rocm", "tpu")
    True
    """
    return platform_of(default_placement().device)


@api_boundary
def export(
    fun_jit: Callable[..., Any],
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
) -> Callable[..., Exported]:
    """Turn a jitted function into StableHLO that other processes and libraries run.

    The program holds all arrays that the function closes over. Dense linear algebra is written in
    plain operations, because the library functions that ``jit`` calls are those of one process.

    Arguments or shardings over a mesh make it a program for as many devices: it is called with
    arguments that are spread over so many, of any mesh, and splits arguments and results as here.
    What is inside, such as ``with_sharding_constraint``, is left to the compiler then.

    Args:
        fun_jit: what ``jit`` returns, or a function of this library, such as ``numpy.sin``.
        platforms: what the program is for, of "cpu", "cuda", "rocm" and "tpu"; None is the
            platform of this process. With several the program chooses where it runs.
        disabled_checks: what is not checked, now and when the program is called.

    Returns:
        A function of arguments, or of ``ShapeDtypeStruct`` in their place, that gives the
        ``Exported``. Sizes may be symbolic: see ``symbolic_shape``.

    Raises:
        ArgumentSpecError: ``fun_jit`` is not a jitted function.
        ArgumentValueError: a platform is unknown.
        ExportError: the program calls Python or library functions of this process, or does not
            run on one of the platforms. Raised by the returned function.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> batch = tb.export.symbolic_shape("b, 3")
    >>> spec = tb.ShapeDtypeStruct(batch, "float32")
    >>> exported = tb.export.export(tb.jit(lambda x: x - x.mean(0)), platforms=["cpu", "tpu"])(spec)
    >>> exported.in_avals, exported.platforms
    ((ShapedArray(float32[b,3]),), ('cpu', 'tpu'))
    >>> exported.call(tnp.ones((2, 3))).shape
    (2, 3)
    """
    jitted: Any = fun_jit
    if not isinstance(jitted, Wrapped) and _is_of_the_library(fun_jit):
        jitted = jit(fun_jit)
    if not isinstance(jitted, Wrapped):
        raise ArgumentSpecError(
            f"export: got {shown(fun_jit)} of type {type(fun_jit).__name__}",
            expected="what jit returns",
            hint="tracebridge.export.export(tracebridge.jit(fun))",
        )
    wanted = _checked_platforms(platforms)
    checks = tuple(disabled_checks)

    @api_boundary
    def do_export(*args_specs: Any, **kwargs_specs: Any) -> Exported:
        traced = jitted.trace(*args_specs, **kwargs_specs)
        return _export(traced, wanted or (default_export_platform(),), checks)

    return do_export


def _is_of_the_library(fun: object) -> bool:
    """Whether ``fun`` is a function of this package: it is the same compiled or not."""
    module = getattr(fun, "__module__", None) or ""
    return isinstance(fun, FunctionType) and module.partition(".")[0] == _PACKAGE


def _checked_platforms(platforms: Sequence[str] | None) -> tuple[str, ...]:
    """Raise ArgumentValueError unless all of ``platforms`` are known."""
    if platforms is None:
        return ()
    names = (platforms,) if isinstance(platforms, str) else tuple(platforms)
    for name in names:
        if name not in PLATFORMS:
            raise ArgumentValueError(
                f"export: platforms={platforms!r} has {name!r}",
                expected="names of " + ", ".join([repr(p) for p in PLATFORMS]),
                hint="'cuda' or 'rocm' for a GPU",
            )
    if not names:
        raise ArgumentValueError("export: platforms is empty", expected="at least one, or None")
    return tuple(dict.fromkeys(names))


def _export(
    traced: Traced, platforms: tuple[str, ...], checks: tuple[DisabledSafetyCheck, ...]
) -> Exported:
    """A traced function as a program of its own."""
    name = traced.fun_name
    jaxpr, placement = program_for_export(traced)
    in_avals, out_avals = _types(traced.in_avals), _types(traced.out_avals)
    trees = traced.in_tree, traced.out_tree
    spread = None
    if placement is not None:
        wished = placement.out_shardings or (None,) * len(jaxpr.outs)
        outs = [
            _of_type(a, placement.mesh) if w is None else w
            for w, a in zip(wished, jaxpr.out_avals, strict=True)
        ]
        spread = spread_of(placement.mesh, placement.in_shardings, outs)
    return _exported(name, jaxpr, trees, (in_avals, out_avals), platforms, checks, spread)


def _of_type(aval: Any, mesh: Any) -> NamedSharding | None:
    """How the type of a result says that it is split, where all axes of the mesh are Explicit."""
    split = aval.split
    if split is None or not split.mesh.are_all_axes_explicit:
        return None
    return split if split.mesh.shape_tuple == mesh.shape_tuple else None


def _types(tree: Any) -> tuple[ShapedArray, ...]:
    """The leaves of a tree of avals. Float0 arrays in it are part of the structure."""
    return tuple([leaf for leaf in flatten(tree)[0] if isinstance(leaf, ShapedArray)])


def _spread_back(spread: Spread, jaxpr: Jaxpr) -> Spread:
    """How the pullback of ``jaxpr`` is split."""
    ins, outs = (
        [i for i, a in enumerate(avals) if is_inexact(a.dtype)]
        for avals in (jaxpr.in_avals, jaxpr.out_avals)
    )
    return spread.of_pullback(outs, ins)


def _exported(
    name: str,
    jaxpr: Jaxpr,
    trees: tuple[PyTreeDef, PyTreeDef],
    avals: tuple[tuple[ShapedArray, ...], tuple[ShapedArray, ...]],
    platforms: tuple[str, ...],
    checks: tuple[DisabledSafetyCheck, ...],
    spread: Spread | None = None,
) -> Exported:
    """``jaxpr``, which has the inputs and results that hold something, as a program of its own."""
    in_avals, out_avals = avals
    kept = tuple([i for i, a in enumerate(in_avals) if a.dtype != float0])
    names = input_names(trees[0])
    made = portable_program(
        jaxpr,
        name,
        target=smaller_version(current_stablehlo_version(), stablehlo_for_weeks()),
        names=[names[i] for i in kept],
        platforms=platforms,
        allowed=[t for t in [c.is_custom_call() for c in checks] if t is not None],
        located=True,
        embed_constants=True,
        spread=spread is not None,
    )
    if made.platforms != platforms:
        missing = [p for p in platforms if p not in made.platforms]
        raise ExportError(
            f"export of {name}: an operation of the program does not run on {', '.join(missing)}",
            hint=f"platforms={made.platforms!r}",
        )

    def get_vjp(primal: Exported) -> Exported:
        types = types_of_pullback(primal.in_avals, primal.out_avals)
        pull_trees = (
            flatten((tuple(range(len(types[0]))), {}))[1],
            flatten(tuple(range(len(types[1]))))[1],
        )
        pull_name = f"{name}_vjp"
        pull = pullback_of(jaxpr, pull_name)
        back = None if spread is None else _spread_back(spread, jaxpr)
        return _exported(pull_name, pull, pull_trees, types, platforms, checks, back)

    return Exported(
        fun_name=name,
        in_tree=trees[0],
        in_avals=in_avals,
        out_tree=trees[1],
        out_avals=out_avals,
        **described(spread, in_avals, out_avals),
        platforms=platforms,
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=checks,
        mlir_module_serialized=made.data,
        calling_convention_version=MAXIMUM_VERSION,
        module_kept_var_idx=kept,
        uses_global_constants=len(platforms) > 1 or has_symbolic_dims(jaxpr.in_avals),
        _get_vjp=get_vjp,
    )
