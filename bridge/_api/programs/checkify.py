"""checkify: functions that also return what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.values import public
from tracebridge._api.args.wraps import named_like
from tracebridge.core.config.values import option, tracing_key
from tracebridge.core.control.calls.bodies import Body, flatten_values, trace_body
from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.errors.check_errors import (
    CheckError,
    DivisionByZeroError,
    FailedCheckError,
    NanError,
    OutOfBoundsError,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.tracer_errors import (
    ConcretizationTypeError,
    NonHashableStaticArgumentError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
)
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import literal
from tracebridge.core.transforms.checkify.error import Category, Error
from tracebridge.core.transforms.checkify.transform import EVERY_CATEGORY, Checked, Checker
from tracebridge.core.tree.tree import PyTreeDef, flatten

ErrorCategory = type[CheckError]
_NUMBERS = (bool, int, float, complex)
_NEEDS_NUMBERS = (
    ConcretizationTypeError,
    NonHashableStaticArgumentError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
)

user_checks: frozenset[Category] = frozenset({FailedCheckError})
nan_checks: frozenset[Category] = frozenset({NanError})
index_checks: frozenset[Category] = frozenset({OutOfBoundsError})
div_checks: frozenset[Category] = frozenset({DivisionByZeroError})
float_checks: frozenset[Category] = nan_checks | div_checks
automatic_checks: frozenset[Category] = float_checks | index_checks
all_checks: frozenset[Category] = automatic_checks | user_checks


def checkify(
    f: Callable[..., object], errors: Iterable[Category] = user_checks
) -> Callable[..., tuple[Error, Any]]:
    """A function that computes what ``f`` does, and whether something went wrong on the way.

    Programs that run on a device cannot raise. The new function returns an error value instead,
    which is empty or tells of the first failure: which check or primitive, in which line, with
    which numbers. It composes with ``jit``, ``vmap`` (an error for each element), ``grad`` and the
    rest, inside and around; failures inside loops and branches are found where they happen.

    Args:
        f: function of arrays and trees of arrays.
        errors: kinds of failures to look for, unions of ``user_checks`` (calls of ``check``),
            ``nan_checks``, ``div_checks``, ``index_checks``; ``float_checks`` are NaN and division,
            ``automatic_checks`` all but those of the user, ``all_checks`` everything. Checks of
            other kinds are left to a ``checkify`` further out.

    Returns:
        A function that takes the arguments of ``f`` and returns ``(error, result)``.

    Raises:
        ArgumentSpecError: ``f`` is no function, or ``errors`` no set of kinds of errors.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental import checkify
    >>> f = checkify.checkify(lambda x: tb.lax.log(x), errors=checkify.nan_checks)
    >>> error, y = f(-1.0)
    >>> error.get().startswith("nan came out of log")
    True
    """
    check_callable("checkify", f)
    enabled = _kinds(errors)

    @named_like(f)
    def checked(*args: object, **kwargs: object) -> tuple[Error, Any]:
        body, values = _traced(f, args, kwargs)
        program, checker = _transformed(body.jaxpr, enabled)
        start = literal(0, "int32")
        operands = [start, *body.hoisted, *values]
        if option("disable_jit"):
            outs = eval_jaxpr(program.jaxpr, current_trace().process, operands)
        else:
            outs = closed_call_p.bind(*operands, jaxpr=program.jaxpr)
        outs = [public(o) for o in outs]
        n = 1 + len(program.layout)
        error = Error(outs[0], tuple(outs[1:n]), program.layout, checker.table.sites)
        return error, body.out.unflatten(outs[n:])

    return api_boundary(checked)


def _apply(f: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    return f(*args, **kwargs)


def _traced(f: Callable[..., object], args: object, kwargs: object) -> tuple[Body, list[Any]]:
    """The traced function and the arguments of its program.

    What is no array, such as a string, is a constant of the program. Numbers are arguments, unless
    the function needs to know them.
    """
    leaves, tree = flatten((args, kwargs))
    constant = [not _is_value(leaf) for leaf in leaves]
    try:
        return _traced_with(f, leaves, tree, constant)
    except _NEEDS_NUMBERS:
        numbers = [c or type(x) in _NUMBERS for c, x in zip(constant, leaves, strict=True)]
        if numbers == constant:
            raise
    return _traced_with(f, leaves, tree, numbers)


def _traced_with(
    f: Callable[..., object], leaves: list[Any], tree: PyTreeDef, constant: list[bool]
) -> tuple[Body, list[Any]]:
    pairs = list(zip(leaves, constant, strict=True))
    free = [leaf for leaf, fixed in pairs if not fixed]
    values, free_tree = flatten_values("checkify", "the arguments", free)
    avals = tuple([v.aval for v in values])
    if not any(constant):
        return trace_body("checkify", f, tree, avals, _take_apart, "checkify", _apply), values

    def call(*values: object) -> Any:
        free_values = iter(values)
        args, kwargs = tree.unflatten(
            [leaf if fixed else next(free_values) for leaf, fixed in pairs]
        )
        return f(*args, **kwargs)

    call.__wrapped__ = f  # type: ignore[attr-defined]  # names and places come from there
    return trace_body("checkify", call, free_tree, avals, _take_apart, "checkify"), values


def _is_value(leaf: object) -> bool:
    try:
        as_value(leaf)
    except UnsupportedDtypeError:
        return False
    return True


def _take_apart(result: object) -> tuple[list[Any], Any]:
    return flatten_values("checkify", "the result", result)


def _transformed(jaxpr: Jaxpr, enabled: frozenset[Category]) -> tuple[Checked, Checker]:
    key = ("checkify", enabled, tracing_key())
    found = jaxpr.cache.get(key)
    if found is None:
        checker = Checker(enabled)
        found = jaxpr.cache[key] = (checker.checked(jaxpr, ()), checker)
    return found


def _kinds(errors: Any) -> frozenset[Category]:
    found: frozenset[Any]
    try:
        found = frozenset(errors)
    except TypeError:
        found = frozenset({errors})
    if not found <= EVERY_CATEGORY:
        msg = f"checkify: errors is {errors!r}, expected a set of kinds of errors"
        raise ArgumentSpecError(msg, hint="use checkify.user_checks, nan_checks, all_checks, ...")
    return found
