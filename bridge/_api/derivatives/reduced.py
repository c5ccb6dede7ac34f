"""Option ``reduce_axes`` of reverse-mode derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracebridge.core.collectives.shared import mark_shared, reduced_axes
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.ir.values import Value


def with_reduced_axes(
    call: str, fun: Callable[..., list[Value]], values: Sequence[Value], reduce_axes: Any
) -> Callable[..., list[Value]]:
    """``fun``, a function of ``values``, with cotangents summed over the named axes.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds a name.
    """
    axes = reduced_axes(call, reduce_axes)

    def marked(*xs: object) -> list[Value]:
        return fun(
            *[
                mark_shared(x, value, axes) if is_inexact(value.aval.dtype) else x
                for x, value in zip(xs, values, strict=True)
            ]
        )

    return marked
