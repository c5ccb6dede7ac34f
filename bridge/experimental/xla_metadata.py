"""What programs tell XLA about single operations: frontend attributes."""

from __future__ import annotations

from typing import Any

from tracebridge._api.args.op_attributes import OpAttributes, text_of
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.annotations import op_attributes_p
from tracebridge.core.tree import tree

__all__ = ["set_xla_metadata"]


def set_xla_metadata(x: Any = None, **kwargs: Any) -> Any:
    """Frontend attributes for the operations of a block, or for the one that made a value.

    XLA hands them on through its passes, and backends look for those that they know; they change
    no values. Operations in derivatives and batches of those of the block have them as well.

    Args:
        x: values, or a tree of them, for whose operations the attributes are; None: for a block.
        kwargs: attributes by name: texts, numbers or booleans. None takes away an attribute of a
            block around this one.

    Returns:
        Without ``x`` a context manager, also a decorator of functions; else ``x``.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.xla_metadata import set_xla_metadata
    >>> @tb.jit
    ... def f(x):
    ...     with set_xla_metadata(effort="low"):
    ...         return tb.lax.tan(x)
    >>> 'mhlo.frontend_attributes = {effort = "low"}' in f.lower(1.0).as_text()
    True
    """
    texts = {name: None if v is None else text_of(v) for name, v in kwargs.items()}
    if x is None:
        return OpAttributes(texts)
    given = tuple(sorted([(name, text) for name, text in texts.items() if text is not None]))
    leaves, treedef = tree.checked_flatten(x)
    marked = [op_attributes_p.bind(as_value(leaf), attributes=given) for leaf in leaves]
    return tree.unflatten(treedef, marked)


_shield(globals(), __name__)
