"""Calls of wrapped functions in graphs: the programs themselves, as part of what calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tracebridge._derived.settings import settings_of_graph
from tracebridge.core.control.calls.closed_call import closed_call
from tracebridge.core.ir.typeof import as_value
from tracebridge.torch._graphs.operator import CALL, CALL_SAVED, SNAPSHOT
from tracebridge.torch._graphs.roots import resolve
from tracebridge.torch._graphs.saved import ensure_known
from tracebridge.torch._translate.numbers import Operator


def _call(xs: Sequence[Any], handle: str, program: str = "") -> list[Any]:
    """The function, or what is derived from it; ``program``: for processes without the function."""
    values = [as_value(x) for x in xs]
    avals = tuple([x.aval.update(weak_type=False) for x in values])
    if program:
        ensure_known(handle, program)
    with settings_of_graph(handle):
        jaxpr = resolve(handle).program(avals)
    return list(closed_call(jaxpr, *values))


def _same(x: Any) -> Any:
    return x


CALLS: Final[dict[Any, Operator]] = {CALL: _call, CALL_SAVED: _call, SNAPSHOT: _same}
"""Operators of this package, which graphs of modules with wrapped functions have."""
