"""What torch's profilers, counters and modes see of a call: one call, of the name of its function.

A node of autograd is named after its class, in the forward pass as in the backward pass. So each
name has classes of its own, which costs a call nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import profiler
from torch.overrides import handle_torch_function

from tracebridge._derived.families import Family
from tracebridge.core._jaxlib.xla import hlo_module_cost_analysis
from tracebridge.core.aot.compiler_ir import hlo_of
from tracebridge.core.config.scopes import scope
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lowering.module import lower_module
from tracebridge.core.runtime.backends.clients import get_backend
from tracebridge.core.util.caching import BoundedCache

__all__ = [
    "call_seen",
    "event_name",
    "flops_of",
    "function_modes",
    "named_apply",
    "profiler",
    "run_seen",
]

function_modes: Callable[[], int] = torch._C._len_torch_function_stack
_APPLIES: BoundedCache[Any] = BoundedCache("torch nodes by name", 1024)


def event_name(name: str) -> str:
    """What profilers call the programs of the function ``name``."""
    return f"tracebridge::{name}"


def named_apply(node: type[torch.autograd.Function], name: str) -> Callable[..., Any]:
    """The C++ ``apply`` of ``node``, of which profilers and ``grad_fn`` say whose it is."""
    key = node, name
    found = _APPLIES.get(key)
    if found is None:
        metaclass: Any = type(node)  # torch has no types for it
        named = metaclass(event_name(name), (node,), {"__module__": node.__module__})
        found = super(torch.autograd.Function, named).apply  # pyright: ignore[reportAttributeAccessIssue] - of torch._C, no stubs
        _APPLIES.set(key, found)
    return found


def run_seen(
    name: str, run: Callable[[Sequence[Any]], Sequence[torch.Tensor]], xs: Sequence[Any]
) -> Sequence[torch.Tensor]:
    """``run(xs)`` as an event of the profiler that is on."""
    with torch._C._profiler._RecordFunctionFast(event_name(name), list(xs)):  # pyright: ignore[reportAttributeAccessIssue] - no stubs
        return run(xs)


def call_seen(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``fun(*args, **kwargs)`` as the innermost mode for functions wants it: it sees this call."""
    return handle_torch_function(fun, (), *args, **kwargs)


def flops_of(family: Family, avals: tuple[ShapedArray, ...]) -> int:
    """XLA's estimate of the floating-point operations of a program, before optimization."""
    program: Jaxpr = family.program(avals)
    found = program.cache.get("torch flops")
    if found is None:
        # Of the program as it was written: rules of platforms exchange operations for others.
        with scope("platform_rules", False):
            computation = hlo_of(lower_module(program, family.name, "cpu", keep_unused=True))
        costs = hlo_module_cost_analysis(get_backend("cpu").client, computation.as_hlo_module())
        found = program.cache["torch flops"] = int(max(0.0, costs.get("flops", 0.0)))
    return found
