"""Staged functions of one array and of optional ones (``where``, ``initial``), and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, final

from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.argument_types import Axis
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, unary_with_statics
from tracebridge.numpy._promote import check_no_out, hashable_axis
from tracebridge.numpy._staging import static_dtype


@final
class OptionalArrays:
    """``fun(x, *statics, *optional)``: which of ``n`` optional arrays there are is part of the key.

    Absent ones are None. ``plain(x, statics)`` is the call without any, on the shortest path.
    """

    __slots__ = ("_staged", "plain")

    def __init__(self, fun: Callable[..., Any], name: str, n: int, *, exact: bool = False) -> None:
        self._staged = {
            present: StagedFunction(_form(fun, present), name, exact=exact, judges=False)
            for present in product((False, True), repeat=n)
        }
        self.plain = unary_with_statics(self._staged[(False,) * n])

    def __call__(self, x: object, optional: Sequence[object], statics: tuple[Any, ...]) -> Any:
        present = tuple([o is not None for o in optional])
        return self._staged[present]((x, *[o for o in optional if o is not None]), statics)


def _form(fun: Callable[..., Any], present: tuple[bool, ...]) -> Callable[..., Any]:
    """``fun`` of the arrays that are ``present``, then of the static arguments."""
    n = sum(present)

    def run(x: Value, *arrays_and_statics: Any) -> Any:
        arrays = iter(arrays_and_statics[:n])
        optional = [next(arrays) if here else None for here in present]
        return fun(x, *arrays_and_statics[n:], *optional)

    return run


@final
class Reduction:
    """A staged reduction; optional array arguments are part of the key by their presence."""

    __slots__ = ("_forms", "_name", "_plain")

    def __init__(self, name: str, fun: Callable[..., Any]) -> None:
        self._name = name
        self._forms = OptionalArrays(fun, name, 2)
        self._plain = self._forms.plain

    def __call__(
        self,
        a: ArrayLike,
        axis: Axis,
        dtype: DTypeLike | None,
        out: object,
        keepdims: object,
        initial: ArrayLike | None,
        where: ArrayLike | None,
    ) -> Any:
        if out is not None:
            check_no_out(self._name, out)
        if not (axis is None or type(axis) is int):
            axis = hashable_axis(axis, self._name)
        if dtype is not None:
            dtype = static_dtype(self._name, dtype)
        statics = (axis, dtype, keepdims if type(keepdims) is bool else bool(keepdims))
        if initial is None and where is None:
            return self._plain(a, statics)
        return self._forms(a, (initial, where), statics)
