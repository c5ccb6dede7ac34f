"""jit: compiled functions; switches for all of them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MethodType
from typing import Any, ParamSpec, TypeVar, overload

from tracebridge._api.args.abstracted_axes import AbstractedAxes
from tracebridge._api.args.argnums import check_callable, check_disjoint, resolve
from tracebridge._api.args.callables import JitDecorator, JittedFunction
from tracebridge._api.args.placements import (
    UNSPECIFIED,
    resolve_placement,
    sharding_trees,
    with_memories,
    without_formats,
)
from tracebridge._api.args.statics import Splitter
from tracebridge._api.args.wraps import named_like
from tracebridge.core.aot.stages import trace_stage
from tracebridge.core.control.calls.traced_call import Arguments
from tracebridge.core.control.jit.cached_call import Jitted, make_jit
from tracebridge.core.control.jit.jit import JitOptions
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.runtime.calls.fastpath import KeyFunctions
from tracebridge.core.util.caching import clear_all

P = ParamSpec("P")
R = TypeVar("R")


@overload
def jit(
    fun: Callable[P, R],
    /,
    *,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    keep_unused: bool = ...,
    device: Any = ...,
    backend: str | None = ...,
    inline: bool = ...,
    abstracted_axes: Any = ...,
    compiler_options: dict[str, Any] | None = ...,
) -> JittedFunction[P, R]: ...


@overload
def jit(
    *,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    keep_unused: bool = ...,
    device: Any = ...,
    backend: str | None = ...,
    inline: bool = ...,
    abstracted_axes: Any = ...,
    compiler_options: dict[str, Any] | None = ...,
) -> JitDecorator: ...


def jit(
    fun: Any = UNSPECIFIED,
    /,
    *,
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = None,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """A compiled form of ``fun``.

    The first call with arguments of new shapes, dtypes or structure traces ``fun`` and compiles
    the program; later calls run it. Usable as a decorator, also as ``@jit(static_argnums=1)``.

    Args:
        fun: pure function of arrays, numbers and trees of them.
        in_shardings: where the arguments are: a device, a sharding, a ``PartitionSpec`` for the
            mesh in force (``set_mesh``), or a tree of them that is a prefix of the tuple of
            positional arguments; None leaves the choice to the arguments. Arguments that are not
            committed go there. The call then takes no keyword arguments. With shardings over a
            mesh XLA splits the program over its devices.
        out_shardings: where the results are, likewise, a prefix of the result; None leaves the
            choice to XLA. All options name one device, or one mesh.
        static_argnums: positions of arguments that are compile-time constants: any hashable
            objects. Each new value compiles again.
        static_argnames: names of such arguments. If only one of the two is given the other is
            derived from the signature of ``fun``.
        donate_argnums: positions of arguments whose memory the results may take over; they
            cannot be used after the call.
        donate_argnames: names of such arguments, derived likewise.
        keep_unused: keep arguments that the program does not use.
        device: device to run on. By default committed arguments decide, else the default device.
        backend: platform to run on: "cpu", "gpu", "tpu". Not together with ``device``.
        inline: under another trace, insert the equations of ``fun`` instead of a call.
        abstracted_axes: axes whose sizes are names while ``fun`` is traced, so that it is traced
            once for all sizes (at least 1) and compiled for each: a dict from axes to names, a
            tuple with a name or None per axis, or a tree prefix of the positional arguments with
            these as leaves. Axes of one name have one size.
        compiler_options: XLA flags by name, for this function.

    Returns:
        A function with the arguments of ``fun`` and the attributes ``lower``, ``trace``,
        ``eval_shape``, ``clear_cache``, ``cache_size`` (the number of programs it keeps) and
        ``cache_info`` (how often it was compiled and why, and which way its calls took).

    Raises:
        ArgumentSpecError: the function has no such argument, or one is static and donated.
        DevicePlacementError: the shardings, ``device`` and ``backend`` name different places, or
            an argument is committed elsewhere than ``in_shardings`` says.
        ShapeMismatchError: at a call: a sharding does not split an array evenly.
        TreeMismatchError: at a call: shardings or ``abstracted_axes`` do not fit the arguments.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> @tb.jit
    ... def norm(x):
    ...     return tnp.sqrt(tnp.sum(x * x))
    >>> print(norm(tnp.array([3.0, 4.0])))
    5.0
    >>> @tb.jit(static_argnames='n')
    ... def power(x, n):
    ...     return x if n == 1 else x * power(x, n - 1)
    >>> print(power(2.0, n=5))
    32.0
    """
    if fun is UNSPECIFIED:
        return functools.partial(
            jit,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            keep_unused=keep_unused,
            device=device,
            backend=backend,
            inline=inline,
            abstracted_axes=abstracted_axes,
            compiler_options=compiler_options,
        )
    check_callable("jit", fun)
    static = resolve("jit", fun, "static", static_argnums, static_argnames)
    donated = resolve("jit", fun, "donate", donate_argnums, donate_argnames)
    check_disjoint("jit", static, donated)
    in_shardings = without_formats("in_shardings", in_shardings)
    out_shardings = without_formats("out_shardings", out_shardings)
    in_shardings, out_shardings = with_memories(in_shardings, out_shardings)
    options = JitOptions(
        *static,
        *donated,
        keep_unused=bool(keep_unused),
        inline=bool(inline),
        placement=resolve_placement(in_shardings, out_shardings, device, backend),
        compiler_options=tuple(sorted((compiler_options or {}).items())),
        shardings=sharding_trees(in_shardings, out_shardings),
        abstracted_axes=(
            None if abstracted_axes is None else AbstractedAxes("jit", abstracted_axes)
        ),
    )
    return compiled_function(fun, options)


def compiled_function(fun: Callable[..., object], options: JitOptions) -> Callable[..., Any]:
    """The callable of ``jit``: the closure of the fast path, with attributes."""
    resolve_call: Callable[[Jitted, tuple[Any, ...], dict[str, Any]], Arguments] | None = None
    keys: KeyFunctions | None = None
    static = options.static_argnums, options.static_argnames
    donated = options.donate_argnums, options.donate_argnames
    if any(static) or any(donated):
        splitter = Splitter("jit", fun, *static, donated)

        def split(_: Jitted, args: tuple[object, ...], kwargs: dict[str, object]) -> Arguments:
            return splitter.arguments(args, kwargs)

        resolve_call = split

        # Without static arguments the plain fast path serves, which is faster.
        if any(static):
            keys = KeyFunctions(splitter.flat_key, splitter.tree_key)
    call, jitted = make_jit(fun, options, resolve_call, keys)
    # No wrapper around the call: each frame would cost 0.1 us on the path of a cached call.
    function: Any = named_like(fun)(call)
    if isinstance(fun, FunctionType | MethodType):
        # What users have written on the function; the methods below come after it. Attributes of
        # other objects are their state, which is not to be kept alive here.
        function.__dict__.update(fun.__dict__)
        function.__wrapped__ = fun
    with contextlib.suppress(TypeError, ValueError):
        # The call itself takes anything: this is for those who do not follow `__wrapped__`.
        function.__signature__ = inspect.signature(fun)

    def trace(*args: object, **kwargs: object) -> Any:
        return trace_stage(jitted, args, kwargs)

    def lower(
        *args: object, lowering_platforms: Sequence[str] | None = None, **kwargs: object
    ) -> Any:
        return trace_stage(jitted, args, kwargs).lower(lowering_platforms)

    def eval_shape(*args: object, **kwargs: object) -> Any:
        return trace_stage(jitted, args, kwargs).out_info

    function.trace = api_boundary(trace)
    function.lower = api_boundary(lower)
    function.eval_shape = api_boundary(eval_shape)
    if options.shardings is not None:
        # Wrappers that copy the attributes of a function are not this function.
        function._placed = weakref.ref(function)  # noqa: SLF001 - what places_results asks for
    function.clear_cache = jitted.clear
    function.cache_info = jitted.cache_info
    function.cache_size = function._cache_size = jitted.runs.__len__  # noqa: SLF001 - a name that callers of other engines know
    return call


def places_results(fun: object) -> bool:
    """Whether ``fun`` is a jitted function whose options say where its results are."""
    placed = getattr(fun, "_placed", None)
    return isinstance(placed, weakref.ref) and placed() is fun


def clear_caches() -> None:
    """Forget all traces and compiled programs, of jitted functions and of single operations.

    >>> import tracebridge as tb
    >>> tb.clear_caches()
    """
    clear_all()
