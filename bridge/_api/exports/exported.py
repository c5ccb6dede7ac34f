"""Exported: a program that left its process, or is about to, as a function."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, final

import tracebridge.core.ir.pretty  # pyright: ignore[reportUnusedImport]  # noqa: F401 - Jaxprs print by it
from tracebridge._api.custom.custom_vjp import custom_vjp
from tracebridge._api.exports.checks import DisabledSafetyCheck
from tracebridge._api.programs.jit import jit
from tracebridge.core._jaxlib import mlir
from tracebridge.core.dtypes.dtypes import float0, is_inexact
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.export.called import Artifact, exported_call_p
from tracebridge.core.export.spread import Spread
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.float0 import has_float0, hide_float0
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import float0_of
from tracebridge.core.mlir.context import building, mlir_context
from tracebridge.core.symbolic.dims import DimExpr
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.prefix import equality_errors_of_structures
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.tree.treedefs import leaf_paths
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.export")
@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Exported:
    """A function as StableHLO: what ``export`` and ``deserialize`` give.

    Attributes:
        fun_name: the name of the function.
        in_tree: structure of ``(args, kwargs)``, static arguments left out.
        in_avals: shapes and dtypes of the flat arguments; sizes may be symbolic.
        out_tree: structure of the result.
        out_avals: shapes and dtypes of the flat results, whose sizes follow from the arguments'.
        in_shardings_hlo: how each argument is split, as XLA says it; None where nothing is said.
        out_shardings_hlo: likewise for each result.
        nr_devices: how many devices the program runs on.
        platforms: those that it runs on.
        ordered_effects: empty; programs with callbacks are not exported.
        unordered_effects: empty.
        disabled_safety_checks: what was not checked.
        mlir_module_serialized: the program, as a portable artifact of StableHLO.
        calling_convention_version: says what main takes: the number of the platform as ``i32`` if
            there are several, then the arguments of ``module_kept_var_idx``.
        module_kept_var_idx: positions of the flat arguments that main takes; ``float0`` arrays
            are not among them.
        uses_global_constants: whether the program is to be refined before it is compiled: it has
            symbolic sizes or several platforms.

    >>> import tracebridge as tb
    >>> exported = tb.export.export(tb.jit(tb.numpy.sin))(1.0)
    >>> exported
    Exported(fun_name=sin, in_avals=(f32[],), out_avals=(f32[],), platforms=('cpu',))
    >>> print(tb.export.deserialize(exported.serialize()).call(0.5))
    0.47942555
    """

    fun_name: str
    in_tree: PyTreeDef
    in_avals: tuple[ShapedArray, ...]
    out_tree: PyTreeDef
    out_avals: tuple[ShapedArray, ...]
    in_shardings_hlo: tuple[Any, ...]
    out_shardings_hlo: tuple[Any, ...]
    nr_devices: int
    platforms: tuple[str, ...]
    ordered_effects: tuple[Any, ...]
    unordered_effects: tuple[Any, ...]
    disabled_safety_checks: Sequence[DisabledSafetyCheck]
    mlir_module_serialized: bytes
    calling_convention_version: int
    module_kept_var_idx: tuple[int, ...]
    uses_global_constants: bool
    _get_vjp: Callable[[Exported], Exported] | None
    _spread: Spread | None = None

    @api_boundary
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, compiled for the sizes of the arguments.

        It can be part of traced code: of ``jit``, ``vmap``, reverse-mode derivatives (those that
        it was exported or saved with), and of another export.

        Args:
            *args: the arguments that the function was exported for, static ones left out.
            **kwargs: likewise.

        Returns:
            A tree like the result of the function.

        Raises:
            ShapeMismatchError: other arguments than the program is for.
            ExportError: the program is not for this platform, or this jaxlib cannot read it.

        >>> import tracebridge as tb
        >>> import tracebridge.numpy as tnp
        >>> (n,) = tb.export.symbolic_shape("n")
        >>> exported = tb.export.export(tb.jit(tnp.sum))(tb.ShapeDtypeStruct((n,), "float32"))
        >>> print(exported.call(tnp.arange(3.0)), exported.call(tnp.ones(5)))
        3.0 5.0
        >>> print(tb.grad(exported.call)(tnp.ones(2)))
        [1. 1.]
        """
        values = self._checked(args, kwargs)
        found = iter(self._function(*values))
        types = [v.aval for v in values]
        outs = [
            float0_of(self._artifact.shape(a.shape, types)) if a.dtype == float0 else next(found)
            for a in self.out_avals
        ]
        return self.out_tree.unflatten(outs)

    def has_vjp(self) -> bool:
        """Whether the program can be differentiated, in reverse mode."""
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The program of the pullback, of the flat arguments and the cotangents of the results.

        It gives a tuple with one cotangent per argument; those of integers are ``float0``.

        Raises:
            ExportError: it was saved without.

        >>> import tracebridge as tb
        >>> exported = tb.export.export(tb.jit(lambda x, y: x * y))(2.0, 3.0)
        >>> print(*exported.vjp().call(2.0, 3.0, 1.0))
        3.0 2.0
        """
        return self._pullback

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The program as bytes, which ``deserialize`` reads in any process.

        Args:
            vjp_order: how many orders of derivatives, in reverse mode, are saved with it.

        Raises:
            ExportError: a structure has nodes that are not registered for it, or there are fewer
                derivatives.

        >>> import tracebridge as tb
        >>> exported = tb.export.export(tb.jit(lambda x: x**3))(1.0)
        >>> blob = exported.serialize(vjp_order=2)
        >>> f = tb.export.deserialize(blob).call
        >>> print(tb.grad(f)(2.0), tb.grad(tb.grad(f))(2.0))
        12.0 12.0
        """
        # It makes objects of this class, and so is above it.
        writer = importlib.import_module("tracebridge._api.exports.serialization")
        made: bytearray = writer.serialize(self, vjp_order)
        return made

    def mlir_module(self, serialized: bool = True) -> Any:
        """The program as text of StableHLO; with ``serialized=False`` as a module of jaxlib.

        >>> import tracebridge as tb
        >>> exported = tb.export.export(tb.jit(tb.lax.sin))(1.0)
        >>> 'stablehlo.sine' in exported.mlir_module()
        True
        """
        if not serialized:
            return mlir.deserialize_portable_artifact(self.mlir_module_serialized, mlir_context())
        with building():
            context = mlir_context()
            return str(mlir.deserialize_portable_artifact(self.mlir_module_serialized, context))

    def in_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """The shardings of the arguments on ``mesh``, of as many devices; None as above.

        Raises:
            ExportError: the program is for another number of devices.
        """
        return self._over(mesh, self.in_avals, None if self._spread is None else self._spread.ins)

    def out_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """The shardings of the results on ``mesh``, likewise."""
        return self._over(mesh, self.out_avals, None if self._spread is None else self._spread.outs)

    def spread_to_json(self) -> Any:
        """What files say of devices; None where it is a program for one."""
        return None if self._spread is None else self._spread.to_json()

    def _over(self, mesh: Any, avals: Sequence[ShapedArray], specs: Any) -> tuple[Any, ...]:
        spread = self._spread
        if spread is None:
            return (None,) * len(avals)
        if mesh.size != spread.n_devices:
            msg = f"{self.fun_name}: the program was exported for {spread.n_devices} devices"
            raise ExportError(f"{msg}, and {mesh} has {mesh.size}")
        found = iter(specs)
        return tuple(
            [None if a.dtype == float0 else spread.over(mesh, next(found), a.ndim) for a in avals]
        )

    def __repr__(self) -> str:
        ins, outs = (", ".join([a.str_short() for a in x]) for x in (self.in_avals, self.out_avals))
        ins += "," * (len(self.in_avals) == 1)
        outs += "," * (len(self.out_avals) == 1)
        return (
            f"Exported(fun_name={self.fun_name}, in_avals=({ins}), out_avals=({outs}), "
            f"platforms={self.platforms})"
        )

    # calls ---------------------------------------------------------------------------------------

    @functools.cached_property
    def _artifact(self) -> Artifact:
        checks = self.disabled_safety_checks
        sizes = [d for a in self.in_avals for d in a.shape if isinstance(d, DimExpr)]
        return Artifact(
            self.fun_name,
            self.mlir_module_serialized,
            [self.in_avals[i] for i in self.module_kept_var_idx],
            [a for a in self.out_avals if a.dtype != float0],
            self.platforms,
            least=getattr(sizes[0].scope, "least", 1) if sizes else 1,
            allowed=[t for t in [c.is_custom_call() for c in checks] if t is not None],
            checks_platform=DisabledSafetyCheck.platform() not in checks,
            spread=self._spread,
        )

    @functools.cached_property
    def _function(self) -> Callable[..., list[Any]]:
        """The program on the arguments that main takes, with its derivative."""
        artifact = self._artifact

        def call(*xs: Any) -> list[Any]:
            return list(exported_call_p.bind(*xs, artifact=artifact))

        call.__name__ = call.__qualname__ = self.fun_name
        ruled = custom_vjp(call)
        ruled.defvjp(lambda *xs: (ruled(*xs), xs), self._pulled_back)
        return jit(ruled)

    def _pulled_back(self, xs: Sequence[Any], cts: Sequence[Any]) -> tuple[Any, ...]:
        given = [ct for ct, a in zip(cts, self._artifact.out_avals, strict=True) if _moves(a)]
        found = iter(self._pullback._function(*xs, *given))  # noqa: SLF001 - of this class
        return tuple([next(found) if _moves(a) else None for a in self._artifact.in_avals])

    @functools.cached_property
    def _pullback(self) -> Exported:
        if self._get_vjp is None:
            raise ExportError(
                f"{self.fun_name}: the exported program has no derivative of this order",
                hint="save it with serialize(vjp_order=n) to differentiate it n times",
            )
        return self._get_vjp(self)

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments that main takes, as values.

        Raises:
            ShapeMismatchError: they have another structure, other dtypes or ranks.
        """
        leaves, tree = flatten((args, kwargs))
        if tree != self.in_tree and has_float0(leaves):
            leaves, tree = hide_float0(leaves, tree)
        if tree != self.in_tree:
            found = equality_errors_of_structures(tree, self.in_tree)
            text = "; ".join([d.describe("given", "exported") for d in found[:3]])
            raise ShapeMismatchError(
                f"{self.fun_name}: the arguments (args, kwargs) of the exported program have "
                f"another structure: {text}",
                hint="leave static arguments out; give the others as where it was exported",
            )
        values = {i: as_value(leaves[i]) for i in self.module_kept_var_idx}
        for i, value in values.items():
            aval, wanted = value.aval, self.in_avals[i]
            what = _difference(aval, wanted, lambda i=i: input_names(self.in_tree)[i])
            if what:
                raise ShapeMismatchError(
                    f"{self.fun_name}: {what}, got {aval.str_short()}",
                    expected=f"{wanted.str_short()}, as the program was exported",
                    hint="convert it, or export the function for these arguments too",
                )
        return list(values.values())


def described(
    spread: Spread | None, in_avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray]
) -> dict[str, Any]:
    """The fields of an ``Exported`` that say how it is split over devices."""

    def hlo(specs: Any, avals: Sequence[ShapedArray]) -> tuple[Any, ...]:
        if spread is None:
            return (None,) * len(avals)
        found = iter(specs)
        return tuple(
            [None if a.dtype == float0 else spread.hlo(next(found), a.ndim) for a in avals]
        )

    return {
        "in_shardings_hlo": hlo(None if spread is None else spread.ins, in_avals),
        "out_shardings_hlo": hlo(None if spread is None else spread.outs, out_avals),
        "nr_devices": 1 if spread is None else spread.n_devices,
        "_spread": spread,
    }


def _difference(aval: ShapedArray, wanted: ShapedArray, name: Callable[[], str]) -> str:
    """In what an argument differs from what a program is for, whatever its sizes stand for."""
    if aval.dtype != wanted.dtype:
        return f"Dtype mismatch for {name()}"
    if aval.ndim != wanted.ndim:
        return f"Rank mismatch for {name()}"
    for axis, (d, w) in enumerate(zip(aval.shape, wanted.shape, strict=True)):
        if type(w) is int and d != w:
            return f"Shape mismatch for {name()}.shape[{axis}]"
    return ""


def _moves(aval: ShapedArray) -> bool:
    """Whether an array of this type has tangents."""
    return is_inexact(aval.dtype)


def input_names(in_tree: PyTreeDef) -> list[str]:
    """What messages call the flat arguments: ``args[0]['w']``, ``kwargs['x']``."""
    return [_name(path) for path in leaf_paths(in_tree)]


def _name(path: Sequence[Any]) -> str:
    index = getattr(path[0], "idx", None)
    if index is None:  # a class of the structure takes no placeholders
        return "argument " + keystr(path)
    return ("args", "kwargs")[index] + keystr(path[1:])
