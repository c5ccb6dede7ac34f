"""Numbers by rejection, an attempt at a time: the family of such primitives.

Elements are drawn independently of each other. A loop over the whole array goes on until the
last element is accepted, and draws all of them again each time. On the CPU all elements have one
attempt, in one pass; those that it does not settle are brought together and go on alone.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.control.branches.switch import cond
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.dtypes.dtypes import uint32
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.families import Elementwise, common_shape
from tracebridge.core.lax.reduce.positions import packed_positions
from tracebridge.core.lowering.context import register_platform_lowering
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value

_BOOL, _INT32 = np.dtype(np.bool_), np.dtype(np.int32)
# How many elements go on together, and from how many elements on it pays to look for them.
_CHUNK = 1024
_LEAST = 4096
PENDING = -1.0
_NUMBERS = lax.ScatterDimensionNumbers(
    update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)


class Rejection(Elementwise):
    """Operands: words of keys and counters of uint32, then parameters of one float dtype.

    Numbers that are accepted are NaN or not negative.
    """

    cost = Cost.EXPENSIVE

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        floats = [a for a in avals if a.dtype != uint32]
        if not floats or any([a.dtype != floats[0].dtype for a in floats]):
            got = ", ".join([a.str_short() for a in avals])
            msg = f"{self.name}: got {got}, expected words of uint32 and parameters of one dtype"
            raise DtypeMismatchError(msg)
        return result_aval(floats, common_shape(self.name, avals), weak_type=False)

    @abc.abstractmethod
    def attempt(self, *xs: Any, **params: Any) -> Any:
        """Numbers, and ``PENDING`` where they are not accepted; in one array, made in one pass."""

    @abc.abstractmethod
    def settle(self, active: Any, *xs: Any, **params: Any) -> Any:
        """Numbers that are accepted; where ``active`` is false, any numbers, without waiting."""

    def complete(self, number: Any, *xs: Any, **params: Any) -> Any:
        """The result, made of the number that was accepted."""
        del xs, params
        return number

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        """Numbers are drawn from constant parameters; others say how they depend on them."""
        return self.bind(*primals, **params), None

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        shape = ctx.aval_out.shape

        def run(*xs: Any) -> Any:
            active = full_of(ShapedArray(shape, _BOOL), True)
            return self.complete(self.settle(active, *xs, **params), *xs, **params)

        return ctx.lower_fun(run, *operands)[0]

    def lower_cpu(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        """One attempt for all, then more for those that need them."""
        out = ctx.aval_out
        if not is_static(out) or out.size < _LEAST:
            return self.lower(ctx, *operands, **params)

        def run(*xs: Any) -> Any:
            flat = [lax.reshape(x, (out.size,)) if x.aval.ndim else x for x in xs]
            number = self._settle_others(lax.stored(self.attempt(*flat, **params)), flat, params)
            return lax.reshape(self.complete(number, *flat, **params), out.shape)

        return ctx.lower_fun(run, *operands)[0]

    def _settle_others(self, number: Any, xs: list[Any], params: Any) -> Any:
        """Settle the elements that are not accepted, a chunk at a time."""
        n = number.aval.size
        # Room for a last chunk that is not full.
        places, total = packed_positions(lax.lt(number, 0.0), n + _CHUNK)

        def step(carry: Any) -> Any:
            start, number = carry
            at = lax.dynamic_slice(places, [start], (_CHUNK,))
            active = lax.lt(at, n)
            here = [_taken(x, lax.min(at, n - 1)) if x.aval.ndim else x for x in xs]
            settled = self.settle(active, *here, **params)
            number = lax.scatter(
                number,
                lax.reshape(at, (_CHUNK, 1)),
                settled,
                _NUMBERS,
                unique_indices=False,
                mode=lax.GatherScatterMode.FILL_OR_DROP,
            )
            return lax.add(start, _CHUNK), number

        zero = full_of(ShapedArray((), _INT32), 0)
        return while_loop(lambda c: lax.lt(c[0], total), step, (zero, number))[1]


def _taken(x: Value, at: Any) -> Any:
    """``x[at]``, positions in bounds."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    indices = lax.reshape(at, (at.aval.size, 1))
    return lax.gather(x, indices, numbers, (1,), mode="promise_in_bounds")


def some(flags: Value) -> Any:
    """Whether a flag is set."""
    return lax.reduce_or_p.bind(flags, axes=tuple(range(flags.aval.ndim)))


def where_needed(needed: Value, otherwise: Any, compute: Any) -> Any:
    """``compute()`` if some element is needed, else ``otherwise``, of the same shape."""
    return cond(some(needed), lambda: compute(), lambda: otherwise)


def on_cpu(primitive: Rejection) -> None:
    """Let programs for the CPU use the way in two steps."""
    register_platform_lowering(primitive, "cpu", primitive.lower_cpu, optional=True)
