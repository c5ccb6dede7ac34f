"""Frontend attributes: what single operations tell XLA about themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.mlir.attrs import dictionary, string

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "mhlo.frontend_attributes"


def attach(operation: Any, attributes: Mapping[str, str]) -> None:
    """Let an operation have attributes besides its own, which win."""
    given = {name: string(text) for name, text in attributes.items()}
    if _KEY in operation.attributes:
        given |= {entry.name: entry.attr for entry in operation.attributes[_KEY]}
    operation.attributes[_KEY] = dictionary(given)
