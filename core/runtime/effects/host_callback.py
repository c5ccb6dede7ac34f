"""Functions of the user that run on the host, on flat arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, final

import numpy as np

from tracebridge.core.config.state import enter_scope, leave_scope, outside_of_traces
from tracebridge.core.config.values import option
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.shown import shown
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.placement import choose_placement, is_spread
from tracebridge.core.runtime.arrays.transfer import move, put_host, put_numpy
from tracebridge.core.runtime.backends.clients import get_backend
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.tree.treedefs import leaf_paths

_NARROW = {
    "int64": "int32",
    "uint64": "uint32",
    "float64": "float32",
    "complex128": "complex64",
}


@final
class HostCallback:
    """A callback with its arguments and results flattened.

    ``statics``: leaves of the arguments that are no arrays, by position. ``out_tree``: the
    structure of the results, None if they are ignored. ``call``: the function of ours that the
    user called, for messages. Hashed by identity: programs keep it in their parameters.
    """

    __slots__ = ("__weakref__", "_keeps_64", "call", "fun", "in_tree", "out_tree", "statics")

    def __init__(
        self,
        call: str,
        fun: Callable[..., Any],
        in_tree: PyTreeDef,
        statics: dict[int, Any],
        out_tree: PyTreeDef | None,
    ) -> None:
        self.call = call
        self.fun = fun
        self.in_tree = in_tree
        self.statics = statics
        self.out_tree = out_tree
        self._keeps_64: bool = option("enable_x64") is True

    @property
    def name(self) -> str:
        """For messages: what was called with what."""
        return f"{self.call}({name_of(self.fun)})"

    def __repr__(self) -> str:
        return name_of(self.fun)

    def from_host(self, avals: Sequence[ShapedArray], *operands: Any) -> list[Any]:
        """Call with ndarrays from a running program; gives ndarrays of the types ``avals``."""
        placement = get_backend("cpu").placement
        arrays = [put_numpy(o, placement) for o in operands]
        return self.run(avals, arrays)

    def evaluate(self, avals: Sequence[ShapedArray], arrays: Sequence[Array]) -> list[Array]:
        """Call at once; the results are where a computation on the arguments would be."""
        placement, committed = choose_placement([a._sig for a in arrays], self.name)
        cpu = get_backend("cpu").placement
        given = [a if _on_cpu(a) else move(a, cpu, committed=False) for a in arrays]
        try:
            results = self.run(avals, given)
        except Exception as error:  # noqa: BLE001 - a callback may fail in any way
            raise_callback_error(self.name, error)
        if is_spread(placement):
            return [put_host(r, placement.replicated) for r in results]
        return [put_numpy(r, placement, committed=committed) for r in results]

    def run(self, avals: Sequence[ShapedArray], arrays: Sequence[Array]) -> list[Any]:
        """Call the function outside of all traces, and check what it returns."""
        leaves: list[Any] = list(arrays)
        for position in sorted(self.statics):
            leaves.insert(position, self.statics[position])
        args, kwargs = self.in_tree.unflatten(leaves)
        # A program may run while something is traced, on the same thread.
        scope = enter_scope(outside_of_traces)
        try:
            result = self.fun(*args, **kwargs)
            return [] if self.out_tree is None else self._checked(result, avals)
        finally:
            leave_scope(scope)

    def _checked(self, result: object, avals: Sequence[ShapedArray]) -> list[Any]:
        leaves, tree = flatten(result)
        expected: Any = self.out_tree
        if len(leaves) != len(avals):
            msg = f"{self.name}: the callback returned another structure than was declared"
            raise CallbackError(msg, got=str(tree), expected=str(expected))
        return [
            self._result(i, leaf, a) for i, (leaf, a) in enumerate(zip(leaves, avals, strict=True))
        ]

    def _result(self, index: int, leaf: object, aval: ShapedArray) -> Any:
        """One result as an ndarray of the declared type."""
        try:
            host = np.asarray(leaf)
        except Exception as error:
            raise CallbackError(
                f"{self.name}: the callback returned{self._where(index)} {shown(leaf)} of type "
                f"{type(leaf).__name__}",
                expected=aval.str_short(),
            ) from error
        if host.dtype != aval.dtype and self._fits(leaf, host.dtype, aval.dtype):
            host = host.astype(aval.dtype)
        same = len(host.shape) == aval.ndim and all(
            [d == n or type(n) is not int for d, n in zip(host.shape, aval.shape, strict=True)]
        )
        if not same or host.dtype != aval.dtype:
            raise CallbackError(
                f"{self.name}: the callback returned{self._where(index)} another type than was "
                "declared",
                got=f"{host.dtype.name}{list(host.shape)}",
                expected=f"{aval.dtype.name}{list(aval.shape)}",
                hint="return arrays of the shapes and dtypes in result_shape_dtypes",
            )
        return np.asarray(host, order="C")

    def _where(self, index: int) -> str:
        """Which result, if there are several."""
        tree: Any = self.out_tree
        path = keystr(leaf_paths(tree)[index])
        return f" as result{path}" if path else ""

    def _fits(self, leaf: object, dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
        """Python numbers take the dtype wanted; 64-bit arrays become 32-bit ones without x64."""
        if type(leaf) in (bool, int, float, complex):
            return np.can_cast(dtype, wanted, "same_kind") or (
                wanted.kind in "fcV" and dtype.kind in "iuf"
            )
        return not self._keeps_64 and _NARROW.get(dtype.name) == wanted.name


def _on_cpu(array: Array) -> bool:
    """Whether the function can have the array as it is: whole, on a CPU."""
    sharding = array._sig.sharding
    return type(sharding) is SingleDeviceSharding and sharding.device.platform == "cpu"


def raise_callback_error(name: str, failure: BaseException) -> NoReturn:
    """Raise what a callback raised, as a CallbackError; requests to stop go on as they are."""
    if not isinstance(failure, Exception) or isinstance(failure, CallbackError):
        raise failure
    text = f"{type(failure).__name__}: {failure}".rstrip(": ")
    raise CallbackError(f"{name}: the callback raised {text}") from failure
