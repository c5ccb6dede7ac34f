"""The family of primitives on batches of matrices, and how their arguments are checked."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import to_front

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value

DTYPES = tuple([np.dtype(t) for t in ("float32", "float64", "complex64", "complex128")])
_FLOAT32 = np.dtype(np.float32)


class OfMatrices(Primitive):
    """Takes and gives matrices and vectors with the same leading axes."""

    cost = Cost.OTHER

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """A mapped axis is one more leading axis, of all operands."""
        outs = self.bind(
            *[to_front(a, d, ctx.size) for a, d in zip(args, dims, strict=True)], **params
        )
        return outs, [0] * len(outs) if self.multiple_results else 0


class Composed(OfMatrices):
    """Lowered as ``compose``: a function of values, out of operations that every platform has.

    Lowerings for platforms with a library stand beside the class.
    """

    @abc.abstractmethod
    def compose(self, *operands: Value, **params: Any) -> Any:
        """The results, by operations of ``lax``."""

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        outs = ctx.lower_fun(self.compose, *operands, **params)
        return outs if self.multiple_results else outs[0]


def jvp_by_parts(
    compose: Callable[..., Any],
    primals: Sequence[Value],
    tangents: Sequence[Value | None],
    params: Params,
) -> tuple[list[Any], list[Any]]:
    """Results and tangents of ``compose``: for operations whose parts have the best derivative."""
    avals = [p.aval.strong for p in primals]

    def flat(*xs: Value) -> Sequence[Any]:
        out = compose(*xs, **params)
        return out if isinstance(out, list | tuple) else [out]

    jaxpr, present = jvp_jaxpr(stage(flat, avals), tuple([t is not None for t in tangents]))
    nonzero_tangents = [t for t in tangents if t is not None]
    primals_and_tangents = eval_jaxpr(jaxpr, current_trace().process, [*primals, *nonzero_tangents])
    n = len(present)
    remaining_found = iter(primals_and_tangents[n:])
    return primals_and_tangents[:n], [next(remaining_found) if here else None for here in present]


# arguments ---------------------------------------------------------------------------------------


def matrices(name: str, *xs: Operand, ranks: Sequence[int] = (2,)) -> tuple[list[Any], Any]:
    """Values of the arguments in a dtype that there are routines for, and the dtype of results.

    Floats of fewer than 32 bits are computed with in float32, and results are rounded back.

    Raises:
        UnsupportedDtypeError: an argument holds neither floats nor complex numbers.
        DtypeMismatchError: arguments differ in dtype.
        RankError: an argument has too few axes.
        ShapeMismatchError: leading axes differ.
    """
    values = [as_value(x, name) for x in xs]
    dtype = values[0].aval.dtype
    for v, rank in zip(values, ranks, strict=True):
        if v.aval.dtype != dtype:
            got = ", ".join([w.aval.str_short() for w in values])
            msg = f"{name}: operands need the same dtype, got {got}"
            raise DtypeMismatchError(
                msg, hint="convert with convert_element_type, or use tracebridge.numpy.linalg"
            )
        if v.aval.ndim < rank:
            msg = f"{name}: got {v.aval.str_short()}, expected at least {rank} axes"
            raise RankError(msg)
    leading = [v.aval.shape[: v.aval.ndim - rank] for v, rank in zip(values, ranks, strict=True)]
    if any([batch != leading[0] for batch in leading]):
        got = ", ".join([v.aval.str_short() for v in values])
        msg = f"{name}: leading axes differ: {got}"
        raise ShapeMismatchError(msg, hint="broadcast them first; tracebridge.numpy.linalg does")
    if dtype in DTYPES:
        return values, dtype
    if not is_float(dtype) or dtype.itemsize > 2:
        msg = f"{name} works on floats and complex numbers, got {values[0].aval.str_short()}"
        raise UnsupportedDtypeError(msg, hint="convert with convert_element_type first")
    return [lax.convert_dtype(v, _FLOAT32) for v in values], dtype


def inexact(name: str, x: Operand) -> Any:
    """``x`` with integers and truth values as floats, for what takes them."""
    value = as_value(x, name)
    dtype = value.aval.dtype
    if dtype.kind not in "biu":
        return value
    return lax.convert_dtype(value, to_inexact(dtype), value.aval.weak_type)


def rounded(x: Value, dtype: np.dtype[Any]) -> Any:
    """A result in the dtype of narrow arguments; as it is where they were not narrow."""
    if dtype in DTYPES or x.aval.dtype != _FLOAT32:
        return x
    return lax.convert_dtype(x, dtype)


def check_dtype(name: str, *avals: ShapedArray) -> None:
    """Raise unless the operands of a primitive have one dtype that there are routines for."""
    dtype = avals[0].dtype
    if dtype not in DTYPES:
        msg = f"{name} works on float32, float64, complex64 and complex128, got {dtype.name}"
        raise UnsupportedDtypeError(msg, hint="convert with convert_element_type first")
    if any([a.dtype != dtype for a in avals]):
        got = ", ".join([a.str_short() for a in avals])
        msg = f"{name}: operands need the same dtype, got {got}"
        raise DtypeMismatchError(msg)


def check_square(name: str, aval: ShapedArray) -> None:
    """Raise unless ``aval`` is of square matrices."""
    if aval.ndim < 2:
        msg = f"{name}: got {aval.str_short()}, expected at least 2 axes"
        raise RankError(msg)
    if aval.shape[-1] != aval.shape[-2]:
        msg = f"{name}: got {aval.str_short()}, expected square matrices (*batch, n, n)"
        raise ShapeMismatchError(msg)
