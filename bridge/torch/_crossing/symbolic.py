"""Symbolic sizes: torch's SymInts as dimension variables of the engine, and back.

While torch traces a graph for all sizes, shapes hold SymInts. The fake rule traces the function
at dimension variables, so that the shapes of the results are expressions in the same sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape
from tracebridge.interop.torch_adapter import ROWS

# Variables are named by their order in a call, in one scope: equal calls have equal avals.
# By what sizes are at least: torch knows of most that they are neither 0 nor 1, of some that they
# may be. Strict: a function whose lines ask for more than that gets graphs for single sizes.
_SCOPES = {least: SymbolicScope(least=least, strict=True) for least in (0, 1, 2)}
LEAST_SIZES = tuple(_SCOPES)


class SymIntOps:
    """Arithmetic of ``dims_evaluate`` on SymInts."""

    constant = staticmethod(int)
    add = staticmethod(operator.add)
    mul = staticmethod(operator.mul)
    floordiv = staticmethod(operator.floordiv)
    mod = staticmethod(operator.mod)
    max = staticmethod(torch.sym_max)
    min = staticmethod(torch.sym_min)


def aval_of_text(text: str, least: int = 1, scope: SymbolicScope | None = None) -> ShapedArray:
    """The aval that a handle writes as ``float32[2,2*d0+1]``, for sizes of at least ``least``."""
    name, _, sizes = text.partition("[")
    scope = _SCOPES[least] if scope is None else scope
    shape = symbolic_shape(sizes.removesuffix("]"), scope=scope)
    return ShapedArray(shape, ROWS.ours(name))


def has_symbolic(xs: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor has a size that is not known."""
    return any([isinstance(d, torch.SymInt) for x in xs for d in x.shape])


def least_size(xs: Sequence[torch.Tensor]) -> int:
    """What all sizes are known to be at least: 2, 1, or 0 as those that depend on data."""
    # Imported by torch for the first such size, not with this module: it is slow.
    from torch.fx.experimental.symbolic_shapes import (  # noqa: PLC0415 - see above
        statically_known_true,
    )

    unknown = [d for x in xs for d in x.shape if isinstance(d, torch.SymInt)]
    for least in (2, 1):
        if all([statically_known_true(d >= least) for d in unknown]):
            return least
    return 0


class Sizes:
    """The sizes of the tensors of one call as dimensions; ``value`` goes back.

    With ``merge`` sizes that are equal in torch's example are assumed to be equal always, with
    ``settle`` also those that are equal to a size that is known; torch notes that as a guard of
    the graph. Sizes are at least ``least``.
    """

    def __init__(
        self,
        xs: Sequence[torch.Tensor],
        *,
        merge: bool = False,
        settle: bool = False,
        least: int = 1,
    ) -> None:
        self.merge = merge
        self.known = {d for x in xs for d in x.shape if type(d) is int} if settle else set[int]()
        self.scope = _SCOPES[least]
        self.variables: dict[Any, Any] = {}  # torch's expression -> our variable
        self.env: dict[str, torch.SymInt] = {}  # name of our variable -> size
        unknown = [d for x in xs for d in x.shape if isinstance(d, torch.SymInt)]
        # Plain symbols first: other sizes may be expressions in them.
        for d in unknown:
            if d.node.expr.is_Symbol:
                self._variable(d)

    def _variable(self, size: torch.SymInt) -> Any:
        key = size.node.expr
        found = self.variables.get(key)
        if found is None and self.known and size.node.has_hint():
            value = size.node.hint
            if value in self.known and bool(size == value):
                found = self.variables[key] = value
        if found is None and self.merge:
            for name, other in self.env.items():
                known = size.node.has_hint() and other.node.has_hint()
                if known and size.node.hint == other.node.hint and bool(size == other):
                    (found,) = symbolic_shape(name, scope=self.scope)
                    self.variables[key] = found
        if found is None:
            name = f"d{len(self.env)}"
            (found,) = symbolic_shape(name, scope=self.scope)
            self.variables[key] = found
            self.env[name] = size
        return found

    def dim(self, size: Any) -> Any:
        """An int, or the dimension of a SymInt."""
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = size.node.expr
        if expression.is_Integer:
            return int(expression)
        symbols = sorted(expression.free_symbols, key=str)
        if all([s in self.variables for s in symbols]):
            polynomial = expression.as_poly(*symbols)
            if polynomial is not None and all([c.is_Integer for c in polynomial.coeffs()]):
                return self._from_terms(polynomial.terms(), symbols)
        # A quotient, say: a size like any other.
        return self._variable(size)

    def _from_terms(self, terms: Sequence[Any], symbols: Sequence[Any]) -> Any:
        total: Any = 0
        for powers, coefficient in terms:
            product: Any = int(coefficient)
            for symbol, power in zip(symbols, powers, strict=True):
                for _ in range(int(power)):
                    product = product * self.variables[symbol]
            total = total + product
        return total

    def aval(self, x: torch.Tensor) -> ShapedArray:
        """Shape and dtype of a tensor."""
        dtype = ROWS.ours(str(x.dtype).removeprefix("torch."))
        return ShapedArray(tuple([self.dim(d) for d in x.shape]), dtype)

    def require(self, least: int) -> None:
        """Let the graph check that sizes are at least ``least``, because the trace needs it."""
        for size in self.env.values():
            torch._check(size >= least, lambda: "tracebridge: a function traced for all sizes needs"
                         f" sizes of at least {least}")  # fmt: skip

    def value(self, dim: Any) -> Any:
        """The size that a dimension stands for."""
        return dims_evaluate(dim, self.env, SymIntOps)
