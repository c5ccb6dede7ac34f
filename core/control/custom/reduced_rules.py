"""The rules of an equation of custom_jvp or custom_vjp of which only some results are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.custom.custom_vjp_rule import Forward
from tracebridge.core.interpreters.dce import dce_jaxpr

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.value import Value

Flags = tuple[bool, ...]


@final
class ReducedJvpRule:
    """A jvp rule without the results, and their tangents, that are not ``used``."""

    __slots__ = ("_base", "_used")

    def __init__(self, base: Any, used: Flags) -> None:
        self._base = base
        self._used = used

    def traced(self, nonzero: Flags) -> tuple[Jaxpr, Flags, Flags]:
        """As ``JvpRule.traced``."""
        jaxpr, taken, given = self._base.traced(nonzero)
        pairs = list(zip(self._used, given, strict=True))
        wanted = (*self._used, *[used for used, here in pairs if here])
        smaller, _ = dce_jaxpr(jaxpr, wanted, keep_in=True)
        return smaller, taken, tuple([here for used, here in pairs if used])


@final
class ReducedVjpRule:
    """The rules of a custom_vjp function without the results that are not ``used``."""

    __slots__ = ("_base", "_used")

    def __init__(self, base: Any, used: Flags) -> None:
        self._base = base
        self._used = used

    @property
    def optimize_remat(self) -> bool:
        """As ``VjpRule.optimize_remat``."""
        return self._base.optimize_remat

    def forward(self, perturbed: Flags) -> Forward:
        """As ``VjpRule.forward``; the others have cotangents of zero."""
        base = self._base.forward(perturbed)
        n_residuals = len(base.jaxpr.outs) - len(self._used)
        wanted = (*self._used, *[True] * n_residuals)
        smaller, _ = dce_jaxpr(base.jaxpr, wanted, keep_in=True)

        def backward(residuals: Sequence[object], cts: Sequence[Value | None]) -> list[Any]:
            given = iter(cts)
            return base.backward(residuals, [next(given) if u else None for u in self._used])

        return Forward(smaller, backward)
