"""Options of the compiler that a jitted function has where it is a part of another program."""

from __future__ import annotations

from typing import Any

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.ir.jaxpr import Jaxpr


def check_outermost(name: str, compiler_options: Any) -> None:
    """Raise where a function with ``compiler_options`` becomes a part of another program."""
    if compiler_options:
        msg = (
            f"jit({name}): compiler_options={dict(compiler_options)!r} hold for a whole program, "
            "but the function is called inside of another one"
        )
        raise ArgumentValueError(
            msg, hint="give them to the outermost jit, or call the function outside of it"
        )


def lifted_options(jaxpr: Jaxpr) -> tuple[Jaxpr, tuple[tuple[str, Any], ...]]:
    """``jaxpr`` without the ``compiler_options`` of the functions that it calls, and these.

    For who compiles (or exports) the function of a user as a program of its own.

    Raises:
        ArgumentValueError: it calls functions with different options.
    """
    names_by_options = {
        app.params["compiler_options"]: app.params["name"]
        for app, _ in jaxpr.equations
        if "compiler_options" in app.params
    }
    if not names_by_options:
        return jaxpr, ()
    if len(names_by_options) > 1:
        check_outermost(*next((name, options) for options, name in names_by_options.items()))
    equations: list[Any] = []
    for app, idx in jaxpr.equations:
        plain = app
        if "compiler_options" in app.params:
            params = {k: v for k, v in app.params.items() if k != "compiler_options"}
            plain = app.primitive.application(app.avals, params)
        equations.append((plain, idx))
    (options,) = names_by_options
    parts = (jaxpr.in_avals, jaxpr.consts, equations, jaxpr.outs, jaxpr.out_avals)
    return Jaxpr(*parts, jaxpr.sources, jaxpr.debug), options
