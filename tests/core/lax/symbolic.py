"""Running a function that was traced and lowered with symbolic dimensions, at concrete sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lowering.module import LoweredModule, lower_module
from tracebridge.core.mlir.context import building, mlir_context
from tracebridge.core.mlir.types import tensor_type
from tracebridge.core.runtime.arrays.placement import choose_placement
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.runtime.calls.execute import LIST, make_run
from tracebridge.core.runtime.programs.compile import compile_lowered
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape


def run_symbolic(
    fun: Callable[..., Any], shapes: str, *arrays: np.ndarray[Any, Any]
) -> list[np.ndarray[Any, Any]]:
    """Trace ``fun`` once for ``shapes`` ("n,3; m"), and run that program on ``arrays``."""

    def flat(*xs: Any) -> list[Any]:
        out = fun(*xs)
        return list(out) if isinstance(out, list | tuple) else [out]

    scope = SymbolicScope()
    values = [put_numpy(np.asarray(a)) for a in arrays]
    avals = [
        ShapedArray(symbolic_shape(spec.strip(), scope=scope), v.aval.dtype)
        for spec, v in zip(shapes.split(";"), values, strict=True)
    ]
    # The result avals at these sizes; also the program to compare shapes with.
    outs = stage(flat, [v.aval for v in values]).out_avals
    symbolic = lower_module(stage(flat, avals), "symbolic", "cpu", embed_constants=True)
    concrete = _at_sizes(symbolic.as_text(), [v.aval for v in values])
    lowered = LoweredModule(concrete, "symbolic", tuple(range(len(values))), (), [])
    placement, _ = choose_placement([v._sig for v in values], "symbolic")
    program = compile_lowered(lowered, placement, outs)
    results = make_run(program, len(values), LIST)(*values)
    return [np.asarray(r) for r in results]


def _at_sizes(text: str, avals: list[ShapedArray]) -> Any:
    """The module with a main of static argument types that calls the symbolic one."""
    signature = re.search(r"func\.func public @main\((.*?)\) -> (\(.*?\)|\S+)", text)
    assert signature is not None, text
    dynamic = re.findall(r"tensor<[^>]*>", signature[1])
    outs = re.findall(r"tensor<[^>]*>", signature[2])
    with building():
        static = [str(tensor_type(a)) for a in avals]
    lines = [
        f"%c{i} = stablehlo.convert %x{i} : ({s}) -> {d}"
        for i, (s, d) in enumerate(zip(static, dynamic, strict=True))
    ]
    names = ", ".join([f"%c{i}" for i in range(len(static))])
    n_out = len(outs)
    results = ", ".join([f"%r#{i}" for i in range(n_out)]) if n_out > 1 else "%r"
    place = f"%r:{n_out}" if n_out > 1 else "%r"
    types = f"({', '.join(dynamic)}) -> ({', '.join(outs)})"
    lines.append(f"{place} = call @symbolic({names}) : {types}")
    lines.append(f"return {results} : {', '.join(outs)}")
    parameters = ", ".join([f"%x{i}: {s}" for i, s in enumerate(static)])
    main = f"func.func public @main({parameters}) -> ({', '.join(outs)}) {{\n"
    main += "\n".join(lines) + "\n}\n"
    text = text.replace("func.func public @main(", "func.func private @symbolic(")
    end = text.rindex("}")
    with building():
        module = mlir.parse_module(text[:end] + main + "}\n", mlir_context())
        refined = mlir.refine_polymorphic_shapes(mlir.module_to_bytecode(module))
        return mlir.parse_module(refined, mlir_context())
