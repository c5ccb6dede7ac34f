"""What was in force when an equation was made, and is no parameter of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple

from tracebridge.core.ir.name_scopes import entered
from tracebridge.core.ir.name_stack import AttributeScope, attributes_of

_COMPUTE_TYPES = {"host": "device_host", "dense": "device", "sparseoffload": "tpu_sparsecore"}


class EquationContext(NamedTuple):
    """The attributes of an equation's operations; options that it depends on are parameters."""

    scopes: tuple[AttributeScope, ...]

    @property
    def xla_metadata(self) -> dict[str, str]:
        """The attributes by name."""
        found = {name: text for scope in self.scopes for name, text in scope.attributes}
        return {name: text for name, text in found.items() if text is not None}

    @property
    def compute_type(self) -> str | None:
        """Where it runs, as given to ``compute_on``."""
        return _COMPUTE_TYPES.get(self.xla_metadata.get("_xla_compute_type", ""))

    @property
    def manager(self) -> AbstractContextManager[None]:
        """A block in which it is in force again."""
        return entered(self.scopes)


def context_of(source: object) -> EquationContext:
    """What was in force where a stored source of an equation comes from."""
    return EquationContext(tuple(attributes_of(source)))
