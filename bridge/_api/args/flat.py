"""One call of a function of trees as a flat function, with auxiliary data kept aside."""

from __future__ import annotations

from typing import Any, Final, final

from tracebridge._api.args.values import public, short_repr
from tracebridge.core.errors.argument_errors import kind_of
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.transform_errors import GradientTypeError
from tracebridge.core.interpreters.batching import BatchTracer
from tracebridge.core.interpreters.jvp import JvpTracer
from tracebridge.core.interpreters.linearize import DualTracer
from tracebridge.core.interpreters.staging import StagedTracer
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.float0 import has_float0, hide_float0
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value, is_array_like
from tracebridge.core.ir.values import Value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.tree.tree import PyTreeDef, flatten, leaf_treedef

# The commonest results, which are one leaf: no need to flatten them.
_SINGLE: Final = frozenset({Array, StagedTracer, DualTracer, JvpTracer, BatchTracer})
_TRACED: Final = object()
"""Stands for a tracer among the auxiliary data."""


@final
class FlatCall:
    """``fun(*args, **kwargs)`` as a function of the leaves of some of its arguments.

    ``positions`` None: the leaves are those of all positional arguments, and ``tree`` is the
    structure of that tuple. An int or a tuple: the leaves are those of that argument (of these
    arguments), the others are ``args`` and ``kwargs``.

    ``call`` gives the leaves of the result, then the tracers among the auxiliary data: results
    of transformed functions pass through the transformation, other data stay as they are.
    For one call; it holds what that call returned besides the leaves.
    """

    __slots__ = (
        "_args",
        "_aux",
        "_fun",
        "_has_aux",
        "_kwargs",
        "_positions",
        "n_out",
        "out_tree",
        "tree",
    )

    def __init__(
        self,
        fun: Any,
        tree: PyTreeDef,
        positions: int | tuple[int, ...] | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        has_aux: bool = False,
    ) -> None:
        self._fun = fun
        self._args = args
        self._kwargs = kwargs or {}
        self._positions = positions
        self._has_aux = has_aux
        self._aux: Any = None
        self.tree = tree
        self.n_out = 0
        self.out_tree: PyTreeDef = leaf_treedef

    def call(self, *xs: Any) -> list[Value]:
        """The function of the leaves."""
        arguments = self.tree.unflatten(xs)
        positions = self._positions
        if positions is None:
            out = self._fun(*arguments, **self._kwargs)
        else:
            args = list(self._args)
            if isinstance(positions, int):
                args[positions] = arguments
            else:
                for i, x in zip(positions, arguments, strict=True):
                    args[i] = x
            out = self._fun(*args, **self._kwargs)
        tracers: list[Any] = []
        if self._has_aux:
            out, aux = _split_aux(self._fun, out)
            leaves, tree = flatten(aux)
            tracers = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
            # The tracers end with the transformation and are not kept.
            self._aux = [_TRACED if isinstance(x, Tracer) else x for x in leaves], tree
        if type(out) in _SINGLE:
            self.n_out = 1
            return [out, *tracers]
        leaves, self.out_tree = flatten(out)
        if has_float0(leaves):
            leaves, self.out_tree = hide_float0(leaves, self.out_tree)
        self.n_out = len(leaves)
        values = [
            leaf if issubclass(type(leaf), EngineValue) else _as_result(self._fun, leaf)
            for leaf in leaves
        ]
        return values + tracers

    def aux(self, primals: list[Value]) -> Any:
        """The auxiliary data, with the tracers of the transformation replaced by ``primals``."""
        leaves, tree = self._aux
        given = iter(primals)
        # Operations without a traced argument give literals: they become arrays as well.
        found = [next(given) if leaf is _TRACED else leaf for leaf in leaves]
        return tree.unflatten([public(leaf) for leaf in found])


def _split_aux(fun: Any, out: Any) -> tuple[Any, Any]:
    if isinstance(out, tuple | list) and len(out) == 2:
        return out[0], out[1]
    msg = f"{name_of(fun)} returned {kind_of(out)}, but has_aux=True needs a pair (result, aux)"
    raise GradientTypeError(msg, hint="return a pair, or leave has_aux out")


def _as_result(fun: Any, leaf: Any) -> Value:
    if not is_array_like(leaf):
        msg = (
            f"{name_of(fun)} returned {short_repr(leaf)} of type {type(leaf).__name__}; "
            "expected arrays, numbers, and trees of them"
        )
        raise GradientTypeError(
            msg, hint=way_out_of(leaf, "return other data as auxiliary data with has_aux=True")
        )
    return as_value(leaf)
