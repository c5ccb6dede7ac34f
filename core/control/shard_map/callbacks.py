"""Calls of Python in programs of blocks that leave some axes of the mesh to the compiler.

XLA does not know on which of the devices along these axes a function is to be called. So a program
over them too is put around the call, in which the first device calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.collectives.axis_index import axis_index_p
from tracebridge.core.control.branches.cond import cond_p
from tracebridge.core.control.callbacks.debug import debug_callback_p
from tracebridge.core.control.shard_map.places import Place
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr, jaxprs_in_params
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.traverse import applications

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.primitive import Primitive


def called_once(program: Primitive, params: Params, left: Sequence[Any]) -> Params:
    """``params`` of ``shard_map`` with functions called once for the axes ``left`` to XLA.

    ``program`` is the primitive ``shard_map``.
    """
    jaxpr: Jaxpr = params["jaxpr"]
    if not left or not _calls(jaxpr):
        return params
    return {**params, "jaxpr": _rewritten(program, jaxpr, params["mesh"], tuple(left))}


def _calls(jaxpr: Jaxpr) -> bool:
    return any([app.primitive is debug_callback_p for app in applications(jaxpr)])


def _rewritten(program: Primitive, jaxpr: Jaxpr, mesh: Any, left: tuple[Any, ...]) -> Jaxpr:
    if not left or not _calls(jaxpr):
        return jaxpr
    key = ("functions called once", mesh, left)
    cached = jaxpr.cache.get(key)
    if cached is not None:
        return cached

    def run(*xs: Any) -> list[Any]:
        staging = current_trace().process

        def process(app: Application, values: Any) -> Any:
            if app.primitive is debug_callback_p:
                return _by_the_first(program, app, values, mesh, left)
            if not any(map(_calls, jaxprs_in_params(app.params))):
                return staging(app, values)
            rest = left
            if app.primitive is program:
                rest = tuple([name for name in left if name not in app.params["names"]])
            params = {name: mapped(value, rest) for name, value in app.params.items()}
            return staging(app.primitive.application(app.avals, params), values)

        def mapped(value: Any, rest: tuple[Any, ...]) -> Any:
            if type(value) is tuple:
                return tuple([mapped(v, rest) for v in value])
            return _rewritten(program, value, mesh, rest) if type(value) is Jaxpr else value

        return eval_jaxpr(jaxpr, process, xs)

    cached = jaxpr.cache[key] = stage(run, jaxpr.in_avals, jaxpr.debug, locate=False)
    return cached


def _by_the_first(
    program: Primitive, app: Application, values: Sequence[Any], mesh: Any, left: tuple[Any, ...]
) -> Any:
    """The call ``app`` by those devices that come first along all axes ``left``."""

    def call(*xs: Any) -> list[Any]:
        current_trace().process(app, xs)
        return []

    def body(*xs: Any) -> list[Any]:
        total: Any = None
        for name in left:
            at = axis_index_p.bind(axes=(name,))
            total = at if total is None else lax.add(total, at)
        first = lax.convert_dtype(lax.eq(total, lax.full_like(total, 0)), total.aval.dtype)
        branches = (stage(lambda *_: [], app.avals), stage(call, app.avals))
        cond_p.bind(first, *xs, branches=branches)
        return []

    places = tuple([Place(((),) * a.ndim) for a in app.avals])
    return program.bind(
        *values,
        jaxpr=stage(body, app.avals, locate=False),
        mesh=mesh,
        names=left,
        name=app.primitive.name,
        typed=(),
        in_places=places,
        out_places=(),
    )
