"""Programs in parameters: which of several remembers what is derived from all, what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.ir.jaxpr import jaxprs_in_params


def largest_jaxpr(jaxprs: Sequence[object]) -> Any:
    """The Jaxpr that remembers what is derived from all of them.

    Small ones, such as an identity, may be shared by many equations and live long; those with
    functions of the user inside belong to one program, and die with it.
    """
    return jaxprs[0] if len(jaxprs) == 1 else max(jaxprs, key=_weight)


def _weight(jaxpr: Any) -> tuple[bool, int]:
    return _holds_functions(jaxpr), len(jaxpr.equations)


def _holds_functions(jaxpr: Any) -> bool:
    found = jaxpr.cache.get("holds_functions")
    if found is None:
        found = any(
            [
                app.primitive.holds_functions
                or any([_holds_functions(inner) for inner in jaxprs_in_params(app.params)])
                for app, _ in jaxpr.equations
            ]
        )
        jaxpr.cache["holds_functions"] = found
    return found


def names_axis_inside(jaxpr: Any, axis_name: Any) -> bool:
    """Whether a collective over ``axis_name`` is in a program."""
    key = ("names_axis", axis_name)
    found = jaxpr.cache.get(key)
    if found is None:
        found = any([a.primitive.names_axis(axis_name, a.params) for a, _ in jaxpr.equations])
        jaxpr.cache[key] = found
    return found
