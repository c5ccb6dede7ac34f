"""Functional updates: ``x.at[index].set(values)`` and its kin."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.lax.unsplit import unsplit_leaves
from tracebridge.core.runtime.arrays.argument_types import ShardingLike
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.numpy._in_turn import NOWHERE, apply_in_turn, known_distinct, positions_in
from tracebridge.numpy._index_parts import count_from_start, split_index
from tracebridge.numpy._index_windows import Cut, changed_in_windows, has_windows
from tracebridge.numpy._indexing import take_index
from tracebridge.numpy._updates import choose, drops, is_whole_mask, scatter_mode, updated
from tracebridge.numpy.conversion import asarray

# Updates that combine ``x`` with what multiplying ones by the values gives.
_BY_FACTORS: dict[str, Callable[[Any, Any], Any]] = {
    "divide": operator.truediv,
    "power": operator.pow,
}


@final
class IndexUpdateHelper:
    """``x.at``: index it to choose elements, then say what to do with them."""

    __slots__ = ("_x",)

    def __init__(self, x: Value) -> None:
        self._x = x

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self._x, index)

    def __repr__(self) -> str:
        return f"at({self._x!r})"


def _method(name: str, doc: str) -> Callable[..., Any]:
    """The method ``name`` of ``x.at[index]``, which combines the chosen elements with values."""
    combine = _BY_FACTORS.get(name)

    def method(
        self: IndexUpdateRef,
        values: Value,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | lax.GatherScatterMode | None = None,
        out_sharding: ShardingLike | None = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        try:
            x, index = self._x, self._index
            if isinstance(values, list | tuple):
                values = asarray(values)
            if out_sharding is not None:
                x, index, values = unsplit_leaves((x, index, values))
            options = (mode, indices_are_sorted, unique_indices, wrap_negative_indices)
            if combine is None:
                out = updated(x, index, name, values, *options)
            else:
                ones = lax.full_like(x, 1)
                out = combine(x, updated(ones, index, "multiply", values, *options, name))
            if out_sharding is not None:
                return constrained_result(f"at[...].{name}", out, out_sharding)
        except Exception as error:
            hide_internal_frames(error)
            raise
        return out

    method.__name__, method.__qualname__, method.__doc__ = name, f"IndexUpdateRef.{name}", doc
    return method


@final
class IndexUpdateRef:
    """``x.at[index]``: elements of ``x``; each method gives a new array.

    ``mode``: what to do with indices out of bounds ("drop", "clip", "fill",
    "promise_in_bounds"); updates drop them and ``get`` clamps them by default.
    ``indices_are_sorted`` and ``unique_indices`` promise what they say and allow faster code.
    ``out_sharding``: how to split the result over a mesh with axes of the type Explicit.
    ``wrap_negative_indices=False``: negative integers are out of bounds.
    Values of another dtype are converted to that of ``x``, with a FutureWarning where promotion
    would give another dtype: floats for integers, say.
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Value, index: object) -> None:
        self._x = x
        self._index = index

    def __repr__(self) -> str:
        return f"at({self._x!r})[{self._index!r}]"

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | lax.GatherScatterMode | None = None,
        fill_value: ArrayLike | None = None,
        out_sharding: ShardingLike | None = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """``x[index]`` with the options of an indexed read.

        >>> import tracebridge.numpy as tnp
        >>> tnp.arange(3).at[tnp.array([5])].get(mode="fill", fill_value=-1).tolist()
        [-1]
        """
        try:
            how = scatter_mode(mode)
            x, index = self._x, self._index
            if out_sharding is not None:
                x, index = unsplit_leaves((x, index))
            if has_windows(index):
                cut = Cut(x, index, wrap=wrap_negative_indices)
                out = IndexUpdateRef(cut.part, cut.rest).get(
                    indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices,
                    mode=mode,
                    fill_value=fill_value,
                    out_sharding=out_sharding,
                    wrap_negative_indices=wrap_negative_indices,
                )
                filling = how is lax.GatherScatterMode.FILL_OR_DROP
                return cut.filled(as_value(out), fill_value) if filling else out
            static, arrays = split_index(index)
            if not wrap_negative_indices:
                clamp = how is not lax.GatherScatterMode.FILL_OR_DROP
                static, arrays = count_from_start(static, arrays, clamp=clamp)
            out = take_index(
                x,
                static,
                arrays,
                mode=how,
                fill_value=fill_value,
                indices_are_sorted=indices_are_sorted,
                unique_indices=unique_indices,
            )
            if out_sharding is not None:
                return constrained_result("at[...].get", out, out_sharding)
        except Exception as error:
            hide_internal_frames(error)
            raise
        return out

    set = _method(
        "set",
        """A copy of ``x`` with the chosen elements replaced.

        >>> import tracebridge.numpy as tnp
        >>> tnp.arange(3).at[1].set(7).tolist()
        [0, 7, 2]
        """,
    )
    add = _method(
        "add",
        """A copy of ``x`` with ``values`` added to the chosen elements; repeats add up.

        >>> import tracebridge.numpy as tnp
        >>> tnp.zeros(2).at[tnp.array([0, 0])].add(1.0).tolist()
        [2.0, 0.0]
        """,
    )
    subtract = _method(
        "subtract",
        """A copy of ``x`` with ``values`` subtracted from the chosen elements.

        >>> import tracebridge.numpy as tnp
        >>> tnp.zeros(2).at[0].subtract(1.0).tolist()
        [-1.0, 0.0]
        """,
    )
    multiply = mul = _method(
        "multiply",
        """A copy of ``x`` with the chosen elements multiplied by ``values``.

        >>> import tracebridge.numpy as tnp
        >>> tnp.ones(2).at[0].multiply(3.0).tolist()
        [3.0, 1.0]
        """,
    )
    divide = _method(
        "divide",
        """A copy of ``x`` with the chosen elements divided by ``values``.

        >>> import tracebridge.numpy as tnp
        >>> tnp.ones(2).at[0].divide(2.0).tolist()
        [0.5, 1.0]
        """,
    )
    power = _method(
        "power",
        """A copy of ``x`` with the chosen elements raised to ``values``; repeats count.

        >>> import tracebridge.numpy as tnp
        >>> tnp.array([2.0, 3.0]).at[0].power(3.0).tolist()
        [8.0, 3.0]
        """,
    )
    min = _method(
        "min",
        """A copy of ``x`` with the chosen elements lowered to ``values`` where those are less.

        >>> import tracebridge.numpy as tnp
        >>> tnp.array([2, 3]).at[:].min(2).tolist()
        [2, 2]
        """,
    )
    max = _method(
        "max",
        """A copy of ``x`` with the chosen elements raised to ``values`` where those are greater.

        >>> import tracebridge.numpy as tnp
        >>> tnp.array([2, 3]).at[:].max(3).tolist()
        [3, 3]
        """,
    )

    def apply(
        self,
        func: Callable[[Any], Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | lax.GatherScatterMode | None = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with ``func`` applied to the chosen elements, once per repetition.

        ``func`` is a function of elements, such as ``tracebridge.numpy.sqrt``.

        >>> import tracebridge.numpy as tnp
        >>> tnp.array([4.0, 9.0]).at[1].apply(tnp.sqrt).tolist()
        [4.0, 3.0]
        >>> tnp.ones(2).at[tnp.array([0, 0])].apply(lambda v: v + 1).tolist()
        [3.0, 1.0]
        """
        try:
            x, index = self._x, self._index
            if is_whole_mask(x, index):
                return choose(index, x, func(x))
            options: dict[str, Any] = {
                "indices_are_sorted": indices_are_sorted,
                "mode": mode,
                "wrap_negative_indices": wrap_negative_indices,
            }
            if has_windows(index):
                options["unique_indices"] = unique_indices
                return changed_in_windows(
                    x,
                    index,
                    lambda part, rest: IndexUpdateRef(part, rest).apply(func, **options),
                    drop=drops(mode),
                    wrap=wrap_negative_indices,
                )
            if x.aval.size == 0:
                return self.set(False, **options)  # there is nothing to choose: checks the index
            if unique_indices or known_distinct(x, index):
                options["unique_indices"] = unique_indices
                new = lax.convert_dtype(as_value(func(self.get(**options))), x.aval.dtype)
                return self.set(new, **options)
            places: dict[str, Any] = {**options, "mode": mode or "fill", "fill_value": NOWHERE}
            positions = IndexUpdateRef(positions_in(x), index).get(**places)
            return apply_in_turn(x, as_value(positions), func)
        except Exception as error:
            hide_internal_frames(error)
            raise


def at(x: Value) -> IndexUpdateHelper:
    """``x.at``."""
    if not issubclass(type(x), EngineValue):
        msg = f"at: expected an array, got {type(x).__name__}"
        raise UnsupportedDtypeError(msg)
    return IndexUpdateHelper(x)
