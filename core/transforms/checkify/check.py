"""check: a condition that must hold, as an equation that transformations keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.calls.bodies import flatten_values
from tracebridge.core.errors.check_errors import FailedCheckError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.effects import Effect, Effects
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.transforms.checkify.error import Error, Lane, Layout, Site

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class CheckEffect(Effect):
    """A program has checks, which ``checkify`` turns into an error value."""

    __slots__ = ()
    in_checkpoint = True
    in_batched_choice = True


CHECK_EFFECT = CheckEffect()
_CHECKS: Effects = frozenset({CHECK_EFFECT})


@final
class Check(Primitive):
    """Fails with site ``code - 1`` of ``sites`` unless ``code`` is 0.

    Operands are ``code`` and the payloads of ``layout``. With ``debug`` nothing happens unless
    ``checkify`` is applied.
    """

    name = "check"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> list[ShapedArray]:
        return []

    def effects(self, *avals: ShapedArray, **params: object) -> Effects:
        return _CHECKS

    def evaluate(self, arrays: Sequence[object], **params: Any) -> Any:
        """Eagerly: raise."""
        if not params["debug"]:
            Error(arrays[0], tuple(arrays[1:]), params["layout"], params["sites"]).throw()
        return []

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        if params["debug"]:
            return []
        text = params["sites"][0].template if params["sites"] else ""
        msg = (
            f"Cannot abstractly evaluate check({text!r}), which is part of a compiled program, "
            "where no exception can be raised"
        )
        raise ArgumentSpecError(
            msg, hint="apply checkify to the function inside of jit, or to the compiled function"
        )

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        self.bind(*primals, **params)
        return [], []

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """The first failure in the batch."""
        if dims[0] is None:
            # The elements fail together: the payload of the first one stands for all.
            first = literal(0, np.int32)
            code = args[0]
        else:
            codes = move_batch_axis(args[0], dims[0], 0)
            first = first_failure(codes)
            code = lax.dynamic_index_in_dim(codes, first, keepdims=False)
        lanes = [
            a if d is None else lax.dynamic_index_in_dim(a, first, d, keepdims=False)
            for a, d in zip(args[1:], dims[1:], strict=True)
        ]
        self.bind(code, *lanes, **params)
        return [], []


check_p = Check()


def first_failure(codes: Any) -> Any:
    """The position of the first code that is not 0."""
    return lax.argmax(lax.ne(codes, literal(0, np.int32)), 0, np.int32)


def lanes_of(values: Sequence[Any]) -> Layout:
    """The lanes for the payload of one site."""
    seen: dict[Any, int] = {}
    lanes: list[Lane] = []
    for value in values:
        kind = (value.aval.shape, value.aval.dtype)
        lanes.append(Lane(*kind, seen.get(kind, 0)))
        seen[kind] = lanes[-1].position + 1
    return tuple(lanes)


def check(
    pred: Any, msg: str, *fmt_args: object, debug: bool = False, **fmt_kwargs: object
) -> None:
    """Say that a condition must hold, also in functions that are transformed.

    Outside of traced functions a condition that does not hold raises at once. Inside, the check
    becomes part of the program, and ``checkify`` turns it into an error value.

    Args:
        pred: scalar bool.
        msg: what to say if it is false; formatted with the arguments, as ``str.format`` does.
        *fmt_args: trees of arrays and numbers for the message.
        debug: check only where ``checkify`` is applied.
        **fmt_kwargs: the same by name.

    Raises:
        FailedCheckError: the condition does not hold.
        ArgumentSpecError: ``pred`` is no scalar bool, or ``msg`` no string.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental import checkify
    >>> def root(x):
    ...     checkify.check(x >= 0, "no root of {}", x)
    ...     return tb.lax.sqrt(x)
    >>> error, y = tb.jit(checkify.checkify(root))(-4.0)
    >>> error.get().startswith("no root of -4.0")
    True
    """
    if not isinstance(msg, str):  # pyright: ignore[reportUnnecessaryIsInstance] - the caller's mistake
        text = f"check: msg is {msg!r} of type {type(msg).__name__}, expected a string"
        raise ArgumentSpecError(text)
    value = _predicate(pred)
    values, tree = flatten_values("check", "the arguments of the message", (fmt_args, fmt_kwargs))
    lanes = lanes_of(values)
    code = lax.select_n(value, literal(1, np.int32), literal(0, np.int32))
    site = Site(FailedCheckError, msg, "", lanes, tree)
    check_p.bind(code, *values, sites=(site,), layout=lanes, debug=bool(debug))


def debug_check(pred: object, msg: str, *fmt_args: object, **fmt_kwargs: object) -> None:
    """A check that counts only where ``checkify`` is applied; elsewhere it costs nothing.

    The arguments are those of ``check``.

    >>> from tracebridge.experimental import checkify
    >>> checkify.debug_check(False, "not seen")
    >>> error, _ = checkify.checkify(lambda: checkify.debug_check(False, "seen"))()
    >>> error.get().startswith("seen")
    True
    """
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def _predicate(pred: Operand) -> Any:
    try:
        value = as_value(pred)
    except UnsupportedDtypeError as error:
        msg = f"check: pred is {shown(pred)} of type {type(pred).__name__}, expected a scalar bool"
        raise ArgumentSpecError(msg) from error
    if value.aval.ndim or value.aval.dtype != np.bool_:
        msg = f"check: pred is {value.aval.str_short()}, expected a scalar bool"
        raise ArgumentSpecError(msg, hint="compare, or reduce with tracebridge.numpy.all")
    return value


def check_error(error: Error) -> None:
    """Raise an error value, or make it part of a traced program like a failed ``check``.

    Args:
        error: what a function made by ``checkify`` returned.

    Raises:
        CheckError: the error is one, outside of traced functions.
        ArgumentSpecError: ``error`` is no error of a checked function.

    >>> from tracebridge.experimental import checkify
    >>> error, _ = checkify.checkify(lambda: checkify.check(False, "a {}", 1))()
    >>> checkify.checkify(lambda: checkify.check_error(error))()[0].get() == error.get()
    True
    """
    if not isinstance(error, Error):  # pyright: ignore[reportUnnecessaryIsInstance] - the caller's mistake
        msg = f"check_error: got {error!r} of type {type(error).__name__}, expected an Error"
        raise ArgumentSpecError(msg)
    code, lanes, layout, sites = error.parts()
    values = [as_value(x) for x in (code, *lanes)]
    while values[0].aval.ndim:
        first = first_failure(values[0]) if values[0].aval.ndim == 1 else None
        if first is None:
            values = [_merged(v) for v in values]
        else:
            values = [lax.dynamic_index_in_dim(v, first, keepdims=False) for v in values]
    check_p.bind(*values, sites=sites, layout=layout, debug=False)


def _merged(x: Value) -> Any:
    """The two leading batch axes as one."""
    a, b, *rest = x.aval.shape
    return lax.reshape(x, (a * b, *rest))
