"""``call_tf``: a TensorFlow function as an operation of traced code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

import numpy as np
import tensorflow as tf

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.statics import static_key
from tracebridge._api.args.values import short_repr
from tracebridge.core.config.values import option
from tracebridge.core.control.callbacks.foreign import foreign_call_p
from tracebridge.core.control.callbacks.io import io_callback
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.caching import BoundedCache
from tracebridge.tf._foreign.called import Called, check_pure, check_variables
from tracebridge.tf.convert import unwrap

VMAP_METHODS = (None, "vectorized", "sequential")
_MAX_CALLS = 256
_ARRAYS = (EngineValue, np.ndarray, np.generic)


@api_boundary
def call_tf(
    fun: Callable[..., Any],
    *,
    variables: Any = None,
    output_shape_dtype: Any = None,
    has_side_effects: bool = False,
    ordered: bool = False,
    vmap_method: str | None = None,
) -> Callable[..., Any]:
    """``fun``, a function of TensorFlow tensors, as a function of arrays in traced code.

    Where TensorFlow compiles the function for XLA it becomes a part of the program, also of one
    that ``to_tf`` and ``export`` make; otherwise the program calls back into Python, and a
    warning says why. Called eagerly, TensorFlow runs it. Derivatives of any order are those of
    tapes. The call may be dropped or repeated, unless ``has_side_effects``. Make the function
    once and call it often: it remembers the graphs.

    Args:
        fun: function of dense tensors: of TensorFlow's operations, a ``tf.function``, a Keras
            layer or model. What autograph has to translate is to be a ``tf.function``.
        variables: tree of the variables whose values are arguments, such as
            ``model.trainable_variables``. The result then takes a tree of arrays for them as its
            first argument, by which it can be differentiated. Others keep the value that they
            have when the program runs. ``None``: there must be no trainable ones.
        output_shape_dtype: tree of ``ShapeDtypeStruct``, the types of the results, where their
            shapes depend on values. Eager calls do not need it.
        has_side_effects: whether the function writes to variables, prints or draws random
            numbers. Then the program calls back into Python each time it gets there, and the
            function has no derivatives.
        ordered: whether such calls keep the order of the program.
        vmap_method: ``"vectorized"`` maps the function by ``tf.vectorized_map``, ``"sequential"``
            calls it for each element. None does the first where TensorFlow can, else the second.

    Returns:
        A function of trees of arrays, which ``fun`` gets as tensors. Everything else, Python
        numbers too, is given as it is. It returns what ``fun`` returns, with arrays in the place
        of tensors.

    Raises:
        ArgumentSpecError: an argument is not as described; when called: the function uses a
            trainable variable and ``variables`` is None; sizes are not known, and the function
            reads a variable that ``variables`` does not name, needs more than the value of one,
            or has results of other sizes.
        CallbackError: when called: the function raised, writes to a variable or draws random
            numbers without ``has_side_effects``, returns strings, or, in a traced call, shapes
            that depend on values.

    >>> import tensorflow as tf
    >>> import tracebridge as tb
    >>> from tracebridge.tf import call_tf
    >>> log_gamma = call_tf(tf.math.lgamma)
    >>> print(tb.jit(tb.grad(lambda x: log_gamma(x).sum()))(tb.numpy.ones(2)))
    [-0.5772157 -0.5772157]
    """
    check_callable("call_tf", fun)
    if vmap_method not in VMAP_METHODS:
        msg = f"call_tf: vmap_method is {vmap_method!r}"
        raise ArgumentSpecError(msg, expected="None, 'vectorized' or 'sequential'")
    if ordered and not has_side_effects:
        raise ArgumentSpecError("call_tf: ordered without has_side_effects=True")
    return called(fun, variables, output_shape_dtype, vmap_method, has_side_effects, ordered)


def called(
    fun: Callable[..., Any],
    variables: Any,
    declared: Any,
    vmap_method: str | None,
    has_side_effects: bool | None,
    ordered: bool,
) -> Callable[..., Any]:
    """``call_tf``; ``has_side_effects`` is None for a function whose graph tells it."""
    calls = _Calls(fun, variables, declared, vmap_method, has_side_effects, ordered)

    @functools.wraps(fun, updated=())
    def call(*args: object, **kwargs: object) -> Any:
        return calls(args, kwargs)

    return api_boundary(tf.autograph.experimental.do_not_convert(call))


@final
class _Calls:
    """What one ``call_tf(fun)`` remembers."""

    def __init__(
        self,
        fun: Callable[..., Any],
        variables: Any,
        declared: Any,
        vmap_method: str | None,
        has_side_effects: bool | None,
        ordered: bool,
    ) -> None:
        self._fun = fun
        self._label = name_of(fun)
        self._declared = declared
        self._vectorized = vmap_method != "sequential"
        self._has_side_effects = has_side_effects
        self._ordered = ordered
        leaves, self._variables_tree = flatten(unwrap(variables))
        self._variables: list[Any] | None = None
        if variables is not None:
            self._variables = [_variable(self._label, leaf) for leaf in leaves]
            _check_once(self._label, self._variables)
        self._known: BoundedCache[Called] = BoundedCache(f"calls of {self._label}", _MAX_CALLS)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operands: list[Any] = []
        if self._variables:
            operands, args = self._values(args), args[1:]
        leaves, tree = flatten((args, kwargs))
        places: list[int] = []
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, _ARRAYS):
                places.append(i)
                operands.append(self._operand(leaf, tree, i))
                leaves[i] = None
        avals = tuple([v.aval for v in operands])
        types = tuple([(a.shape, a.dtype) for a in avals])
        key = (tree, types, tuple([static_key(s) for s in leaves]), option("enable_x64"))
        try:
            called = self._known.get(key)
        except TypeError:  # a static argument that cannot be hashed
            called, key = None, None
        if called is None:
            called = self._trace(avals, tree, places, leaves)
            if key is not None:
                self._known.set(key, called)
        if called.unsized is not None:
            return called.result(called.at_once(operands))
        operands += called.constants
        if called.has_effects:
            structs = [ShapeDtypeStruct(a.shape, a.dtype) for a in called.avals]
            run = functools.partial(_evaluated, called)
            outs = io_callback(run, structs, *operands, ordered=self._ordered)
        else:
            outs = foreign_call_p.bind(*operands, callback=called, result_avals=called.avals)
        return called.result(outs)

    def _operand(self, leaf: Any, tree: PyTreeDef, i: int) -> Value:
        try:
            return as_value(leaf)
        except UnsupportedDtypeError as error:
            name = argument_names(tree, parameter_names(self._fun))[i]
            msg = f"call_tf({self._label}): {name} is {short_repr(leaf)} of dtype {leaf.dtype}"
            hint = "pass numbers; strings in a tuple or a list, for constants of the function"
            raise UnsupportedDtypeError(msg, hint=hint) from error

    def _trace(self, avals: Any, tree: Any, places: list[int], leaves: list[Any]) -> Called:
        own = self._variables or ()
        called = Called(self._label, self._fun, tree, places, leaves, own)
        called.vectorized = self._vectorized
        graph = called.find_results(avals, self._declared)
        known = self._has_side_effects
        effects = bool(graph.writes() or graph.draws()) if known is None else known
        called.has_effects = effects
        if not effects:
            check_pure(called.name, graph)
            check_variables(called.name, self._fun, graph, self._variables)
        return called

    def _values(self, args: tuple[Any, ...]) -> list[Any]:
        """The values of the variables, which are the first argument."""
        name = f"call_tf({self._label})"
        if not args:
            msg = f"{name}: the values of the variables are missing"
            raise ArgumentSpecError(
                msg, hint="they are the first argument, in a tree like variables"
            )
        leaves, tree = flatten(unwrap(args[0]))
        if tree != self._variables_tree:
            msg = f"{name}: the first argument has another structure than variables"
            raise ArgumentSpecError(msg, got=str(tree), expected=str(self._variables_tree))
        values = [as_value(leaf) for leaf in leaves]
        for value, variable in zip(values, self._variables or (), strict=True):
            aval = value.aval
            if aval.shape != tuple(variable.shape) or aval.dtype.name != variable.dtype.name:
                msg = f"{name}: the value of the variable {variable.name!r} has another type"
                expected = f"{variable.dtype.name}{list(variable.shape)}"
                raise ShapeMismatchError(msg, got=aval.str_short(), expected=expected)
        return values


def _evaluated(called: Called, *arrays: Any) -> list[Any]:
    return called.evaluate(called.avals, arrays)


def _check_once(label: str, variables: list[Any]) -> None:
    """Raise where a variable would get two values, of which the last one would count."""
    seen: set[int] = set()
    for variable in variables:
        if id(variable) in seen:
            msg = f"call_tf({label}): variables has {variable.name!r} twice"
            raise ArgumentSpecError(msg, expected="each variable once")
        seen.add(id(variable))


def _variable(label: str, leaf: Any) -> Any:
    """A variable of TensorFlow; those of Keras hold one."""
    found = leaf if isinstance(leaf, tf.Variable) else getattr(leaf, "_value", None)
    if isinstance(found, tf.Variable):
        return found
    msg = f"call_tf({label}): variables has a leaf of type {type(leaf).__name__}"
    raise ArgumentSpecError(msg, expected="variables of TensorFlow or Keras")
