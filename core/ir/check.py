"""The type checker of Jaxprs; option ``enable_checks`` runs it on every program that is staged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.transform_errors import JaxprTypeError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.traverse import sub_jaxprs
from tracebridge.core.ir.user_type import UserType, same_type

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application


def check_jaxpr(jaxpr: Jaxpr) -> None:
    """Check ``jaxpr`` and the programs in its equations, each object once.

    Raises:
        JaxprTypeError: a variable is not defined yet, an argument or result has another type
            than its equation says, or a constant is no value.
    """
    if "checked" in jaxpr.cache:
        return
    avals: list[Any] = list(jaxpr.in_avals)
    for i, aval in enumerate(avals):
        if not isinstance(aval, ShapedArray | UserType):
            raise _error(jaxpr, f"input {i} has the type {aval!r}, which is no aval")
    for const in jaxpr.consts:
        if not isinstance(getattr(const, "aval", None), ShapedArray | UserType):
            raise _error(jaxpr, f"the constant {const!r} is no value")
        avals.append(const.aval)
    for k, (app, variables) in enumerate(jaxpr.equations):
        _check_equation(jaxpr, k, app, variables, avals)
        avals.extend(app.outs)
    if len(jaxpr.outs) != len(jaxpr.out_avals):
        counts = f"{len(jaxpr.outs)} results, but {len(jaxpr.out_avals)} types of results"
        raise _error(jaxpr, f"there are {counts}")
    for i, (variable, aval) in enumerate(zip(jaxpr.outs, jaxpr.out_avals, strict=True)):
        if not 0 <= variable < len(avals):
            raise _error(jaxpr, f"result {i} is slot {variable} of {len(avals)}")
        if not _same_type(avals[variable], aval):
            raise _error(
                jaxpr, f"result {i} is {avals[variable].str_short()}, declared {aval.str_short()}"
            )
    if jaxpr.sources is not None and len(jaxpr.sources) != len(jaxpr.equations):
        counts = f"{len(jaxpr.sources)} source locations for {len(jaxpr.equations)} equations"
        raise _error(jaxpr, f"there are {counts}")
    for program in sub_jaxprs(jaxpr):
        check_jaxpr(program)
    jaxpr.cache["checked"] = True


def _check_equation(
    jaxpr: Jaxpr,
    k: int,
    app: Application,
    variables: tuple[int, ...],
    avals: list[ShapedArray],
) -> None:
    where = f"equation {k} ({app.primitive.name})"
    if len(variables) != len(app.avals):
        raise _error(jaxpr, f"{where} has {len(variables)} arguments, expected {len(app.avals)}")
    for position, (variable, expected) in enumerate(zip(variables, app.avals, strict=True)):
        if not 0 <= variable < len(avals):
            raise _error(
                jaxpr,
                f"{where}: argument {position} is slot {variable}, only {len(avals)} are defined",
            )
        if not _same_type(avals[variable], expected):
            raise _error(
                jaxpr,
                f"{where}: argument {position} is {avals[variable].str_short()}, expected "
                f"{expected.str_short()}",
            )
    if app.multiple is not app.primitive.multiple_results:
        raise _error(jaxpr, f"{where} does not know whether it has several results")
    if app.primitive.inlinable:
        _check_call(jaxpr, where, app, app.params["jaxpr"])


def _check_call(jaxpr: Jaxpr, where: str, app: Application, called: Jaxpr) -> None:
    """An equation that calls a program must have the program's types."""
    for what, given, wanted in (
        ("arguments", app.avals, called.in_avals),
        ("results", app.outs, called.out_avals),
    ):
        same = len(given) == len(wanted) and all(map(_same_type, given, wanted))
        if not same:
            raise _error(
                jaxpr, f"{where} has {what} {_types(given)}, its program has {_types(wanted)}"
            )


def _same_type(one: ShapedArray, two: ShapedArray) -> bool:
    """Weak types are no part of a program's meaning."""
    return one is two or same_type(one, two)


def _types(avals: tuple[Any, ...]) -> str:
    return f"({', '.join([a.str_short() for a in avals])})"


def _error(jaxpr: Jaxpr, message: str) -> JaxprTypeError:
    name = jaxpr.debug.name
    return JaxprTypeError(
        f"the program of {name} is not well formed: {message}",
        hint="this is a bug in the engine, or in a primitive defined outside of it",
    )
