"""The call of a user's function: its arguments, its results, and what it may not do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast, final

import numpy as np
import tensorflow as tf

from tracebridge.core.control.callbacks.base import result_types
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.lowering.module import MAX_EMBEDDED_BYTES
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.effects.host_callback import raise_callback_error
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.interop.tf_adapter import ROWS, tf_adapter
from tracebridge.tf._foreign.functions import TensorFlowFunction
from tracebridge.tf._foreign.graphs import Graph, Tensors
from tracebridge.tf._foreign.lifting import Free
from tracebridge.tf._foreign.sizes import is_dynamic, types_at_any_size
from tracebridge.tf.convert import unwrap

_STATIC = (bool, int, float, complex, str, bytes, tf.DType, tf.TensorShape)


@final
class Called(TensorFlowFunction):
    """A function of the user, with its arguments that are no arrays.

    ``places``: where among the leaves of ``tree``, which are otherwise ``statics``, tensors stand.
    """

    def __init__(
        self,
        label: str,
        fun: Callable[..., Any],
        tree: PyTreeDef,
        places: Sequence[int],
        statics: Sequence[Any],
        variables: Sequence[Any],
    ) -> None:
        super().__init__(label, (*variables, *[None] * len(places)), ())
        self._fun = fun
        self._tree = tree
        self._places = list(places)
        self._statics = list(statics)
        self._out_leaves: list[Any] = []
        self._out_places: list[int] = []
        self._out_tree: PyTreeDef | None = None
        self.avals: tuple[ShapedArray, ...] = ()
        self.constants: list[Any] = []  # operands behind those of the caller
        self.vectorized = True
        self.has_effects = False
        self.unsized: CallbackError | None = None  # why programs cannot have it
        self._has_said = False
        self._graph: Graph | None = None

    def say_once(self, message: str) -> None:
        if not self._has_said:
            self._has_said = True
            warn_user(message)

    @property
    def is_vmappable(self) -> bool:
        return self.vectorized

    def fingerprinted(self) -> Any:
        """What is in fingerprints of programs with this function."""
        return "called", self._fun, self._tree, self._places, self._statics

    def free(self) -> TensorFlowFunction:
        if self._graph is None:
            raise RuntimeError(f"{self.name} has not been traced")
        return Free(self, self._graph)

    def find_results(self, avals: Sequence[ShapedArray], declared: Any) -> Graph:
        """Trace the function at operands of these types; ``declared``: the types of results."""
        expected: Any = None
        declared_tree: Any = None
        if declared is not None:
            expected, declared_tree = result_types(self.name, declared)
        elif is_dynamic(avals):
            trace = functools.partial(Graph, self.name, self.call)
            expected = types_at_any_size(self.name, trace, self.tensors_of(avals))
        graph = Graph(self.name, self.call, self.tensors_of(avals), expected, runs_now=is_eager())
        self._graph = graph
        self.unsized = graph.unsized
        if graph.unsized is not None:
            return graph
        self.avals = graph.out_avals
        self.inexact = tuple([is_inexact(a.dtype) for a in self.avals])
        large = [t for t in graph.captured if _is_large(t)]
        self.constants = [tf_adapter.import_(t) for t in large]
        self.slots = (*self.slots, *large)
        self.n_in = len(self.slots)
        self.remember([*avals, *[c.aval for c in self.constants]], graph)
        if declared_tree is not None:
            self._out_leaves = [None] * len(expected)
            self._out_places = list(range(len(expected)))
            self._out_tree = declared_tree
        return graph

    def at_once(self, operands: Sequence[Any]) -> list[Any]:
        """The results of a call now, whose shapes depend on values.

        Raises:
            CallbackError: it is no call of now: an operand is traced, or there is a trace.
        """
        if self.unsized is None or self._graph is None:
            raise RuntimeError(f"{self.name} has results of known shapes")
        if not is_eager() or not all([type(x) is Array for x in operands]):
            raise self.unsized
        try:
            return self._evaluated(self._graph, operands)
        except Exception as error:  # noqa: BLE001 - a function of the user may fail in any way
            raise_callback_error(self.name, error)

    def call(self, *tensors: Any) -> Tensors:
        leaves = list(self._statics)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = self._tree.unflatten(leaves)
        outs, tree = flatten(unwrap(self._fun(*args, **kwargs)))
        found: list[Any] = []
        places: list[int] = []
        for i, leaf in enumerate(outs):
            if isinstance(leaf, tf.Tensor | tf.Variable | np.ndarray | np.generic) or (
                hasattr(type(leaf), "__tf_tensor__")
            ):
                found.append(tf.convert_to_tensor(cast("Any", leaf)))
                places.append(i)
                outs[i] = None
            elif not isinstance(leaf, _STATIC):
                msg = f"{self.name}: the result has a leaf {shown(leaf)} of type"
                hint = "return dense tensors, in tuples, lists and dicts"
                raise CallbackError(f"{msg} {type(leaf).__name__}", hint=hint)
        if self._out_tree is None:
            self._out_leaves, self._out_places, self._out_tree = outs, places, tree
        return tuple(found)

    def result(self, values: Sequence[Any]) -> Any:
        """What the function returns, with these in the place of its tensors."""
        tree: Any = self._out_tree
        leaves = list(self._out_leaves)
        for place, value in zip(self._out_places, values, strict=True):
            leaves[place] = value
        return tree.unflatten(leaves)


def _is_large(tensor: Any) -> bool:
    """Whether programs take a constant as an argument."""
    if tensor.dtype.name not in ROWS.rows:
        return False
    return tensor.shape.num_elements() * tensor.dtype.size > MAX_EMBEDDED_BYTES


def check_pure(name: str, graph: Graph) -> None:
    """Raise if a second call would do something else, or something again.

    Raises:
        CallbackError: it writes to variables, or draws random numbers.
    """
    operation = graph.writes()
    if operation:
        msg = f"{name}: the function writes to a variable, table or file ({operation})"
        hint = "return the new value, or pass has_side_effects=True (then it has no derivatives)"
        raise CallbackError(msg, hint=hint)
    operation = graph.draws()
    if operation:
        msg = f"{name}: the function draws random numbers ({operation})"
        hint = (
            "use tf.random.stateless_normal and the like with a seed that is an argument, or pass "
            "has_side_effects=True (then it has no derivatives)"
        )
        raise CallbackError(msg, hint=hint)


def check_variables(name: str, fun: Any, graph: Graph, given: Sequence[Any] | None) -> None:
    """Raise if derivatives by a trainable variable would be lost silently.

    Raises:
        ArgumentSpecError: names the variable.
    """
    if given is not None:
        return
    # The variables of a layer of Keras do not say that it has been frozen.
    frozen = {id(getattr(v, "_value", v)) for v in getattr(fun, "non_trainable_variables", ())}
    for variable in graph.variables:
        if variable.trainable and id(variable) not in frozen:
            msg = f"{name}: the function uses the trainable variable {variable.name!r}"
            hint = (
                "pass variables=[...] with those to derive by, whose values are then the first "
                "argument; or variables=[] to read them all when the program runs, as constants"
            )
            raise ArgumentSpecError(msg, hint=hint)
