"""xla_computation: the program of a function as XLA takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracebridge._api.args.argnums import check_callable, check_disjoint, resolve
from tracebridge._api.args.statics import Splitter
from tracebridge._api.args.wraps import named_like
from tracebridge._api.programs.make_jaxpr import trace_to_jaxpr
from tracebridge.core.aot.compiler_ir import computation_of
from tracebridge.core.config.state import enter_scope, leave_scope, with_axes
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.shape_struct import struct_of
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.runtime.backends.clients import get_backend

_PLATFORMS = frozenset({"cpu", "cuda", "rocm", "tpu"})


def xla_computation(
    fun: Callable[..., object],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    in_parts: Any = None,
    out_parts: Any = None,
    backend: str | None = None,
    tuple_args: bool | None = False,
    instantiate_const_outputs: bool | None = None,
    return_shape: bool = False,
    donate_argnums: int | Sequence[int] = (),
) -> Callable[..., Any]:
    """A function that gives the program of ``fun`` as an XLA computation, not yet optimized.

    Args:
        fun: function of arrays and trees of arrays.
        static_argnums: positions of arguments that are compile-time constants.
        axis_env: pairs of axis name and size that ``fun`` may use in collectives, outermost
            first; the program is meant for one replica per element of these axes.
        in_parts: must be None: programs over several devices are made by ``shard_map``.
        out_parts: must be None, likewise.
        backend: platform to lower for: "cpu", "cuda", "rocm", "tpu"; it need not be installed.
            None: the default platform.
        tuple_args: whether the computation takes one tuple; None: if there are more than 100
            arguments.
        instantiate_const_outputs: has no effect.
        return_shape: also give the tree of ``ShapeDtypeStruct`` of the result.
        donate_argnums: positions of arguments whose memory the results may take over.

    Returns:
        A function that takes the arguments of ``fun``, or ``ShapeDtypeStruct`` in their place. It
        gives an object with the methods ``as_hlo_text``, ``as_serialized_hlo_module_proto``,
        ``as_hlo_dot_graph`` and ``program_shape``; with ``return_shape`` a pair of it and the
        result's shapes. The computation returns a tuple.

    Raises:
        ArgumentSpecError: there is no such argument, or one is static and donated.
        DevicePlacementError: ``in_parts`` or ``out_parts`` is given.
        UnexpectedTracerError: at a call: the function uses values of an enclosing trace.

    >>> import tracebridge as tb
    >>> computation = tb.xla_computation(lambda x: tb.lax.sin(tb.lax.cos(x)))(3.0)
    >>> 'cosine(' in computation.as_hlo_text()
    True
    >>> computation.program_shape()
    (p0: f32[]) -> (f32[])
    """
    del instantiate_const_outputs
    check_callable("xla_computation", fun)
    for option, parts in (("in_parts", in_parts), ("out_parts", out_parts)):
        if parts is not None:
            msg = f"xla_computation: {option}={parts!r}, expected None"
            raise DevicePlacementError(msg, hint="use shard_map for programs over several devices")
    static = resolve("xla_computation", fun, "static", static_argnums, None)
    donated = resolve("xla_computation", fun, "donate", donate_argnums, None)
    check_disjoint("xla_computation", static, donated)
    splitter = Splitter("xla_computation", fun, *static, donated)
    needed = max((*static[0], *donated[0]), default=-1) + 1
    name = f"xla_computation_{name_of(fun)}"

    @named_like(fun)
    def computation_of_call(*args: object, **kwargs: object) -> Any:
        if len(args) < needed:
            msg = (
                f"xla_computation({name_of(fun)}): static_argnums={static_argnums} and "
                f"donate_argnums={donate_argnums} need at least {needed} positional arguments, "
                f"got {len(args)}"
            )
            raise ArgumentSpecError(msg, hint="give these arguments by position")
        call = splitter.arguments(args, kwargs)
        scope = enter_scope(with_axes, axis_env) if axis_env else None
        try:
            jaxpr, tree = trace_to_jaxpr("xla_computation", fun, call)
        finally:
            if scope is not None:
                leave_scope(scope)
        if any([isinstance(c, Tracer) for c in jaxpr.consts]):
            raise UnexpectedTracerError(
                f"xla_computation({name_of(fun)}): the function uses values of an enclosing "
                "trace, so that it has no program of its own"
            )
        built = computation_of(
            jaxpr,
            name,
            _platform(backend),
            call.donated,
            tuple_args=tuple_args,
            axis_env=[(axis, size) for axis, size in axis_env or ()],
        )
        if not return_shape:
            return built
        return built, tree.unflatten([struct_of(a) for a in jaxpr.out_avals])

    return api_boundary(computation_of_call)


def _platform(backend: str | None) -> str:
    """The platform to lower for; one that is not installed will do."""
    if backend in _PLATFORMS:
        return backend
    return get_backend(backend).platform
