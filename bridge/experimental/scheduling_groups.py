"""Names for operations that XLA is to schedule together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracebridge._api.args.op_attributes import OpAttributes, text_of
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["scheduling_group", "xla_metadata_call"]


def scheduling_group(name: str) -> Callable[..., Any]:
    """Make a function of which the operations are of a group of XLA's scheduler.

    Values stay the same; on which platforms the order of the operations changes is up to XLA.

    Args:
        name: what the group is called.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.scheduling_groups import scheduling_group
    >>> f = tb.jit(scheduling_group("first")(tb.lax.sin))
    >>> 'scheduling_group = "first"' in f.lower(1.0).as_text()
    True
    """
    return xla_metadata_call(scheduling_group=name)


def xla_metadata_call(f: Callable[..., Any] | None = None, **meta: Any) -> Callable[..., Any]:
    """Make a function of which the operations have attributes for XLA.

    As a block of ``set_xla_metadata`` around each call.

    Args:
        f: the function; without it the result is a decorator.
        meta: attributes by name: texts, numbers or booleans.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.scheduling_groups import xla_metadata_call
    >>> f = tb.jit(xla_metadata_call(tb.lax.sin, pace="slow"))
    >>> 'pace = "slow"' in f.lower(1.0).as_text()
    True
    """
    attributes: dict[str, str | None] = {key: text_of(value) for key, value in meta.items()}

    def decorated(fun: Callable[..., Any]) -> Callable[..., Any]:
        return OpAttributes(attributes)(fun)

    return decorated if f is None else decorated(f)


_shield(globals(), __name__)
