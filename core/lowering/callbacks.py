"""Calls of Python functions from a module.

Targets of jaxlib call the function with the operands as read-only ndarrays and take a tuple of
ndarrays. The function is referred to by its position among the host callbacks of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import Effect
from tracebridge.core.lowering.tokens import put, take, token_type
from tracebridge.core.mlir.attrs import array, boolean, dictionary, i32, string
from tracebridge.core.mlir.shardy import on_first_device
from tracebridge.core.mlir.types import tensor_type

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import LoweringContext


_TARGETS = {
    "cpu": "xla_ffi_python_cpu_callback",
    "cuda": "xla_ffi_python_gpu_callback",
    "rocm": "xla_ffi_python_gpu_callback",
}
_TYPED_FFI = 4


def python_target(ctx: LoweringContext, name: str, targets: Mapping[str, str]) -> str:
    """The target of jaxlib for this platform; ``name`` says what the program calls.

    Raises:
        ExportError: the program leaves the process.
        CallbackError: the platform has none.
    """
    target = targets.get(ctx.platform)
    if ctx.platform == "portable":
        msg = f"{name}: an exported program cannot reach Python functions of this process"
        hint = (
            "leave debug.print, pure_callback, io_callback and functions of other libraries out of "
            "exported functions; of call_tf, those that TensorFlow cannot compile"
        )
        raise ExportError(msg, hint=hint)
    if target is None:
        msg = f"Python callbacks do not work on platform {ctx.platform!r}"
        raise CallbackError(msg, expected=" or ".join(sorted(targets)))
    return target


def emit_callback(
    ctx: LoweringContext,
    function: Callable[..., Sequence[Any]],
    operands: Sequence[object],
    effect: Effect | None,
    name: str,
) -> list[Any]:
    """Call ``function(*ndarrays) -> ndarrays`` for the current equation.

    ``name`` stands in messages. Without an effect the call may be dropped, repeated or moved.
    Results without elements are not asked for.
    """
    target = python_target(ctx, name, _TARGETS)
    ordered = [effect] if effect is not None and effect.ordered else []
    n_tokens = len(ordered)
    asked = [a for a in ctx.avals_out if _has_elements(a)]
    index = len(ctx.callbacks)
    wanted = [_has_elements(a) for a in ctx.avals_out]
    # Where other devices wait for this one a failure must not stop it.
    several = ctx.n_replicas > 1 or (ctx.mesh is not None and ctx.mesh.size > 1)
    in_place = asked if several else None
    ctx.callbacks.append(HostFunction(function, name, n_tokens, wanted, in_place))
    ir = mlir.ir
    ui64 = ir.IntegerType.get_unsigned(64)
    tokens = [token_type()] * n_tokens if n_tokens else []
    results = ctx.create(
        "stablehlo.custom_call",
        results=[*tokens, *[tensor_type(a) for a in asked]],
        operands=[*take(ctx, ordered), *operands],
        attributes={
            "call_target_name": string(target),
            "has_side_effect": boolean(effect is not None),
            "api_version": i32(_TYPED_FFI),
            "backend_config": dictionary({"index": ir.IntegerAttr.get(ui64, index)}),
            "operand_layouts": _layouts(n_tokens, ctx.avals_in),
            "result_layouts": _layouts(n_tokens, asked),
            # Python is called once, with whole arrays, where a program runs over a mesh.
            **on_first_device(ctx, n_tokens + len(asked)),
        },
    ).results
    put(ctx, ordered, results[:n_tokens])
    remaining_results = iter(results[n_tokens:])
    return [next(remaining_results) if _has_elements(a) else _empty(ctx, a) for a in ctx.avals_out]


def _has_elements(aval: ShapedArray) -> bool:
    return not any([type(d) is int and d == 0 for d in aval.shape])


def _empty(ctx: LoweringContext, aval: ShapedArray) -> Any:
    return ctx.splat(False if aval.dtype.kind == "b" else 0, aval)


def _layouts(n_tokens: int, avals: Sequence[ShapedArray]) -> Any:
    """Row-major layouts; tokens have none."""
    ranks = [*[0] * n_tokens, *map(_rank, avals)]
    attr, index = mlir.ir.DenseElementsAttr, mlir.ir.IndexType.get()
    return array(
        [attr.get(np.arange(rank - 1, -1, -1, dtype=np.int64), type=index) for rank in ranks]
    )


def _rank(aval: ShapedArray) -> int:
    dtype: Any = aval.dtype
    return aval.ndim + (len(dtype.element_shape) if is_extended(dtype) else 0)


def _zeros(aval: ShapedArray) -> Any:
    dtype: Any = aval.dtype
    if is_extended(dtype):
        return np.zeros((*aval.shape, *dtype.element_shape), dtype.element_dtype)
    return np.zeros(aval.shape, dtype)


@final
class HostFunction:
    """What jaxlib calls: hides tokens, leaves out results without elements, keeps exceptions.

    jaxlib makes a text of an exception; ``pop_failure`` gives the exception itself. With
    ``in_place`` a call that fails gives zeros of these avals, and the runtime raises in the end.
    """

    __slots__ = ("_asked", "_failures", "_in_place", "_n_tokens", "function", "name")

    def __init__(
        self,
        function: Any,
        name: str,
        n_tokens: int,
        asked: Sequence[bool],
        in_place: Sequence[ShapedArray] | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self._n_tokens = n_tokens
        self._asked = None if all(asked) else list(asked)
        self._failures: list[BaseException] = []
        self._in_place = in_place

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        n = self._n_tokens
        try:
            results = self.function(*operands[n:])
        except BaseException as error:
            self._failures.append(error)
            if self._in_place is None:
                raise
            return (*[None] * n, *[_zeros(a) for a in self._in_place])
        if self._asked is not None:
            results = [r for r, a in zip(results, self._asked, strict=True) if a]
        return (*[None] * n, *results)

    def pop_failure(self) -> BaseException | None:
        """The latest exception, which is forgotten with all others."""
        found = self._failures.pop() if self._failures else None
        self._failures.clear()
        return found
