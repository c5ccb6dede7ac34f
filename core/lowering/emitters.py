"""Small programs, which XLA compiles in half of the time by its older way of making code.

Up to jaxlib 0.10 an option leaves out the emitters that make each kernel for the CPU by passes of
its own. Without them single operations on few numbers compile in 0.45 to 0.75 of the time and run
as fast, with the same bits (docs/decisions/0064). That is no choice for all programs: functions
that are loops get no vectors and take up to 5 times as long for hundreds of numbers, 16-bit and
complex numbers up to twice as long for thousands, and products beside others compile slowly.

Milliseconds of compilation, microseconds of a call, 512 float32, with and without emitters:

| function | compiles | compiles without | runs | runs without |
|---|---|---|---|---|
| sin | 20 | 11 | 6.2 | 6.3 |
| sum | 21 | 12 | 6.1 | 6.2 |
| var | 37 | 22 | 7.1 | 7.1 |
| softmax | 42 | 28 | 7.3 | 7.3 |
| gammainc | 173 | 129 | 30 | 86 |
| betainc | 346 | 334 | 22 | 114 |
| betainc of 8 | 291 | 167 | 8.4 | 9.0 |
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import bfloat16
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.traverse import all_jaxprs, primitives_of
from tracebridge.core.lowering.tiles import called_applications

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.primitive import Primitive

_MOST_EQUATIONS = 16
_MOST_ELEMENTS = 1024
# Loops lose by their vectors what they win: 64 float32 of betainc take 24 us, compiled so, and 12,
# 16 take 9.6 and 7.1, 8 take 7.4 and 6.5.
_MOST_OF_FUNCTIONS = 8  # elements of what is no operation of XLA: it may be a loop
_MOST_BYTES = 32  # of any value of a function of the library

_DTYPES = frozenset([np.dtype(c) for c in "?bBhHiIlLqQefd"]) | {bfloat16}
_COSTS = frozenset(Cost) - {Cost.CONTRACTION, Cost.OTHER}
_OTHERS = frozenset({
    lax.argmax_p, lax.argmin_p, lax.cumsum_p, lax.dynamic_slice_p, lax.dynamic_update_slice_p,
    lax.gather_p, lax.scatter_p, lax.scatter_add_p, lax.sort_p,
})  # fmt: skip
# The older way compiles padding more slowly, and gives tangents another last bit.
_LEFT_OUT = frozenset({lax.pad_p, lax.tan_p})


def is_small(jaxpr: Jaxpr) -> bool:
    """Whether a program has few equations on few real numbers, without loops.

    A product is alone in it.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> [is_small(tb.make_jaxpr(tnp.exp)(tnp.ones(n)).jaxpr) for n in (100, 10000)]
    [True, False]
    """
    if len(jaxpr.equations) > _MOST_EQUATIONS or jaxpr.effects:
        return False
    apps = list(itertools.islice(called_applications(jaxpr), _MOST_EQUATIONS + 1))
    # Products compile as fast as before or faster when nothing is computed beside them.
    is_alone = sum([app.primitive.cost is not Cost.FREE for app in apps]) == 1
    others = _OTHERS | {lax.dot_general_p} if is_alone else _OTHERS
    return len(apps) <= _MOST_EQUATIONS and all([_is_small(app, others) for app in apps])


def _is_small(app: Application, others: Collection[Primitive]) -> bool:
    primitive = app.primitive
    if primitive in _LEFT_OUT or not (primitive.cost in _COSTS or primitive in others):
        return False
    # What was lowered as one operation of XLA has its recipe.
    is_function = primitive.is_elementwise and not app.recipe
    most = _MOST_OF_FUNCTIONS if is_function else _MOST_ELEMENTS
    return all([_has_few(aval, most) for aval in (*app.avals, *app.outs)])


def _has_few(aval: ShapedArray, most: int) -> bool:
    dtype, size = aval.dtype, aval.size
    return dtype in _DTYPES and type(size) is int and size <= most


def is_brief(jaxpr: Jaxpr, largest: float) -> bool:
    """Whether a function of the library, which may have loops, takes hardly any time to run.

    ``largest``: bytes of its largest value.
    """
    return largest <= _MOST_BYTES and all(
        [all(map(_has_no_products, primitives_of(program))) for program in all_jaxprs(jaxpr)]
    )


def _has_no_products(primitive: Primitive) -> bool:
    if primitive.cost in _COSTS or primitive in _OTHERS:
        return primitive not in _LEFT_OUT
    return isinstance(primitive, HigherOrderPrimitive)
