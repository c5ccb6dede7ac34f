"""Tables of rules by primitive: what is stored goes onto the primitive, where interpreters look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from types import MethodType
from typing import TYPE_CHECKING, Any

import tracebridge.core.ir.primitive as base
from tracebridge.core.compat.primitive import forget_programs
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.ir.primitive import all_primitives

if TYPE_CHECKING:
    from tracebridge.core.ir.primitive import Primitive


Rule = Callable[..., Any]

# Methods by which some primitives do all that the rule stands for, such as staging it.
# Beside a rule of users they are what they are by default.
_INSTEAD = {
    "jvp": ("linearize", "staged_linearize", "linearize_unstaged"),
    "transpose": ("staged_transpose",),
}


class RuleTable(MutableMapping[Any, Rule]):
    """Rules of one kind by primitive.

    Those of the engine's own primitives can be read and called, and replaced; a rule that is
    deleted makes room for the engine's own again.
    """

    def __init__(
        self,
        name: str,
        method: str,
        install: Callable[[base.Primitive, Rule], Rule],
        offer: Callable[[base.Primitive], Rule],
    ) -> None:
        self.name = name
        self._method = method
        self._install = install
        self._offer = offer
        self._rules: dict[base.Primitive, Rule] = {}

    def __getitem__(self, primitive: Primitive) -> Rule:
        rule = self._rules.get(primitive)
        if rule is not None:
            return rule
        if not self._has_own(primitive):
            raise KeyError(primitive)
        return self._offer(primitive)

    def __setitem__(self, primitive: Any, rule: Rule) -> None:
        if not isinstance(primitive, base.Primitive):
            msg = f"{self.name}: got the key {primitive!r}, expected a Primitive"
            raise ArgumentTypeError(msg)
        if not callable(rule):
            msg = f"{self.name}: got the rule {rule!r} of {primitive}, expected a function"
            raise ArgumentTypeError(msg)
        forget_programs(primitive)
        self._rules[primitive] = rule
        adapted = self._install(primitive, rule)
        setattr(primitive, self._method, adapted)
        for method in _INSTEAD.get(self._method, ()):
            setattr(primitive, method, MethodType(getattr(base.Primitive, method), primitive))

    def __delitem__(self, primitive: Primitive) -> None:
        del self._rules[primitive]
        forget_programs(primitive)
        for method in (self._method, *_INSTEAD.get(self._method, ())):
            vars(primitive).pop(method, None)

    def __contains__(self, primitive: object) -> bool:
        return primitive in self._rules or self._has_own(primitive)

    def _has_own(self, primitive: Any) -> bool:
        """Whether the class of a primitive defines the rule."""
        if not isinstance(primitive, base.Primitive):
            return False
        return getattr(type(primitive), self._method) is not getattr(base.Primitive, self._method)

    def __iter__(self) -> Iterator[Any]:
        yield from self._rules
        yield from [p for p in all_primitives() if p not in self._rules and self._has_own(p)]

    def __len__(self) -> int:
        return sum([1 for _ in self])

    def __repr__(self) -> str:
        return f"{self.name} of {len(self)} primitives"
