"""Calls of kernels in StableHLO, and their names."""

from __future__ import annotations

import functools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.kernels.content import digest
from tracebridge.core.kernels.costs import remember_costs
from tracebridge.core.kernels.machine import machine
from tracebridge.core.kernels.numbers import filled
from tracebridge.core.kernels.waiting import wait_for_program
from tracebridge.core.mlir.attrs import array, dictionary, i32, i64_array, index_tensor, string

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.kernels.numbers import Numbers

_Call = tuple[str, tuple[int, int, int]]
"""The name of a kernel, and what a call of it tells."""

_TYPED_VERSION = 4  # of StableHLO's custom_call: XLA's typed FFI


def kernel_call(
    ctx: LoweringContext,
    operands: Sequence[IrValue],
    name: str,
    numbers: Mapping[str, Sequence[int]],
    avals_in: Sequence[ShapedArray] | None = None,
    avals_out: Sequence[ShapedArray] | None = None,
) -> list[Any]:
    """A call of the kernel ``name``; its one attribute is an array of numbers.

    The avals are those of the equation, if they are not given.
    """
    avals_in = ctx.avals_in if avals_in is None else avals_in
    avals_out = ctx.avals_out if avals_out is None else avals_out
    attributes = {
        "call_target_name": string(name),
        "api_version": i32(_TYPED_VERSION),
        "backend_config": dictionary({key: i64_array(n) for key, n in numbers.items()}),
        "operand_layouts": array([_by_rows(a.ndim) for a in avals_in]),
        "result_layouts": array([_by_rows(a.ndim) for a in avals_out]),
    }
    return list(ctx.op("stablehlo.custom_call", operands, avals_out, attributes).results)


class Text(NamedTuple):
    """The text of a kernel; operations of a row or step, and exponentials and their like."""

    lines: str
    cheap: int
    dear: int


def name_of(content: str, write: Callable[[], Text], numbers: Numbers = ()) -> str:
    """The name of the kernel that ``write`` gives the text of; it waits for its use.

    ``content`` is all that the text depends on, without the ``numbers`` in its places: there is one
    name for each, for what writes it, and for the processor.
    """
    values = [float(n) for n in numbers]
    described = f"{_writers(machine().description)} {values}\n{content}"
    name = f"{KERNEL}{digest(described)[:32]}"
    wait_for_program(name, partial(_written, name, write, values))
    return name


def last_call(program: Jaxpr, given: Sequence[object], make: Callable[[], _Call]) -> _Call:
    """``make()``, or what it gave for an equal call of the same program just before.

    Equal layers of a network have kernels with one program, one after another. ``given``: all else
    that the call depends on, but for the processor.
    """
    key = [machine().description, *given]
    last = program.cache.get("last call")
    if last is None or last[0] != key:
        last = program.cache["last call"] = key, make()
    return last[1]


def _written(name: str, write: Callable[[], Text], numbers: Sequence[float]) -> str:
    """The text of a kernel with its numbers."""
    text = write()
    remember_costs(name, text.cheap, text.dear)
    return filled(text.lines, numbers) if numbers else text.lines


@functools.lru_cache(maxsize=1)
def _writers(processor: str) -> str:
    """What tells the sources of kernels apart, and processors: executables are kept longer."""
    folder = Path(__file__).parent
    sources = sorted(folder.rglob("*.py"))
    return digest(processor + b"".join([source.read_bytes() for source in sources]).decode())


def _by_rows(ndim: int) -> Any:
    return index_tensor(range(ndim - 1, -1, -1))
