"""Universal functions: frompyfunc, the class ufunc, and its methods on add, multiply and others."""

from __future__ import annotations

__all__ = ["frompyfunc", "ufunc"]

import importlib
from collections.abc import Callable
from typing import Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_integer
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, index_of
from tracebridge.core.errors.filtering import api_boundary, hide_internal_frames
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.argument_types import Axis
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.util.public_path import public_path
from tracebridge.numpy import elementwise_arithmetic as m
from tracebridge.numpy import elementwise_logic as logic
from tracebridge.numpy import reductions
from tracebridge.numpy._promote import check_no_out, normalize_axis, promote_inexact
from tracebridge.numpy._staging import static_dtype, value_of
from tracebridge.numpy._universal import apply_where
from tracebridge.numpy.cumulative import cumprod, cumsum
from tracebridge.numpy.elementwise_extrema import maximum, minimum
from tracebridge.numpy.elementwise_powers import logaddexp, logaddexp2
from tracebridge.numpy.manipulation import reshape

Function = Callable[..., Any]


def _general() -> Any:
    """What works for any function by loops over elements: loaded when it is first needed."""
    return importlib.import_module("tracebridge.numpy._ufunc_loops")


class _UfuncType(type):
    """Makes the elementwise functions that have the methods instances of ``ufunc``."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or hasattr(instance, "_ufunc")


@public_path("tracebridge.numpy")
@final
class ufunc(metaclass=_UfuncType):
    """A function of elements that is applied to arrays, with reductions made of it.

    ``add``, ``multiply`` and other functions of this package have its attributes and methods too.

    Args:
        func: function of ``nin`` scalars that gives ``nout`` scalars; traceable.
        nin: number of arguments.
        nout: number of results.
        name: what the representation shows; by default the function's name.
        nargs: number of arguments that are arrays; by default ``nin``.
        identity: what a reduction of nothing gives; ``None`` if there is no such thing.
        call: how arrays are taken; by default elements are mapped.
        reduce: how to reduce; by default one element after another.
        accumulate: how to make running reductions, likewise.
        at: how to update chosen elements, likewise.
        reduceat: how to reduce segments, likewise.

    Raises:
        TypeError: ``func`` is not callable, or a number is no integer.

    >>> import tracebridge.numpy as tnp
    >>> halve_and_add = tnp.ufunc(lambda x, y: x / 2 + y, 2, 1)
    >>> halve_and_add(tnp.array([2.0, 4.0]), 1.0).tolist()
    [2.0, 3.0]
    >>> halve_and_add.reduce(tnp.array([2.0, 4.0, 8.0])).tolist()
    10.5
    """

    def __init__(
        self,
        func: Function,
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: object = None,
        call: Function | None = None,
        reduce: Function | None = None,
        accumulate: Function | None = None,
        at: Function | None = None,
        reduceat: Function | None = None,
    ) -> None:
        if not callable(func):
            msg = f"ufunc: func must be callable, got {func!r} of type {type(func).__name__}"
            raise ArgumentTypeError(msg)
        self._nin = _count("nin", nin)
        self._nout = _count("nout", nout)
        self._nargs = self._nin if nargs is None else _count("nargs", nargs)
        self._identity = identity
        self.__name__ = name or getattr(func, "__name__", type(func).__name__)
        self.__doc__ = getattr(func, "__doc__", None) or type(self).__doc__
        self.function = func
        self.kind: Any = None  # the dtype of what is folded, where that is not the array's
        self._given_call = call
        self._call = _general().vectorize(func) if call is None else call
        self._reduce = reduce
        self._accumulate = accumulate
        self._at = at
        self._reduceat = reduceat

    nin = property(lambda self: self._nin, doc="Number of arguments.")
    nout = property(lambda self: self._nout, doc="Number of results.")
    nargs = property(lambda self: self._nargs, doc="Number of arguments that are arrays.")
    identity = property(lambda self: self._identity, doc="What a reduction of nothing gives.")

    def _meaning(self) -> tuple[Any, ...]:
        given = (self._reduce, self._accumulate, self._at, self._reduceat)
        sizes = (self._nin, self._nout, self._nargs)
        return (self.function, *sizes, self._identity, self._given_call, *given)

    def __eq__(self, other: object) -> bool:
        if type(other) is not ufunc:
            return NotImplemented
        return self._meaning() == other._meaning()

    def __hash__(self) -> int:
        # Not the identity, which may be an array.
        return hash((self.function, self._nin, self._nout))

    def __repr__(self) -> str:
        return f"<ufunc {self.__name__!r}>"

    def __call__(self, *args: ArrayLike, out: None = None, where: ArrayLike | None = None) -> Any:
        """The function of broadcast arrays.

        Args:
            *args: arrays.
            out: must be ``None``: arrays are immutable.
            where: boolean array that is broadcast with the operands: elements where it is false
                are 0, and depend on nothing. NumPy takes those of ``out``, or whatever is there.

        Raises:
            TypeError: a wrong number of arguments, or ``where`` is not boolean.

        >>> import tracebridge.numpy as tnp
        >>> tnp.frompyfunc(lambda x: x + 1, 1, 1)(tnp.arange(2)).tolist()
        [1, 2]
        """
        try:
            check_no_out(self.__name__, out)
            if len(args) != self.nin:
                msg = f"{self.__name__}: got {len(args)} arguments, expected {self.nin}"
                raise ArgumentTypeError(msg)
            if where is not None:
                return apply_where(self.__name__, self._call, args, where)
            return self._call(*args)
        except Exception as error:
            hide_internal_frames(error)
            raise

    @api_boundary
    def reduce(
        self,
        a: ArrayLike,
        axis: Axis = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Any:
        """The function folded over an axis, from the first element on.

        Args:
            a: array.
            axis: axis in ``[-ndim, ndim)``, or a tuple of them of a function with an identity;
                ``None`` for all elements in order.
            dtype: dtype to calculate in.
            out: not supported.
            keepdims: keep axes with size 1.
            initial: what to begin with; needed where there is no identity and nothing to reduce.
            where: mask of the elements that count.

        Raises:
            ValueError: no binary function, or no identity and nothing to begin with.

        >>> import tracebridge.numpy as tnp
        >>> tnp.subtract.reduce(tnp.array([9, 2, 3])).tolist()
        4
        """
        name = self._binary("reduce", out)
        x = _converted(self, name, a, dtype)
        if self._reduce is None:
            return _general().fold(self, name, x, axis, keepdims, initial, where)
        # Sums and products would widen small integers.
        kept = x.aval.dtype if dtype is not None and self._reduce in _WIDENING else None
        options = {"initial": initial, "where": where, "dtype": kept}
        options_in_use = {k: v for k, v in options.items() if v is not None}
        return self._reduce(x, axis, keepdims=keepdims, **options_in_use)

    @api_boundary
    def accumulate(
        self, a: ArrayLike, axis: int | None = 0, dtype: DTypeLike | None = None, out: None = None
    ) -> Any:
        """The running results of the function folded over an axis.

        Args:
            a: array with at least one axis.
            axis: axis in ``[-ndim, ndim)``.
            dtype: dtype to calculate in.
            out: not supported.

        Raises:
            ValueError: no binary function.

        >>> import tracebridge.numpy as tnp
        >>> tnp.subtract.accumulate(tnp.array([9, 2, 3])).tolist()
        [9, 7, 4]
        """
        name = self._binary("accumulate", out)
        x = _converted(self, name, a, dtype)
        if axis is None and x.aval.ndim > 1:
            msg = f"{name}: got axis=None for {x.aval.str_short()}, expected an int"
            raise ArgumentValueError(msg)
        where = normalize_axis(axis or 0, x.aval.ndim, name)
        if self._accumulate is not None:
            return self._accumulate(x, where)
        return _general().running(self._call, x, where)

    @api_boundary
    def at(
        self,
        a: ArrayLike,
        indices: ArrayLike,
        b: ArrayLike | None = None,
        /,
        *,
        inplace: bool = True,
    ) -> Any:
        """A copy of ``a`` with the function applied at ``indices``, once for each repetition.

        Args:
            a: array.
            indices: what ``a[indices]`` takes; positions out of bounds are left out.
            b: second operands of a binary function, broadcast to ``a[indices]``.
            inplace: must be False: arrays are immutable.

        Raises:
            ValueError: ``inplace=True``, or an operand too few or too many.

        >>> import tracebridge.numpy as tnp
        >>> tnp.add.at(tnp.zeros(2), tnp.array([0, 0]), 1.0, inplace=False).tolist()
        [2.0, 0.0]
        """
        name = f"{self.__name__}.at"
        if inplace:
            msg = f"{name}: got inplace=True, but arrays are immutable; pass inplace=False"
            raise ArgumentValueError(msg)
        if (b is None) != (self.nin == 1):
            got, wants = "no" if b is None else "a", self.nin
            msg = f"{name}: got {got} second operand for a function of {wants} arguments"
            raise ArgumentValueError(msg)
        if self._at is not None:
            return self._at(a, indices) if b is None else self._at(a, indices, b)
        return _general().update_in_turn(self._call, value_of(a), indices, b)

    @api_boundary
    def outer(self, A: ArrayLike, B: ArrayLike, /) -> Any:
        """The function of all pairs of elements of two arrays.

        Returns:
            Array of shape ``A.shape + B.shape``.

        Raises:
            ValueError: no binary function.

        >>> import tracebridge.numpy as tnp
        >>> tnp.multiply.outer(tnp.arange(2), tnp.arange(3)).tolist()
        [[0, 0, 0], [0, 1, 2]]
        """
        self._binary("outer", None)
        left, right = value_of(A), value_of(B)
        before, after = (1,) * left.aval.ndim, (1,) * right.aval.ndim
        return self._call(
            reshape(left, (*left.aval.shape, *after)), reshape(right, (*before, *right.aval.shape))
        )

    @api_boundary
    def reduceat(
        self,
        a: ArrayLike,
        indices: ArrayLike,
        axis: int = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
    ) -> Any:
        """The function folded over segments of an axis.

        Args:
            a: array.
            indices: vector of positions in ``[0, size)``: segment i reaches from ``indices[i]`` to
                ``indices[i + 1]`` (the last one to the end), and has one element where that is not
                larger.
            axis: axis in ``[-ndim, ndim)``.
            dtype: dtype to calculate in.
            out: not supported.

        Raises:
            ValueError: no binary function.

        >>> import tracebridge.numpy as tnp
        >>> tnp.add.reduceat(tnp.arange(4), tnp.array([0, 2])).tolist()
        [1, 5]
        """
        name = self._binary("reduceat", out)
        x, starts = _converted(self, name, a, dtype), value_of(indices)
        if starts.aval.ndim != 1 or not is_integer(starts.aval.dtype):
            got = starts.aval.str_short()
            msg = f"{name}: indices must be a vector of integers, got {got}"
            raise RankError(msg)
        where = normalize_axis(axis, x.aval.ndim, name)
        if self._reduceat is not None:
            return self._reduceat(x, starts, where)
        return _general().fold_segments(self._call, x, starts, where)

    def _binary(self, method: str, out: object) -> str:
        """The name of a method for messages; only functions of two arguments have it."""
        name = f"{self.__name__}.{method}"
        if (self.nin, self.nout) != (2, 1):
            msg = (
                f"{name}: got a function of {self.nin} arguments with {self.nout} results, "
                "expected 2 and 1"
            )
            raise ArgumentValueError(msg)
        check_no_out(name, out)
        return name


def _count(name: str, value: ArrayLike) -> int:
    try:
        return index_of(value, name, "value")
    except TypeError:
        msg = f"ufunc: {name} must be an integer, got {value!r} of type {type(value).__name__}"
        raise ArgumentTypeError(msg) from None


def _converted(self: ufunc, name: str, a: ArrayLike, dtype: DTypeLike | None) -> Any:
    kind = self.kind if dtype is None else static_dtype(name, dtype)
    x = value_of(a)
    if kind is None and self.function in (logaddexp, logaddexp2):
        # Folded in the dtype of the results, and not of the integers given.
        return promote_inexact(x)[0]
    return x if kind is None else lax.convert_dtype(x, kind)


def frompyfunc(func: Function, /, nin: int, nout: int, *, identity: object = None) -> ufunc:
    """A universal function made of a Python function of scalars.

    Args:
        func: function of ``nin`` scalars that gives ``nout`` scalars; it is traced, so it uses
            operations of this package.
        nin: number of arguments.
        nout: number of results.
        identity: what a reduction of nothing gives; ``None`` if there is no such thing.

    Raises:
        TypeError: ``func`` is not callable, or a number is no integer.

    >>> import tracebridge.numpy as tnp
    >>> add = tnp.frompyfunc(lambda x, y: x + y, nin=2, nout=1, identity=0)
    >>> add(tnp.arange(3), 10).tolist(), add.reduce(tnp.arange(5)).tolist()
    ([10, 11, 12], 10)
    """
    return ufunc(func, nin, nout, identity=identity)


# the functions of this package that are universal -----------------------------------------------


def _updates(name: str) -> Function:
    def update(a: Value, indices: Value, b: Value) -> Any:
        return getattr(_general().at(value_of(a))[indices], name)(b)

    return update


def _attach() -> None:
    """Give elementwise functions the attributes and methods of ``ufunc``, at no cost for calls."""
    # name -> (identity, reduction, running reduction, method of x.at): None is the general way
    known: dict[Any, tuple[Any, Any, Any, str | None]] = {
        m.add: (0, reductions.sum, cumsum, "add"),
        m.subtract: (None, None, None, "subtract"),
        m.multiply: (1, reductions.prod, cumprod, "multiply"),
        maximum: (None, reductions.max, _running(lax.cummax), "max"),
        minimum: (None, reductions.min, _running(lax.cummin), "min"),
        logaddexp: (-np.inf, None, _running(lax.cumlogsumexp), None),
        logaddexp2: (-np.inf, None, None, None),
        logic.bitwise_and: (-1, None, None, None),
        logic.bitwise_or: (0, None, None, None),
        logic.bitwise_xor: (0, None, None, None),
        logic.logical_and: (True, reductions.truth_reduction(True), None, None),
        logic.logical_or: (False, reductions.truth_reduction(False), None, None),
        logic.logical_xor: (False, None, None, None),
    }
    truths = (logic.logical_and, logic.logical_or, logic.logical_xor)
    made = [
        ufunc(
            f, 2, 1, identity=identity, call=f, reduce=reduce, accumulate=accumulate,
            at=None if update is None else _updates(update),
        )
        for f, (identity, reduce, accumulate, update) in known.items()
    ]  # fmt: skip
    for one in [*made, ufunc(m.negative, 1, 1, call=m.negative)]:
        function = one.function
        one.kind = np.dtype(bool) if function in truths else None
        for name in ("nin", "nout", "nargs", "identity", *METHODS):
            setattr(function, name, getattr(one, name))
        function._ufunc = one  # noqa: SLF001  # pyright: ignore[reportFunctionMemberAccess] - marks it for isinstance


def _running(function: Function) -> Function:
    """A running reduction of numbers that takes truth values too."""

    def run(x: Value, axis: int) -> Any:
        if not is_bool(x.aval.dtype):
            return function(x, axis)
        found = function(lax.convert_dtype(x, np.dtype(np.uint8)), axis)
        return lax.convert_dtype(found, x.aval.dtype)

    return run


_WIDENING = (reductions.sum, reductions.prod)
METHODS = ("reduce", "accumulate", "at", "outer", "reduceat")
_attach()
