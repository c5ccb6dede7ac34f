"""Programs in the compiler's own forms: XLA computations before optimization."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib.mlir import module_to_bytecode, stablehlo_to_hlo
from tracebridge.core._jaxlib.xla import HloPrintOptions, hlo_module_cost_analysis
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.kernels.costs import with_kernels
from tracebridge.core.lowering.module import LoweredModule, lower_module
from tracebridge.core.mlir.attrs import string
from tracebridge.core.mlir.context import building
from tracebridge.core.mlir.onednn import with_calls
from tracebridge.core.runtime.backends.clients import get_backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.jaxpr import Jaxpr

MAX_UNTUPLED = 100
"""More arguments than this are passed as one tuple where the choice is left to the compiler."""


def hlo_of(module: LoweredModule, *, tuple_args: bool = False, return_tuple: bool = False) -> Any:
    """The XlaComputation of a lowered module."""
    with building():
        bytecode = module_to_bytecode(module.module)
        return stablehlo_to_hlo(bytecode, tuple_args=tuple_args, return_tuple=return_tuple)


def hlo_text(module: LoweredModule, *, metadata: bool = False) -> str:
    """HLO of a lowered module before XLA's passes; with ``metadata`` names and lines."""
    computation = hlo_of(module)
    if not metadata:
        return computation.as_hlo_text()
    options = HloPrintOptions()
    options.print_percent = False
    options.print_metadata = True
    return computation.as_hlo_module().to_string(options)


def costs_of(module: LoweredModule) -> dict[str, float]:
    """XLA's estimate for a lowered module: flops, bytes accessed, ..."""
    computation = hlo_of(module)
    # Before optimization it is the same for all; clients of plugins do not count.
    costs = hlo_module_cost_analysis(get_backend("cpu").client, computation.as_hlo_module())
    text = computation.as_hlo_text()
    return with_kernels(with_calls(costs, text), text)


def computation_of(
    jaxpr: Jaxpr,
    name: str,
    platform: str,
    donated: Sequence[int] = (),
    *,
    tuple_args: bool | None = False,
    axis_env: Sequence[tuple[Any, int]] = (),
) -> Any:
    """The XlaComputation of a program; it takes all inputs and returns a tuple.

    ``axis_env``: named axes, outermost first, whose elements are replicas of the program.
    """
    module = lower_module(
        jaxpr,
        name,
        platform,
        keep_unused=True,
        donated=tuple(donated),
        embed_constants=True,
        axis_env=tuple(axis_env),
        n_replicas=math.prod([size for _, size in axis_env]),
    )
    with building():
        module.module.operation.attributes["sym_name"] = string(name)
    as_tuple = jaxpr.n_in > MAX_UNTUPLED if tuple_args is None else bool(tuple_args)
    return hlo_of(module, tuple_args=as_tuple, return_tuple=True)


def checked_dialect(dialect: str | None) -> str:
    """The form of a program in which it is wanted, "stablehlo" by default."""
    if dialect in (None, "stablehlo", "hlo"):
        return dialect or "stablehlo"
    msg = f"unknown dialect {dialect!r}, expected 'stablehlo' or 'hlo'"
    raise ArgumentValueError(msg)
