"""Reduction of Jaxprs, and tracing of flat functions to Jaxprs, in the form that users know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracebridge.core.compat.programs import open_jaxpr
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.interpreters.dce import dce_jaxpr as reduce_equations
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo, name_of
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr
from tracebridge.core.ir.values import Literal


def dce_jaxpr(
    jaxpr: object, used_outputs: bool | Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """A program without what does not contribute to some of its results.

    Args:
        jaxpr: the program.
        used_outputs: which results are wanted; True or False for all.
        instantiate: which inputs stay even if nothing needs them; True or False for all.

    Returns:
        The smaller program, and which inputs it has.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import partial_eval as pe
    >>> closed = tb.make_jaxpr(lambda x, y: (2 * x, tb.lax.sin(y)))(1.0, 1.0)
    >>> pe.dce_jaxpr(closed.jaxpr, [True, False])
    ({ lambda ; a:f32[]. let b:f32[] = mul 2.0:f32[] a in (b,) }, [True, False])
    """
    program = open_jaxpr(jaxpr, "dce_jaxpr")
    used = _flags("used_outputs", used_outputs, len(program.outs))
    kept = _flags("instantiate", instantiate, program.n_in)
    smaller, used_in = reduce_equations(program, used)
    if not any(kept):
        return smaller, list(used_in)
    keep = [u or k for u, k in zip(used_in, kept, strict=True)]
    whole, _ = reduce_equations(program, used, keep_in=True)
    invars = [v for v, k in zip(whole.invars, keep, strict=True) if k]
    return whole.replace(invars=invars), keep


def dce_jaxpr_consts(
    jaxpr: object, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool], list[bool]]:
    """As ``dce_jaxpr``, but says for constants and for inputs which ones the program has.

    Args:
        jaxpr: the program.
        used_outputs: which results are wanted.
        instantiate: which inputs stay even if nothing needs them; True or False for all.

    Returns:
        The smaller program, which of ``constvars`` it has, and which inputs.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import partial_eval as pe
    >>> table = tb.numpy.arange(2.0)
    >>> closed = tb.make_jaxpr(lambda x: (x * table, 2 * x))(table)
    >>> pe.dce_jaxpr_consts(closed.jaxpr, [False, True])[1:]
    ([False], [True])
    """
    program = open_jaxpr(jaxpr, "dce_jaxpr_consts")
    smaller, used_in = dce_jaxpr(program, used_outputs, instantiate)
    # Constants are compared by identity; programs without values have places for them.
    left = {id(c) for c in smaller.consts}
    consts = [c for c in program.consts if type(c) is not Literal]
    return smaller, [id(c) in left for c in consts], used_in


def _flags(name: str, flags: bool | Sequence[bool], n: int) -> tuple[bool, ...]:
    if isinstance(flags, bool):
        return (flags,) * n
    if len(flags) != n:
        msg = f"dce_jaxpr: {name} has {len(flags)} entries, expected {n}"
        raise ArgumentValueError(msg)
    return tuple(map(bool, flags))


def trace_to_jaxpr_dynamic(
    fun: Any, in_avals: Sequence[ShapedArray], **_: object
) -> tuple[Jaxpr, list[ShapedArray], list[Any]]:
    """Trace a flat function of arrays that gives a list.

    Args:
        fun: what ``tracebridge.extend.linear_util.wrap_init`` gives, or a function.
        in_avals: types of the arguments.

    Returns:
        The program, the types of its results, and the values of its ``constvars``.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import partial_eval as pe
    >>> aval = tb.core.ShapedArray((), "float32")
    >>> pe.trace_to_jaxpr_dynamic(lambda x: [tb.lax.sin(x)], [aval])[0]
    { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
    """
    call: Callable[..., Any] = getattr(fun, "call_wrapped", fun)
    jaxpr = stage(lambda *xs: list(call(*xs)), tuple(in_avals), DebugInfo(name_of(fun)))
    return jaxpr, list(jaxpr.out_avals), ClosedJaxpr(jaxpr).consts
