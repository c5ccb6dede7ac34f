"""Calls that torch.compile or torch.export is tracing, and what handles say of a call.

Dynamo reads ``graph_call`` line by line, so it is plain Python over containers and strings. Two
functions are marked constant: they run while the graph is made, and their results are built in.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._C._functorch import TransformType, get_interpreter_stack

from tracebridge._derived.names import WRAPPED
from tracebridge.core.config.options import OPTIONS, TRACING_OPTIONS
from tracebridge.core.config.values import global_value, on_global_change
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.torch._crossing.in_graphs import constant_in_graphs
from tracebridge.torch._crossing.numbers import host_tensor, number_tensors, width_beside
from tracebridge.torch._crossing.structure import (
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    TENSOR,
    constant,
    describe,
    rebuild,
)
from tracebridge.torch._eager.through_operator import avals_for_trace, captured
from tracebridge.torch._graphs import operator as call_operator
from tracebridge.torch._graphs.call_family import types_of
from tracebridge.torch._graphs.own_guards import drop_own_guards
from tracebridge.torch._graphs.roots import STATIC, family_of, resolve


def graph_call(root: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of the wrapped function ``root`` as one operator in a graph."""
    # Each function that these lines name is a guard of the graph: the common case names few.
    nums, names = _static_of(root)
    leaves: list[Any] = []
    if nums:
        n = len(args)
        static_nums = [i if i >= 0 else i + n for i in nums]
        positional = [
            (STATIC, constant(args[i])) if i in static_nums else describe(args[i], leaves)
            for i in range(n)
        ]
    else:
        positional = [describe(x, leaves) for x in args]
    keywords: list[Any] = []
    if kwargs:
        keywords = [
            (k, (STATIC, constant(kwargs[k])) if k in names else describe(kwargs[k], leaves))
            for k in sorted(kwargs)
        ]
    wide = width_beside([x.dtype for x in leaves if isinstance(x, torch.Tensor)])
    leaves = [host_tensor(x, wide) if isinstance(x, np.ndarray) else x for x in leaves]
    kinds = [_kind(x) for x in leaves]
    numbers = [k for k in kinds if k != TENSOR]
    xs = leaves if leaves and not numbers else number_tensors(leaves, kinds)
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.comptime.comptime(_note_traced)  # pyright: ignore[reportAttributeAccessIssue] - see in_graphs.py
    else:
        _note(xs)
    handle, program, types = graph_handle(root, positional, keywords, _OPTIONS_OF_PROCESS[0])
    if program:
        outs = call_operator.CALL_SAVED(xs, handle, program)
    else:
        outs = call_operator.CALL(xs, handle)
    structure = result_structure(handle, types, len(outs))
    results = outs[0] if structure == FLOAT else rebuild(structure, iter(outs))
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.comptime.comptime(drop_own_guards)  # pyright: ignore[reportAttributeAccessIssue] - see in_graphs.py
    return results


@constant_in_graphs
def _static_of(root: str) -> Any:
    """Which arguments are static: from attributes torch would make them numbers of any value."""
    return WRAPPED[root].static


def _kind(x: Any) -> str:
    if isinstance(x, torch.Tensor):
        return TENSOR
    if isinstance(x, bool | torch.SymBool):
        return BOOL
    if isinstance(x, int | torch.SymInt):
        return INT
    return FLOAT if isinstance(x, float | torch.SymFloat) else COMPLEX


# The inputs of the call whose handle is made next: fake tensors, maybe of unknown sizes. Constant
# functions of Dynamo take no tensors.
_NOTED = threading.local()


def _note(xs: Sequence[torch.Tensor]) -> None:
    _NOTED.xs = list(xs)


def _note_traced(context: Any) -> None:
    """Called by Dynamo in the place of the line of ``graph_call`` that names it."""
    _note([x.node.meta["example_value"] for x in context.get_local("xs").as_proxy()])


# Graphs guard on what is in this list (on a global string they would not), so that they are made
# again when an option changes for the process. Options of a block are those of the call that made
# the graph: Dynamo cannot see them.
_OPTIONS_OF_PROCESS = [""]


@on_global_change
def _option_changed(name: str, value: Any) -> None:
    if name in TRACING_OPTIONS:
        values = [(n, global_value(n)) for n in TRACING_OPTIONS]
        _OPTIONS_OF_PROCESS[0] = repr([(n, v) for n, v in values if v != OPTIONS[n].default])
    del value


@constant_in_graphs
def graph_handle(
    root: str, positional: Sequence[Any], keywords: Sequence[Any], options: str
) -> tuple[str, str, tuple[Any, ...]]:
    """The handle of a call, its program if the graph is to hold it, and what its inputs are.

    The family is made and lives on, since a graph names it.
    """
    del options  # for the guard
    xs, _NOTED.xs = _NOTED.xs, None
    family = family_of(root, tuple(positional), tuple(keywords))
    if torch.compiler.is_exporting():
        _check_exportable(family.name)
    return *captured(family, xs), _types(family, xs)


def _types(family: Any, xs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Dtype and shape of each input; the sizes matter if structures of results depend on them."""
    if family.other_trees:
        try:
            return types_of(avals_for_trace(family, xs)[0])
        except Exception:  # noqa: BLE001 - the call itself raises it where torch expects it
            return ()
    return tuple([(str(x.dtype).removeprefix("torch."), (0,) * x.ndim) for x in xs])


def _check_exportable(name: str) -> None:
    """Refuse what torch exports with the example tensors in the place of its inputs.

    Raises:
        ExchangeError: torch.func differentiates the call by reverse mode.
    """
    levels = get_interpreter_stack() or ()
    if any([level.key() == TransformType.Grad for level in levels]):
        raise ExchangeError(
            f"{name}: called under torch.func.grad, vjp or jacrev in code that torch.export "
            "traces. torch writes graphs of those that do not read their inputs, of its own "
            "operations too",
            hint="differentiate the function before it is wrapped, wrap(tracebridge.grad(f)), or "
            "call torch.autograd.grad and export with strict=False; or export the function itself "
            "and differentiate what is loaded",
        )


@constant_in_graphs
def result_structure(handle: str, types: tuple[Any, ...], n: int) -> Any:
    """The structure of the results, which the fake rule has found out just before."""
    family: Any = resolve(handle)  # of a wrapped function
    out_tree = family.tree_at(types, n)
    return describe(out_tree.unflatten([0.0] * out_tree.num_leaves), [])
