"""How tests look into the equations of programs: the names of primitives, the ones of a primitive.

Both take what `make_jaxpr` and `stage` return. ``inside`` counts the equations of programs in
parameters too (bodies of loops, branches, calls), after the equation that holds them, each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracebridge.core.ir.application import Application
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr, jaxprs_in_params


def primitives_in(program: Jaxpr | ClosedJaxpr, *, inside: bool = False) -> list[str]:
    """The names of the primitives of a program, in the order of its equations."""
    return [app.primitive.name for app in _walk(program, inside)]


def equations_of(
    program: Jaxpr | ClosedJaxpr, name: str, *, inside: bool = False
) -> list[Application]:
    """The equations of the primitive ``name``, in order: their parameters and avals."""
    return [app for app in _walk(program, inside) if app.primitive.name == name]


def _walk(program: Any, inside: bool) -> Iterator[Application]:
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    for app, _ in jaxpr.equations:
        yield app
        if inside:
            for inner in jaxprs_in_params(app.params):
                yield from _walk(inner, inside)
