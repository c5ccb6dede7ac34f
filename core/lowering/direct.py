"""Programs that are nothing but kernels: these can be called without XLA.

A call of XLA costs some 5 us where caches are warm and twice that behind a kernel that has used
them. A program whose form for the CPU has kernels over rows, reshapes and sums of what these leave
is a list of calls of machine code.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.config.values import option
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.kernels.rows.frame import frame_over
from tracebridge.core.kernels.rows.program import RESHAPES, Target, Written
from tracebridge.core.kernels.rows.row_kernel import named_call, row_kernel_p
from tracebridge.core.kernels.rows.running_kernel import running_call, running_kernel_p
from tracebridge.core.kernels.waiting import direct_address
from tracebridge.core.lowering.platforms import cpu_form
from tracebridge.core.lowering.rewrites.whole_programs import as_main

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_MOST_CALLS = 4
_LARGEST = 1 << 21  # elements of an array: more take so long that the way does not count
_MOST_SUMMED = 1 << 16  # elements, of sums that one thread does
_LEAST_ACROSS = 16  # sums at a time


class KernelCall(NamedTuple):
    """Machine code, the three numbers that tell its shares, and places of operands and results."""

    address: int
    shares: tuple[int, int, int]
    operands: tuple[int, ...]
    results: tuple[int, ...]


@final
class DirectProgram(NamedTuple):
    """Calls, one after the other. Places: those of the inputs, then of the arrays ``made``.

    ``outs``: the places of the results, each one made, and none twice.
    """

    calls: tuple[KernelCall, ...]
    made: tuple[ShapedArray, ...]
    outs: tuple[int, ...]


def direct_program(jaxpr: Jaxpr) -> DirectProgram | None:
    """The calls of kernels that a program for the CPU is; None if it is anything else."""
    if not option("platform_rules") or jaxpr.effects:
        return None
    needed = dce_jaxpr(jaxpr, (True,) * len(jaxpr.outs), keep_in=True)[0]
    form = cpu_form(as_main(needed, takes_memory=False))
    kernels = [app for app, _ in form.equations if app.primitive in _KERNELS]
    if not kernels or len(kernels) > _MOST_CALLS:
        return None
    if any([a.size > _LARGEST for app in kernels for a in (*app.avals, *app.outs)]):
        return None
    return _Calls(form).program()


class _OtherEquation(Exception):
    """An equation that is no kernel, nor done by one."""


@final
class _Calls:
    """The calls of a program while they are found."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.avals: list[ShapedArray] = list(jaxpr.in_avals)
        """Of each place."""
        self.places: list[int | None] = [*range(jaxpr.n_in), *[None] * len(jaxpr.consts)]
        """Of each variable; None of constants."""
        self.calls: list[KernelCall] = []

    def program(self) -> DirectProgram | None:
        """All calls, if every equation is one."""
        jaxpr = self.jaxpr
        try:
            for app, args in jaxpr.equations:
                self._add(app, [self._place(a) for a in args])
            outs = [self._place(v) for v in jaxpr.outs]
        except _OtherEquation:
            return None
        if min(outs, default=0) < jaxpr.n_in or len(set(outs)) < len(outs):
            return None
        avals = dict(zip(outs, jaxpr.out_avals, strict=True))
        made = [avals.get(place, aval) for place, aval in enumerate(self.avals)]
        return DirectProgram(tuple(self.calls), tuple(made[jaxpr.n_in :]), tuple(outs))

    def _place(self, variable: int) -> int:
        place = self.places[variable]
        if place is None:
            raise _OtherEquation
        return place

    def _add(self, app: Application, operands: Sequence[int]) -> None:
        if app.primitive in RESHAPES:
            self.places.append(operands[0])
            return
        if app.primitive is lax.reduce_sum_p:
            given = named_call(_sum(app))
        elif app.primitive in _KERNELS:
            given = _KERNELS[app.primitive](app)
        else:
            raise _OtherEquation
        name, shares = given
        address = direct_address(name)
        if address is None:
            raise _OtherEquation
        results = range(len(self.avals), len(self.avals) + len(app.outs))
        self.avals.extend(app.outs)
        self.places.extend(results)
        self.calls.append(KernelCall(address, shares, tuple(operands), tuple(results)))


def _sum(app: Application) -> Mapping[str, Any]:
    """The parameters of a kernel for a small sum over the first axes."""
    (aval,), axes = app.avals, app.params["axes"]
    summed, left = aval.shape[: len(axes)], aval.shape[len(axes) :]
    if axes != tuple(range(len(axes))) or aval.dtype != np.float32 or aval.size > _MOST_SUMMED:
        raise _OtherEquation
    if math.prod(left) < _LEAST_ACROSS or math.prod(summed) < 2:
        raise _OtherEquation
    graph = Graph()
    inputs = graph.inputs([aval])
    program = graph.program(inputs, [graph.add(app, inputs)], NO_DEBUG_INFO)
    return {
        "program": program,
        "frame": frame_over(aval.shape, axes, ()),
        "views": (None,),
        "written": Written(tuple(program.out_avals), (Target(0),)),
        "numbers": (),
    }


_KERNELS: dict[Any, Any] = {
    row_kernel_p: lambda app: named_call(app.params),
    running_kernel_p: lambda app: running_call(app.out.shape, app.params),
}
"""By primitive the name of the kernel that an equation calls, and what the call tells."""
