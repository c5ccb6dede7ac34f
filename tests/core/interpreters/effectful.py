"""A primitive with an effect, for tests of what keeps such equations."""

from __future__ import annotations

from typing import Any

from tracebridge.core.ir import primitive
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import Effect, Effects


class Noise(Effect):
    """The effect of `noisy`."""

    __slots__ = ()


class _Noisy(primitive.Primitive):
    """The identity, loudly."""

    name = "noisy_for_tests"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        del params
        return avals[0]

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        del ctx, params
        return operands[0]

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        del avals, params
        return frozenset([Noise()])


noisy_p = _Noisy()
# Tests of all primitives are about those of the package.
primitive._ALL.pop(noisy_p.name)
