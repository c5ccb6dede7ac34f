"""Giving a transformed function the name and documentation of the original."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tracebridge.core.ir.debug_info import name_of

F = TypeVar("F", bound=Callable[..., Any])

# Objects that can be called may have anything under these names; a function takes these types.
_COPIED: tuple[tuple[str, type], ...] = (
    ("__module__", str),
    ("__name__", str),
    ("__qualname__", str),
    ("__doc__", str),
    ("__annotations__", dict),
)


def named_like(fun: Callable[..., object], doc: str = "") -> Callable[[F], F]:
    """Decorator: name, documentation and signature of ``fun``.

    Attributes of ``fun`` are not copied, as functools.wraps would do: those of a compiled
    function (``lower``, ``clear_cache``) do not belong to its gradient. ``doc`` says what became
    of the function, whose name replaces ``{fun}`` in it; it comes before the documentation of
    ``fun``.
    """

    def decorate(wrapper: F) -> F:
        for attribute, kind in _COPIED:
            value = getattr(fun, attribute, None)
            if isinstance(value, kind):
                setattr(wrapper, attribute, value)
        if doc:
            own = doc.replace("{fun}", name_of(fun))
            before = getattr(fun, "__doc__", None)
            wrapper.__doc__ = f"{own}\n\n{before}" if before else own
        wrapper.__wrapped__ = fun  # type: ignore[attr-defined]  # read by inspect.signature
        return wrapper

    return decorate
