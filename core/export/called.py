"""exported_call: a program of another process, as an operation of this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib import mlir
from tracebridge.core.control.callbacks.base import in_sequence
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.export.portable import PLATFORM, PORTABLE_TARGETS, custom_call_targets
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.mlir.attrs import string
from tracebridge.core.mlir.builders import Builder
from tracebridge.core.mlir.context import mlir_context
from tracebridge.core.mlir.types import is_static, tensor_type
from tracebridge.core.symbolic.evaluate import DimOps, dims_evaluate
from tracebridge.core.symbolic.solve import Solution, size_name, solve_dim_variables

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value

_INNER = "exported"


@final
class Artifact:
    """A portable program that was read from somewhere.

    ``data``: serialised StableHLO, whose main takes the number of the platform (if there are
    several ``platforms``), ``n_constants`` arrays, and the inputs. ``in_avals`` are those of the
    arrays and the inputs, ``least`` is what each dimension variable in them is at least, ``order``
    how many orders of derivatives were saved.
    """

    __slots__ = ("data", "in_avals", "least", "n_constants", "name", "order", "out_avals",
                 "platforms", "solution")  # fmt: skip

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
    ) -> None:
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
            sizes = {
                size_name(i, axis): d for i, a in enumerate(avals) for axis, d in enumerate(a.shape)
            }
            env = self.solution.bind(sizes, DimOps)
            fits = all([env[name] >= self.least for name in self.solution.sources]) and all(
                [a.shape == _at(w.shape, env) for a, w in zip(avals, wanted, strict=True)]
            )
        if not fits:
            raise self._mismatch(avals)
        return [a.update(shape=_at(a.shape, env)) for a in self.out_avals]

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

    def number_of(self, platform: str) -> int:
        """The number that main is told on a platform.

        Raises:
            ExportError: the program is not for it.
        """
        platform = "cuda" if platform == "gpu" else platform  # what devices of CUDA call themselves
        if platform in self.platforms:
            return self.platforms.index(platform)
        what = "another exported program" if platform == PLATFORM else platform
        msg = f"{self.name}: the saved program cannot be part of {what}"
        raise ExportError(msg, expected=f"a call on {', '.join(self.platforms)}")

    def module_at(self, avals: Sequence[ShapedArray]) -> Any:
        """The module for inputs of these static types. The context must be entered.

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
        unknown = sorted(custom_call_targets(module) - PORTABLE_TARGETS)
        if unknown:
            msg = f"{self.name}: the saved program calls {', '.join(unknown)}"
            raise ExportError(msg, expected="a program that tracebridge has written")
        if self.is_static():
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
    for operation in module.body.operations:
        if mlir.ir.StringAttr(operation.attributes["sym_name"]).value == name:
            return operation
    raise AssertionError(name)


def _add_main(module: Any, avals: Sequence[ShapedArray], has_number: bool) -> None:
    """Let main be of static types, and call what it was."""
    ir, builder = mlir.ir, Builder()
    inner = _function_of(module, "main")
    inner.attributes["sym_name"] = string(_INNER)
    inner.attributes["sym_visibility"] = string("private")
    old = ir.FunctionType(ir.TypeAttr(inner.attributes["function_type"]).value)
    types = [*old.inputs[:1]] if has_number else []
    types += [tensor_type(a) for a in avals]
    with ir.InsertionPoint(module.body):
        main = builder.create(
            "func.func",
            attributes={
                "sym_name": string("main"),
                "sym_visibility": string("public"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, old.results)),
            },
            regions=1,
        )
    block = main.regions[0].blocks.append(*types, arg_locs=[ir.Location.unknown()] * len(types))
    with ir.InsertionPoint(block):
        operands = [
            value
            if value.type == wanted
            else builder.create("stablehlo.convert", results=[wanted], operands=[value]).results[0]
            for value, wanted in zip(block.arguments, old.inputs, strict=True)
        ]
        callee = {"callee": ir.FlatSymbolRefAttr.get(_INNER)}
        call = builder.create(
            "func.call", results=list(old.results), operands=operands, attributes=callee
        )
        builder.create("func.return", operands=list(call.results))


@final
class ExportedCall(Primitive):
    """Calls ``artifact`` on its constants and inputs."""

    name = "exported_call"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        artifact: Artifact = params["artifact"]
        return artifact.results(avals)

    def lower(
        self, ctx: LoweringContext, *operands: IrValue, artifact: Artifact
    ) -> Sequence[IrValue]:
        """The functions of the program become functions of the module."""
        ir = mlir.ir
        if ctx.platform == PLATFORM or not all([is_static(a) for a in ctx.avals_in]):
            artifact.number_of(PLATFORM)  # the error
        number: list[Any] = []
        if artifact.platforms:
            index = artifact.number_of(ctx.platform)
            number = [ctx.dim(index)] if len(artifact.platforms) > 1 else []
        module = artifact.module_at(ctx.avals_in)
        functions = list(module.body.operations)
        main = ""
        for function in functions:
            old = ir.StringAttr(function.attributes["sym_name"]).value
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
        return list(call.results)

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
