"""mask and shapecheck: functions of logical shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.values import public, values_of
from tracebridge._api.args.wraps import named_like
from tracebridge._api.programs.make_jaxpr import trace_to_jaxpr
from tracebridge.core.control.calls.traced_call import Arguments
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.operators import ArrayOperators
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct, struct_of
from tracebridge.core.symbolic.compare import definitely_equal_shapes
from tracebridge.core.symbolic.parse import parse_shape
from tracebridge.core.symbolic.scope import SymbolicScope
from tracebridge.core.symbolic.solve import solve_dim_variables
from tracebridge.core.transforms.masking import control, reductions, shapes
from tracebridge.core.transforms.masking.interpreter import Masker
from tracebridge.core.tree.prefix import check_same_structure
from tracebridge.core.tree.tree import PyTreeDef, flatten

# Imported for the rules that they register.
RULE_MODULES = (control, reductions, shapes)


def mask(
    fun: Callable[..., object], in_shapes: object, out_shape: Any = None
) -> Callable[..., Any]:
    """A function of padded arrays that computes ``fun`` on their logical parts.

    The logical part of an array is in front on each axis; what lies beyond it does not matter, in
    arguments and in results. Together with ``vmap`` it maps a function over arrays of different
    sizes.

    Args:
        fun: function of arrays and trees of arrays, by position.
        in_shapes: sequence with one entry per argument: logical shapes such as ``"(n, 3)"``, or
            trees of them like the argument. A size is a number, a name, a polynomial in names
            (``2*n + 1``), or ``_`` for the size that the array has.
        out_shape: logical shapes of the result, to be checked, in the same form.

    Returns:
        ``masked(args, logical_env)``, where ``logical_env`` has the logical size of each name, as
        an int or an integer scalar. It gives the padded results; without ``out_shape`` a pair of
        these and of ``ShapeDtypeStruct`` with their logical shapes.

    Raises:
        ShapeMismatchError: shapes of arguments or results do not fit, or padding would move
            between the entries of a result.
        MissingRuleError: an operation has no masking rule.
        ValueError: a shape has a syntax error.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> total = tb.mask(tnp.sum, ["n"], "")
    >>> print(total([tnp.array([1.0, 2.0, 100.0])], {"n": 2}))
    3.0
    >>> rows = tnp.array([[1.0, 2.0, 100.0], [3.0, 100.0, 100.0]])
    >>> print(tb.vmap(lambda row, n: total([row], {"n": n}))(rows, tnp.array([2, 1])))
    [3. 3.]
    """
    check_callable("mask", fun)
    call = f"mask({name_of(fun)})"
    scope = SymbolicScope(strict=True)
    specs, spec_tree = flatten(tuple(in_shapes) if type(in_shapes) is list else in_shapes)
    wanted = None if out_shape is None else flatten(out_shape)

    @named_like(fun)
    def masked(args: object, logical_env: Mapping[str, Any]) -> Any:
        leaves, tree = flatten(tuple(args) if type(args) is list else args)
        if tree != spec_tree:
            check_same_structure(call, tree, spec_tree, "args", "in_shapes")
        values = values_of(call, leaves, tree, "args")
        actual = [v.aval for v in values]
        avals = _logical_avals(call, specs, scope, actual)
        padded = _padded_sizes(call, avals, actual)
        logical = _logical_sizes(call, padded, logical_env)
        jaxpr, out_tree = _traced(call, fun, avals, tree)
        if wanted is not None:
            _check_results(call, wanted, scope, jaxpr.out_avals, out_tree)
        masker = Masker(padded, logical)
        outs = out_tree.unflatten([public(o) for o in masker.run(jaxpr, values)])
        if wanted is not None:
            return outs
        structs = [
            ShapeDtypeStruct([masker.size(d) for d in a.shape], a.dtype) for a in jaxpr.out_avals
        ]
        return outs, out_tree.unflatten(structs)

    return api_boundary(masked)


def shapecheck(
    in_shapes: object, out_shape: Any, fun: Callable[..., object] | None = None
) -> Callable[..., Any]:
    """Check the shapes of a function for all sizes at once, without running it.

    Args:
        in_shapes: sequence with the shape of each argument, as in ``mask``; all are float32.
        out_shape: the shapes of the result.
        fun: the function. Without it the result is a decorator.

    Returns:
        ``fun`` itself.

    Raises:
        ShapeMismatchError: the function does not accept such arguments, or its results have other
            shapes.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> @tb.shapecheck(["(m, n)", "(n, o)"], "(m, o)")
    ... def matmul(a, b):
    ...     return tnp.dot(a, b)
    """
    if fun is None:
        return functools.partial(shapecheck, in_shapes, out_shape)
    check_callable("shapecheck", fun)
    call = f"shapecheck({name_of(fun)})"
    scope = SymbolicScope(strict=True)
    specs, tree = flatten(tuple(in_shapes) if type(in_shapes) is list else in_shapes)
    shapes_in = [_parsed(call, spec, scope, None) for spec in specs]
    avals = [ShapedArray(shape, "float32") for shape in shapes_in]
    jaxpr, out_tree = _traced(call, fun, avals, tree)
    _check_results(call, flatten(out_shape), scope, jaxpr.out_avals, out_tree)
    return fun


def _parsed(call: str, spec: object, scope: SymbolicScope, like: Sequence[object] | None) -> Any:
    """A shape from its text."""
    if not isinstance(spec, str):
        msg = f"{call}: got a shape {spec!r} of type {type(spec).__name__}"
        raise ArgumentSpecError(msg, expected="a string such as '(n, 3)'")
    if not spec.strip() and not like:
        return ()
    return parse_shape(spec, scope.variable, like, call)


def _logical_avals(
    call: str, specs: Sequence[object], scope: SymbolicScope, actual: Sequence[ShapedArray]
) -> list[ShapedArray]:
    """The avals that ``fun`` is traced at."""
    found: list[ShapedArray] = []
    for spec, aval in zip(specs, actual, strict=True):
        try:
            shape = _parsed(call, spec, scope, aval.shape)
        except ValueError as error:
            if "dimensions, like=" not in str(error):
                raise
            msg = f"{call}: in_shapes has {spec!r} for an array {aval.str_short()}"
            raise ShapeMismatchError(msg, expected="one size for each of its axes") from error
        found.append(aval.update(shape=shape))
    return found


def _padded_sizes(
    call: str, avals: Sequence[ShapedArray], actual: Sequence[ShapedArray]
) -> dict[str, int]:
    """The size of each name in memory, from the shapes of the arguments."""
    try:
        return solve_dim_variables([a.shape for a in avals]).evaluate([a.shape for a in actual])
    except ShapeMismatchError as error:
        got = ", ".join([a.str_short() for a in actual])
        logical = ", ".join([a.str_short() for a in avals])
        msg = f"{call}: the arguments ({got}) do not have the shapes ({logical}): {error.args[0]}"
        raise ShapeMismatchError(msg) from error


def _logical_sizes(
    call: str, padded: Mapping[str, int], logical_env: Mapping[str, Any]
) -> dict[str, Any]:
    """The logical size of each name: ints, or int32 scalars."""
    missing = sorted(padded.keys() - logical_env.keys())
    if missing:
        msg = f"{call}: logical_env has no size for {', '.join(map(repr, missing))}"
        raise ArgumentSpecError(msg, expected=f"sizes for {sorted(padded)}")
    sizes_by_name: dict[str, Any] = {}
    for name, most in padded.items():
        size = logical_env[name]
        if hasattr(size, "__index__") and not isinstance(size, ArrayOperators):
            size = size.__index__()
            if not 0 <= size <= most:
                msg = f"{call}: the logical size of {name!r} is {size}, the padded one {most}"
                raise ShapeMismatchError(msg, expected=f"a size from 0 to {most}")
        else:
            (size,) = values_of(call, [size], flatten(0)[1], f"logical_env[{name!r}]")
        sizes_by_name[name] = size
    return sizes_by_name


def _traced(
    call: str, fun: Callable[..., object], avals: Sequence[ShapedArray], tree: PyTreeDef
) -> tuple[Jaxpr, PyTreeDef]:
    structs = tree.unflatten([struct_of(a) for a in avals])
    leaves, structure = flatten((tuple(structs), {}))
    arguments = Arguments(fun, leaves, structure, parameters=parameter_names(fun))
    return trace_to_jaxpr(call.partition("(")[0], fun, arguments)


def _check_results(
    call: str,
    wanted: tuple[list[Any], PyTreeDef],
    scope: SymbolicScope,
    avals: Sequence[ShapedArray],
    tree: PyTreeDef,
) -> None:
    """Raise ShapeMismatchError unless the results have the logical shapes that are wanted."""
    specs, spec_tree = wanted
    if spec_tree != tree:
        check_same_structure(call, tree, spec_tree, "the result", "out_shape")
    for spec, aval in zip(specs, avals, strict=True):
        try:
            shape = _parsed(call, spec, scope, aval.shape)
            fits = definitely_equal_shapes(shape, aval.shape)
        except ValueError as error:
            if "dimensions, like=" not in str(error):
                raise
            fits = False
        if not fits:
            msg = f"{call}: the result has the shape {_text(aval.shape)}, out_shape is {spec!r}"
            raise ShapeMismatchError(msg)


def _text(shape: Sequence[object]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
