"""Small functions under torch.func, run as torch's own operations.

Each program of XLA costs as much there as several operations of torch. So a function of a few
elementwise operations and sums, over a few thousand elements, is written as those: torch
differentiates and maps them as it does its own. Which operations may be in it says ``_FORMS``: such
that torch gives the same values within rounding, and has the same derivatives, everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import tracebridge.core.lax as lax
from tracebridge._derived.families import Family
from tracebridge.core.config.values import fast_path_allowed
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.values import Literal
from tracebridge.torch._crossing.numbers import aval_of

Run = Callable[..., Sequence[torch.Tensor]]

MAX_OPERATIONS = 4  # more cost as much as a program
MAX_ELEMENTS = 1 << 12  # of each tensor: for more the program is faster
_KEY = "operations of torch"
_DTYPES = np.dtype("float32"), np.dtype("float64")


def _power(x: str, *, y: int) -> str | None:
    return f"{x} ** {y}" if y in (2, 3) else None


def _sum(x: str, *, axes: Sequence[int]) -> str | None:
    return f"torch.sum({x}, {tuple(axes)})" if axes else None  # () would be all of them


def _quotient(x: str, y: str) -> str | None:
    # Of tensors: derivatives at 0 have other infinities.
    return None if y.isidentifier() or float(y) == 0 else f"{x} / {y}"


# The expression for a primitive, of the names of tensors and of numbers; None: not for these.
_FORMS: Mapping[Primitive, Callable[..., str | None]] = {
    lax.add_p: lambda x, y: f"{x} + {y}",
    lax.sub_p: lambda x, y: f"{x} - {y}",
    lax.mul_p: lambda x, y: f"{x} * {y}",
    lax.div_p: _quotient,
    lax.neg_p: lambda x: f"-{x}",
    lax.integer_pow_p: _power,
    lax.sin_p: lambda x: f"torch.sin({x})",
    lax.cos_p: lambda x: f"torch.cos({x})",
    lax.tanh_p: lambda x: f"torch.tanh({x})",
    lax.exp_p: lambda x: f"torch.exp({x})",
    lax.reduce_sum_p: _sum,
}
# The parameters that these forms read; with others, such as an accuracy, programs stay programs.
_PARAMS: Mapping[Primitive, frozenset[str]] = {
    lax.integer_pow_p: frozenset({"y"}),
    lax.reduce_sum_p: frozenset({"axes"}),
}
_NONE: frozenset[str] = frozenset()


def as_operations(family: Family, xs: Sequence[torch.Tensor]) -> Run | None:
    """``run(*xs)`` for tensors of these dtypes and shapes; None if the function is not small.

    No modes are in force, nor options of the thread.
    """
    if not fast_path_allowed() or torch._C._is_any_autocast_enabled():
        return None
    # Operations of torch keep the order of the axes in memory, programs do not.
    if not all([x.is_cpu and x.is_contiguous() for x in xs]):
        return None
    program = inline_calls(family.program(tuple([aval_of(x) for x in xs])))
    if _KEY not in program.cache:
        program.cache[_KEY] = _compiled(program)
    return program.cache[_KEY]


def _compiled(program: Jaxpr) -> Run | None:
    lines = _lines(program) if _is_small(program) else None
    if lines is None:
        return None
    names = ", ".join(_names_of_inputs(program))
    source = "\n    ".join([f"def run({names}):", *lines])
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(source, "<tracebridge operations>", "exec"), scope)  # noqa: S102 (the source is made of numbers and of the words above)
    return scope["run"]


def _is_small(program: Jaxpr) -> bool:
    if program.effects or not 0 < len(program.equations) <= MAX_OPERATIONS:
        return False
    results = [aval for app, _ in program.equations for aval in app.outs]
    return all([_is_plain(aval) for aval in (*program.in_avals, *results)])


def _is_plain(aval: ShapedArray) -> bool:
    known = all([type(n) is int for n in aval.shape])
    return aval.dtype in _DTYPES and known and 0 < math.prod(aval.shape) <= MAX_ELEMENTS


def _names_of_inputs(program: Jaxpr) -> list[str]:
    return [f"x{i}" for i in range(program.n_in)]


def _lines(program: Jaxpr) -> list[str] | None:
    """The body of the function; None if it has something that is not in the table."""
    names = [*_names_of_inputs(program), *[_number(c) for c in program.consts]]
    start = len(names)
    lines: list[str] = []
    for k, (app, places) in enumerate(program.equations):
        form = _FORMS.get(app.primitive)
        operands = [names[i] for i in places]
        if form is None or None in operands or not any([_is_name(x) for x in operands]):
            return None
        if not app.params.keys() <= _PARAMS.get(app.primitive, _NONE):
            return None
        expression = form(*operands, **app.params)
        if expression is None:
            return None
        lines.append(f"v{k} = {expression}")
        names.append(f"v{k}")
    # Each result has memory of its own: none is an input, a number or another result.
    if min(program.outs, default=0) < start or len(set(program.outs)) < len(program.outs):
        return None
    return [*lines, f"return [{', '.join([str(names[i]) for i in program.outs])}]"]


def _number(x: Any) -> str | None:
    """The text of a scalar constant; None of others, and of what Python has no literal for."""
    if not isinstance(x, Literal) or x.aval.dtype not in _DTYPES or not math.isfinite(x.value):
        return None
    return repr(float(x.value))


def _is_name(operand: str | None) -> bool:
    return operand is not None and operand.isidentifier()
