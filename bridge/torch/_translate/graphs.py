"""Graphs of ATen operators as functions of arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np
import torch
from torch.fx.node import map_arg
from torch.utils._sympy.symbol import SymT, symbol_is_type

from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, MissingRuleError
from tracebridge.interop.torch_adapter import DTYPES, torch_adapter
from tracebridge.random.keys import fold_in
from tracebridge.torch._translate.control import control_function
from tracebridge.torch._translate.numbers import cast, is_array
from tracebridge.torch._translate.operators.shapes import slice_from
from tracebridge.torch._translate.table import (
    CHECKS,
    DRAWS,
    KEYED_TABLE,
    TABLE,
    number_function,
)

_DATA_DEPENDENT: Final = frozenset(
    {
        torch.ops.aten.nonzero.default,
        torch.ops.aten.masked_select.default,
        torch.ops.aten._unique2.default,
        torch.ops.aten.unique_dim.default,
        torch.ops.aten.unique_dim_consecutive.default,
        torch.ops.aten.bincount.default,
        torch.ops.aten.unique_consecutive.default,
    }
)


_EFFECT: Final = torch.ops.higher_order.with_effects
_INDEX: Final = torch.ops.aten.index.Tensor
_ITEM: Final = torch.ops.aten._local_scalar_dense.default
_REPEAT: Final = torch.ops.aten.repeat_interleave.Tensor
_SLICE: Final = torch.ops.aten.slice.Tensor
_OF_VALUES: Final = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)


def _is_check(node: torch.fx.Node) -> bool:
    """Whether a node checks values, or belongs to the tokens that keep checks in order."""
    if node.target in CHECKS:
        return True
    if node.target is _EFFECT:
        return node.args[1] in CHECKS
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, torch.fx.Node) and source.target is _EFFECT and _is_check(source)


def _sizes_from_values(graph: torch.fx.Graph) -> frozenset[Any]:
    """The operators ``item`` of a graph on whose results the size of an array depends."""
    sizes: set[Any] = set()
    items: list[tuple[torch.fx.Node, Any]] = []
    for node in graph.nodes:
        values = node.meta.get("val")
        if node.target is _ITEM:
            items.append((node, getattr(getattr(values, "node", None), "expr", None)))
        for value in values if isinstance(values, list | tuple) else [values]:
            for n in value.shape if isinstance(value, torch.Tensor) else ():
                sizes.update(n.node.expr.free_symbols if isinstance(n, torch.SymInt) else ())
    return frozenset(n for n, e in items if e is not None and sizes & e.free_symbols)


def _is_number(argument: Any) -> bool:
    """Whether an argument is a number that has been computed from values of arrays."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    expr = value.node.expr if isinstance(value, torch.SymInt) else None
    return expr is not None and any([symbol_is_type(s, _OF_VALUES) for s in expr.free_symbols])


def _is_sized_by_values(node: torch.fx.Node) -> bool:
    """Whether a size of the result is one that torch does not know before values are there."""
    value = node.meta.get("val")
    sizes = value.shape if isinstance(value, torch.Tensor) else ()
    symbols = [n.node.expr.free_symbols for n in sizes if isinstance(n, torch.SymInt)]
    return any([symbol_is_type(s, _OF_VALUES) for found in symbols for s in found])


def _indices(node: torch.fx.Node) -> list[Any]:
    given: Any = node.args[1]
    return list(given)


def _depends_on_values(node: torch.fx.Node) -> bool:
    """Whether the size of the result does."""
    if node.target is _REPEAT:
        return node.kwargs.get("output_size") is None
    if node.target is _INDEX:
        indices = [getattr(i, "meta", {}).get("val") for i in _indices(node)]
        return any([getattr(i, "dtype", None) == torch.bool for i in indices])
    if node.target is _SLICE:
        return _is_sized_by_values(node)
    return node.target in _DATA_DEPENDENT


@final
class Step:
    """One operator: what computes it, and the nodes that it reads."""

    __slots__ = ("draw", "dtype", "fun", "last", "node")

    def __init__(self, node: torch.fx.Node, fun: Any, draw: int | None) -> None:
        self.node = node
        self.fun = fun
        self.draw = draw
        value = node.meta.get("val")
        self.dtype = DTYPES.get(value.dtype) if isinstance(value, torch.Tensor) else None


@final
class Graph:
    """The steps of a graph, in order.

    Raises:
        MissingRuleError: an operator has no translation.
        ExportError: a shape depends on values.
    """

    def __init__(self, label: str, module: torch.fx.GraphModule) -> None:
        self.label = label
        self.inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        results = next(n for n in module.graph.nodes if n.op == "output").args[0]
        self.results: Sequence[Any] = results if isinstance(results, list | tuple) else [results]
        self.steps: list[Step] = []
        self.draws: list[str] = []
        self._known: dict[torch.fx.Node, Any] = {}
        self._module = module
        self._sizes_from = _sizes_from_values(module.graph)
        missing: set[str] = set()
        for node in module.graph.nodes:
            if node.op in {"placeholder", "output"} or _is_check(node):
                continue
            if node.op == "get_attr":
                self._known[node] = self._attribute(node)
                continue
            step = self._step(node)
            if step is None:
                missing.add(str(node.target))
            else:
                self.steps.append(step)
        if missing:
            names = ", ".join(sorted(missing))
            raise MissingRuleError(
                message=f"from_module({label}): no translation of the operators {names}",
                hint="call what uses them, or the whole module, by call_torch",
            )

    def _attribute(self, node: torch.fx.Node) -> Any:
        """A graph that an operator runs, as a function of values and a key; or a tensor."""
        value: Any = self._module
        for name in str(node.target).split("."):
            value = getattr(value, name)
        if isinstance(value, torch.fx.GraphModule):
            return Graph(self.label, value)
        return torch_adapter.import_(value.detach())

    def _step(self, node: torch.fx.Node) -> Step | None:
        target: Any = node.target
        if _depends_on_values(node) or node in self._sizes_from:
            raise ExportError(
                f"from_module({self.label}): a shape or a choice depends on values: {target}",
                hint="use torch.where and masks, or call the module by call_torch",
            )
        if target in KEYED_TABLE:
            draw = None
            if DRAWS.get(target, lambda *_, **__: True)(*node.args, **node.kwargs):
                draw = len(self.draws)
                self.draws.append(str(target))
            return Step(node, KEYED_TABLE[target], -1 if draw is None else draw)
        control = control_function(target)
        if control is not None:
            bodies = [self._known[n] for n in node.all_input_nodes if n in self._known]
            draws = [d for b in bodies if isinstance(b, Graph) for d in b.draws]
            self.draws.extend(draws)
            return Step(node, control, len(self.draws) - 1 if draws else -1)
        fun = TABLE.get(target) or number_function(target)
        if target is _SLICE and any([_is_number(a) for a in node.args]):
            fun = partial(slice_from, size=node.meta["val"].shape)
        return None if fun is None else Step(node, fun, None)

    def __call__(self, values: Sequence[Any], key: Any) -> list[Any]:
        """As the body of an operator: see ``run``."""
        return self.run(values, key)

    def run(self, values: Sequence[Any], key: Any) -> list[Any]:
        """The results for values of the inputs; numbers and None among them as they are.

        Raises:
            ArgumentSpecError: the graph draws random numbers, and there is no key.
        """
        if self.draws and key is None:
            raise ArgumentSpecError(
                f"{self.label}: the module draws random numbers ({self.draws[0]})",
                hint="pass key=tracebridge.random.key(seed) to apply",
            )
        known: dict[torch.fx.Node, Any] = {**self._known}
        known.update(zip(self.inputs, values, strict=True))
        for step in self.steps:
            node = step.node
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            if step.draw is not None:
                own = None if step.draw < 0 else fold_in(key, np.uint32(step.draw))
                args = (own, *args)
            value = step.fun(*args, **kwargs)
            if step.dtype is not None and is_array(value):
                value = cast(value, step.dtype)
            known[node] = value
        return [known.get(r) if isinstance(r, torch.fx.Node) else r for r in self.results]
