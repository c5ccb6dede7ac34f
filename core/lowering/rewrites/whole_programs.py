"""Programs that compute elements of large arrays, and sums of all of them, and nothing else.

As kernels over rows they are called without XLA (``core/lowering/direct.py``), which a program of
two or three passes over memory feels: XLA wakes its threads for each call.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.config.values import option
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.traverse import all_jaxprs, distinct_applications, primitives_of
from tracebridge.core.kernels.rows.frame import Frame, Shape, frame_over
from tracebridge.core.kernels.rows.program import RESHAPES
from tracebridge.core.lowering.rewrites.flat import computed_by, is_call
from tracebridge.core.lowering.rewrites.inlined import inlined
from tracebridge.core.lowering.rewrites.producers import facts_of

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.primitive import Primitive

_LEAST = 1 << 11  # elements: smaller programs are compiled in less time without kernels
LEAST_COSTLY = 1 << 16  # of which costly functions are computed: XLA is as fast at fewer
_MOVING = frozenset({lax.broadcast_in_dim_p, lax.stop_gradient_p, *RESHAPES})


def whole_shape(jaxpr: Jaxpr) -> Shape | None:
    """The shape of the large arrays of such a program; None of any other, and of bodies."""
    return facts_of(jaxpr).get("whole program")


def see_whole(jaxpr: Jaxpr) -> Jaxpr:
    """The outermost program, or what a rewrite has made of it: ``whole_shape`` tells of it."""
    facts = facts_of(jaxpr)
    if "whole program" not in facts:
        facts["whole program"] = _whole_shape(jaxpr)
    return jaxpr


def as_main(jaxpr: Jaxpr, takes_memory: bool) -> Jaxpr:
    """The outermost program, as it is to be lowered: one that is such a program is marked.

    As a body of a loop, or called within another program, it is as any other: XLA does what is
    around it in the same pass. Another Jaxpr stands for it, since it may be that, too.

    ``takes_memory``: some results have the memory of arguments. A kernel would need memory of its
    own, and a copy; XLA's loops write over what they read. Those of costly functions take longer
    than a kernel and a copy.
    """
    if "main" not in jaxpr.cache:
        jaxpr.cache["main"] = _marked(jaxpr) if _whole_shape(jaxpr) is not None else None
    main = jaxpr.cache["main"]
    if main is None or not option("platform_rules") or (takes_memory and not _is_costly(jaxpr)):
        return jaxpr
    return main


def is_marked(jaxpr: Jaxpr) -> bool:
    """Whether it is such a program, and the outermost one."""
    return "is main" in jaxpr.cache


def mark(jaxpr: Jaxpr) -> None:
    """Let ``is_marked`` tell so."""
    jaxpr.cache["is main"] = True


def _marked(jaxpr: Jaxpr) -> Jaxpr:
    given = jaxpr.in_avals, jaxpr.consts, jaxpr.equations, jaxpr.outs, jaxpr.out_avals
    main = Jaxpr(*given, jaxpr.sources, jaxpr.debug)
    mark(main)
    return main


def _whole_shape(jaxpr: Jaxpr) -> Shape | None:
    if not jaxpr.equations or not all([_is_whole(aval) for aval in jaxpr.out_avals]):
        return None
    shapes = {aval.shape for aval in jaxpr.out_avals if aval.ndim}
    todo: list[Jaxpr] = [jaxpr]
    while todo:
        program = todo.pop()
        primitives = primitives_of(program)
        calls = {p for p in primitives if is_call(p)}
        if not all([_is_plain(p) for p in primitives if p not in calls]):
            return None
        for app in distinct_applications(program):
            if app.primitive is lax.reduce_sum_p:
                if not _is_sum_of_all(app):
                    return None
                shapes.add(app.avals[0].shape)
            elif app.primitive in calls:
                called = inlined(app) or computed_by(app)
                if called is None:
                    return None
                todo.append(called)
        if len(shapes) > 1:
            return None
    shape = next(iter(shapes), None)
    if shape is not None and math.prod(shape) < LEAST_COSTLY and _is_costly(jaxpr):
        return None
    return shape


def _is_plain(primitive: Primitive) -> bool:
    return primitive.is_elementwise or primitive in _MOVING or primitive is lax.reduce_sum_p


def _is_whole(aval: ShapedArray) -> bool:
    """Whether a result is a number or a large array."""
    return not aval.ndim or _is_large(aval)


def _is_large(aval: ShapedArray) -> bool:
    return all([type(n) is int for n in aval.shape]) and math.prod(aval.shape) >= _LEAST


def _is_sum_of_all(app: Application) -> bool:
    return not app.out.ndim and _is_large(app.avals[0])


def _is_costly(jaxpr: Jaxpr) -> bool:
    """Whether a program or one that it calls has functions such as exponentials."""
    programs = all_jaxprs(jaxpr)
    return any([p.cost is Cost.EXPENSIVE for program in programs for p in primitives_of(program)])


def frame_of_ends(jaxpr: Jaxpr) -> dict[Shape, Frame] | None:
    """The frame of what kernels leave of sums of all: numbers of rows, which are one row.

    None if there is nothing left to sum, or anything else.
    """
    rests: set[Any] = set()
    for app in distinct_applications(jaxpr):
        if app.primitive is lax.reduce_sum_p:
            rests.add(app.avals[0])
    if len(rests) != 1:
        return None
    (aval,) = rests
    if aval.ndim != 1:
        return None
    frame = frame_over(aval.shape, (0,), (), aval.dtype.itemsize > 4)
    return {aval.shape: frame}
