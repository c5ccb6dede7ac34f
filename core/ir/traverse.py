"""Walking through programs and the programs in their parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracebridge.core.ir.jaxpr import Jaxpr, jaxprs_in_params

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.primitive import Primitive

_OF_APPLICATIONS = frozenset({"applications", "primitives"})
"""What of a memo follows from the applications alone."""


def sub_jaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The programs in the parameters of the equations of ``jaxpr``, in order."""
    for app, _ in jaxpr.equations:
        yield from jaxprs_in_params(app.params)


def primitives_of(jaxpr: Jaxpr) -> frozenset[Primitive]:
    """The primitives of the equations of ``jaxpr``, without those of programs below it."""
    found = jaxpr.cache.get("primitives")
    if found is None:
        found = frozenset([app.primitive for app in distinct_applications(jaxpr)])
        jaxpr.cache["primitives"] = found
    return found


def distinct_applications(jaxpr: Jaxpr) -> tuple[Application, ...]:
    """The applications of ``jaxpr``, each once, in order, without those of programs below it.

    They are a tenth of the equations where layers are alike: what equations of a kind have in
    common is looked up here.
    """
    found = jaxpr.cache.get("applications")
    if found is None:
        found = tuple(dict.fromkeys([app for app, _ in jaxpr.equations]))
        jaxpr.cache["applications"] = found
    return found


def copy_applications(jaxpr: Jaxpr, same: Jaxpr) -> None:
    """Let a program with the same equations have what is known of these."""
    for fact in _OF_APPLICATIONS & jaxpr.cache.keys():
        same.cache[fact] = jaxpr.cache[fact]


def all_jaxprs(jaxpr: Jaxpr) -> list[Jaxpr]:
    """``jaxpr`` and the programs below it, each once, outer ones first."""
    found: dict[int, Jaxpr] = {}
    todo = [jaxpr]
    while todo:
        program = todo.pop()
        if id(program) not in found:
            found[id(program)] = program
            for app in distinct_applications(program):
                todo.extend(jaxprs_in_params(app.params))
    return list(found.values())


def applications(jaxpr: Jaxpr) -> Iterator[Application]:
    """The applications of ``jaxpr`` and of the programs below it, each program once."""
    for program in all_jaxprs(jaxpr):
        for app, _ in program.equations:
            yield app


def count_equations(jaxpr: Jaxpr) -> int:
    """Number of equations, those of programs below it included; a program counts once."""
    return sum([len(program.equations) for program in all_jaxprs(jaxpr)])


def primitive_names(jaxpr: Jaxpr) -> set[str]:
    """Names of all primitives in ``jaxpr`` and below it."""
    return {app.primitive.name for app in applications(jaxpr)}


def holds_functions(jaxpr: Jaxpr) -> bool:
    """Whether an equation has a Python function in its parameters: it must not be kept alive."""
    for app in distinct_applications(jaxpr):
        known = app.holds_functions
        if known or (known is None and is_with_functions(app)):
            return True
    return False


def is_with_functions(app: Application) -> bool:
    """Whether an application has a Python function in its parameters, at any depth."""
    known = app.holds_functions
    if known is None:
        known = app.holds_functions = (
            app.primitive.holds_functions
            or any([callable(value) for value in app.params.values()])
            or any([holds_functions(inner) for inner in jaxprs_in_params(app.params)])
        )
    return known
