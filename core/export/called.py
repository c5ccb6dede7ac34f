"""exported_call: a program of another process, as an operation of this one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core._jaxlib import ffi, mlir
from tracebridge.core.control.callbacks.base import in_sequence
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.export.portable import PLATFORM, PORTABLE_TARGETS, custom_call_targets
from tracebridge.core.export.spread import Spread
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import mesh_of_types
from tracebridge.core.mlir.attrs import string
from tracebridge.core.mlir.builders import Builder
from tracebridge.core.mlir.context import mlir_context
from tracebridge.core.mlir.types import is_static, tensor_type
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.splits import explicit_split
from tracebridge.core.symbolic.evaluate import DimOps, dims_evaluate
from tracebridge.core.symbolic.solve import Solution, size_name, solve_dim_variables

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@final
class Artifact:
    """A portable program that was read from somewhere.

    ``data``: serialised StableHLO, whose main takes the number of the platform (if there are
    several ``platforms``), ``n_constants`` arrays, and the inputs. ``in_avals`` are those of the
    arrays and the inputs, ``least`` is what each dimension variable in them is at least, ``order``
    how many orders of derivatives were saved. ``allowed`` are custom calls that may be in it
    besides those that every process knows. Without ``checks_platform`` it runs anywhere.
    ``spread`` is how it is split over devices, if it is for several.
    """

    __slots__ = ("allowed", "checks_platform", "data", "in_avals", "least", "n_constants", "name",
                 "order", "out_avals", "platforms", "solution", "spread")  # fmt: skip

    def __init__(
        self,
        name: str,
        data: bytes,
        in_avals: Sequence[ShapedArray],
        out_avals: Sequence[ShapedArray],
        platforms: Sequence[str] = (),
        n_constants: int = 0,
        least: int = 1,
        order: int = 1,
        allowed: Collection[str] = (),
        checks_platform: bool = True,
        spread: Spread | None = None,
    ) -> None:
        self.allowed = frozenset(allowed)
        self.spread = spread
        self.checks_platform = checks_platform
        self.name = name
        self.data = data
        self.in_avals = tuple(in_avals)
        self.out_avals = tuple(out_avals)
        self.platforms = tuple(platforms)
        self.n_constants = n_constants
        self.least = least
        self.order = order
        self.solution: Solution = solve_dim_variables([a.shape for a in self.in_avals])

    def __repr__(self) -> str:
        return f"<program {self.name} of {len(self.data)} bytes>"

    def is_static(self) -> bool:
        """Whether it is for one size only."""
        return not self.solution.sources

    def results(self, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
        """Types of the results for inputs of these types, whose sizes may be variables.

        Raises:
            ShapeMismatchError: the program is not for inputs of these types.
        """
        wanted = self.in_avals
        fits = len(avals) == len(wanted) and all(
            [a.dtype == w.dtype and a.ndim == w.ndim for a, w in zip(avals, wanted, strict=False)]
        )
        env: dict[str, Any] = {}
        if fits:
            env = self._env(avals)
            fits = all([env[name] >= self.least for name in self.solution.sources]) and all(
                [a.shape == _at(w.shape, env) for a, w in zip(avals, wanted, strict=True)]
            )
        if not fits:
            raise self._mismatch(avals)
        return [a.update(shape=_at(a.shape, env)) for a in self.out_avals]

    def shape(self, shape: Sequence[Any], avals: Sequence[ShapedArray]) -> tuple[Any, ...]:
        """A shape in dimension variables of the program, for inputs of these types."""
        return _at(shape, self._env(avals))

    def _env(self, avals: Sequence[ShapedArray]) -> dict[str, Any]:
        sizes = {
            size_name(i, axis): d for i, a in enumerate(avals) for axis, d in enumerate(a.shape)
        }
        return self.solution.bind(sizes, DimOps)

    def _mismatch(self, avals: Sequence[ShapedArray], why: str = "") -> ShapeMismatchError:
        n = self.n_constants
        wanted, got = (", ".join([a.str_short() for a in x[n:]]) for x in (self.in_avals, avals))
        least = "" if self.is_static() else f", sizes of at least {self.least}"
        because = f": {why}" if why else ""
        return ShapeMismatchError(
            f"{self.name}: the saved program is called with ({got}){because}",
            expected=f"({wanted}){least}, as it was exported",
            hint="export the function for these types; sizes that vary are given as dynamic shapes",
        )

    def number_of(self, platform: str, hint: str = "") -> int:
        """The number that main is told on a platform.

        Raises:
            ExportError: the program is not for it.
        """
        platform = "cuda" if platform == "gpu" else platform  # what devices of CUDA call themselves
        if platform in self.platforms:
            return self.platforms.index(platform)
        if not self.checks_platform:
            return 0
        what = "another exported program" if platform == PLATFORM else platform
        msg = f"{self.name}: the saved program cannot be part of {what}"
        raise ExportError(msg, expected=f"a call on {', '.join(self.platforms)}", hint=hint)

    def module_at(self, avals: Sequence[ShapedArray]) -> Any:
        """The module for inputs of these types. The context must be entered.

        Raises:
            ExportError: this jaxlib cannot read it, or it calls what programs may not call.
            ShapeMismatchError: it needs other sizes.
        """
        try:
            module = mlir.deserialize_portable_artifact(self.data, mlir_context())
        except Exception as error:  # what jaxlib raises differs between its versions
            ours = mlir.current_stablehlo_version()
            msg = f"{self.name}: this jaxlib, of StableHLO {ours}, cannot read the saved program"
            raise ExportError(msg, hint="install a newer jaxlib, or export again") from error
        # Targets of calls are C functions of the process, some of which trust their arguments.
        known = PORTABLE_TARGETS | (self.allowed & ffi.targets_of_users)
        unknown = sorted(custom_call_targets(module) - known)
        if unknown:
            msg = f"{self.name}: the saved program calls {', '.join(unknown)}"
            way_out = "register what it was allowed to call: tracebridge.ffi.register_ffi_target"
            raise ExportError(
                msg,
                expected="a program that tracebridge has written",
                hint=way_out if self.allowed.issuperset(unknown) else "",
            )
        if self.is_static():
            return module
        if not all([is_static(a) for a in avals]):
            _add_main(module, avals, len(self.platforms) > 1, self.results(avals))
            return module
        _add_main(module, avals, len(self.platforms) > 1)
        try:
            refined = mlir.refine_polymorphic_shapes(mlir.module_to_bytecode(module))
        except Exception as error:  # a check of sizes in the program
            why = str(error).rpartition("error: ")[2].partition("\n")[0]
            raise self._mismatch(avals, why) from error
        return mlir.parse_module(refined, mlir_context())


def _at(shape: Sequence[Any], env: dict[str, Any]) -> tuple[Any, ...]:
    return tuple([d if type(d) is int else dims_evaluate(d, env, DimOps) for d in shape])


def _function_of(module: Any, name: str) -> Any:
    """The function ``name`` of a module."""
    return next(f for f in module.body.operations if _symbol(f) == name)


def _symbol(function: Any) -> str:
    return mlir.ir.StringAttr(function.attributes["sym_name"]).value


def _unused_name(module: Any) -> str:
    """A name that no function of a module has; programs may hold others that were read."""
    taken = {_symbol(function) for function in module.body.operations}
    names = (f"exported_{i}" for i in itertools.count())
    return next(name for name in names if name not in taken)


def _add_main(
    module: Any,
    avals: Sequence[ShapedArray],
    has_number: bool,
    results: Sequence[ShapedArray] | None = None,
) -> None:
    """Let main be of these types, and call what it was."""
    ir, builder = mlir.ir, Builder()
    inner, name = _function_of(module, "main"), _unused_name(module)
    inner.attributes["sym_name"] = string(name)
    inner.attributes["sym_visibility"] = string("private")
    old = ir.FunctionType(ir.TypeAttr(inner.attributes["function_type"]).value)
    types = [*old.inputs[:1]] if has_number else []
    types += [tensor_type(a) for a in avals]
    out_types = old.results if results is None else [tensor_type(a) for a in results]
    with ir.InsertionPoint(module.body):
        main = builder.create(
            "func.func",
            attributes={
                "sym_name": string("main"),
                "sym_visibility": string("public"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, out_types)),
            },
            regions=1,
        )
    block = main.regions[0].blocks.append(*types, arg_locs=[ir.Location.unknown()] * len(types))
    with ir.InsertionPoint(block):
        operands = _of_types(builder, block.arguments, old.inputs)
        callee = {"callee": ir.FlatSymbolRefAttr.get(name)}
        call = builder.create(
            "func.call", results=list(old.results), operands=operands, attributes=callee
        )
        builder.create("func.return", operands=_of_types(builder, call.results, out_types))


def _of_types(builder: Builder, values: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """The same values, whose types say more or less about their sizes."""
    return [
        value
        if value.type == wanted
        else builder.create("stablehlo.convert", results=[wanted], operands=[value]).results[0]
        for value, wanted in zip(values, types, strict=True)
    ]


def _number_for(ctx: LoweringContext, artifact: Artifact) -> list[IrValue]:
    """The operand that says on which platform the program runs, if it takes one.

    Raises:
        ExportError: the program is not for it.
    """
    if not artifact.platforms:
        return []
    if ctx.platform != PLATFORM:
        numbers = [artifact.number_of(ctx.platform)]
    else:  # part of another program that leaves the process
        fewer = f"export it for that platform too, or the whole with platforms={artifact.platforms}"
        numbers = [artifact.number_of(p, fewer) for p in ctx.platforms or [PLATFORM]]
    if len(artifact.platforms) == 1:
        return []
    choose = functools.partial(ctx.by_platform, numbers, lambda n: [ctx.dim(n)], [_NUMBER])
    return [ctx.dim(numbers[0])] if len(numbers) == 1 else choose()


_NUMBER = ShapedArray((), np.int32)


@final
class ExportedCall(Primitive):
    """Calls ``artifact`` on its constants and inputs."""

    name = "exported_call"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        artifact: Artifact = params["artifact"]
        return artifact.results(avals)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        """As the program splits them, over a mesh with its axes."""
        spread = params["artifact"].spread
        mesh = mesh_of_types(self.name, avals)
        if spread is None or mesh.shape_tuple != spread.axes:
            return [None] * len(outs)
        return [
            None if spec is None else explicit_split(NamedSharding(mesh, spec), out.ndim)
            for spec, out in zip(spread.outs, outs, strict=True)
        ]

    def lower(
        self, ctx: LoweringContext, *operands: IrValue, artifact: Artifact
    ) -> Sequence[IrValue]:
        """The functions of the program become functions of the module."""
        ir = mlir.ir
        number = _number_for(ctx, artifact)
        spread = None if ctx.platform == PLATFORM else artifact.spread
        if spread is not None:
            operands = tuple(spread.constrain(artifact.name, ctx, operands, spread.ins))
        module = artifact.module_at(ctx.avals_in)
        functions = list(module.body.operations)
        main = ""
        for function in functions:
            old = _symbol(function)
            new = ctx.unique_name(artifact.name if old == "main" else old)
            main = new if old == "main" else main
            ir.SymbolTable.replace_all_symbol_uses(old, new, module.operation)
            ir.SymbolTable.set_symbol_name(function, new)
            function.attributes["sym_visibility"] = string("private")
        for function in functions:
            ctx.module.body.append(function.operation.clone())
        call = ctx.create(
            "func.call",
            results=[tensor_type(a) for a in ctx.avals_out],
            operands=[*number, *operands],
            attributes={"callee": ir.FlatSymbolRefAttr.get(main)},
        )
        results = list(call.results)
        if spread is None:
            return results
        return spread.constrain(artifact.name, ctx, results, spread.outs)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        del primals, tangents
        raise no_rule(params["artifact"], "derivative of its own")

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        del ct, args
        raise no_rule(params["artifact"], "transpose")

    def batch(
        self,
        ctx: BatchContext,
        args: Sequence[Value],
        dims: Sequence[int | None],
        **params: Any,
    ) -> tuple[Any, Any]:
        """One element after the other: a program does not tell what it does."""
        outs = in_sequence(self, ctx.size, args, dims, params, unroll=False)
        return outs, [0] * len(params["artifact"].out_avals)


exported_call_p = ExportedCall()


WAY_OUT = (
    "export it under `with tracebridge.torch.saving(grad_order=...)`: each derivative of a "
    "derivative takes an order more, and so does forward mode. Or export the derivative itself, "
    "or import the module of the function before the graph is loaded"
)


def no_rule(artifact: Artifact, rule: str) -> MissingRuleError:
    """The error of what programs are not saved with."""
    return MissingRuleError(
        exported_call_p.name,
        rule,
        message=f"{artifact.name}: the saved program has no {rule}: it was saved with "
        f"grad_order={artifact.order}",
        hint=WAY_OUT,
    )
