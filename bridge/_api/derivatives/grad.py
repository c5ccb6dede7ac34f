"""Reverse-mode derivatives of scalar functions: grad and value_and_grad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, final

from tracebridge._api.args.argnums import (
    argument_names_at,
    check_argument_count,
    check_callable,
    derivative_argnums,
)
from tracebridge._api.args.flat import FlatCall
from tracebridge._api.args.values import (
    differentiable,
    name_of_leaf,
    public,
    spread,
    tangent_or_zeros,
    values_of,
)
from tracebridge._api.args.wraps import named_like
from tracebridge._api.derivatives.reduced import with_reduced_axes
from tracebridge.core.dtypes.dtypes import complexes, float0, floats, is_complex, is_inexact
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import GradientTypeError
from tracebridge.core.interpreters.linearize import linearize_flat
from tracebridge.core.interpreters.transpose import backward
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.user_type import is_user_type
from tracebridge.core.ir.values import Literal, Value
from tracebridge.core.tree.printing import format_treedef
from tracebridge.core.tree.tree import PyTreeDef, flatten, leaf_treedef
from tracebridge.core.util.caching import register_table

P = ParamSpec("P")
# The first lines of the documentation of the functions that are made here.
_DOC = (
    "{} of {{fun}} by its positional argument(s) {}.\n\n"
    "Takes the arguments of {{fun}} and returns {}; a gradient has the structure and the shapes of "
    "the argument(s)."
)


@final
class GradOptions:
    """Resolved arguments of ``grad`` and its kin; ``call`` is the public name, for messages."""

    __slots__ = (
        "allow_int",
        "argnums",
        "call",
        "fun",
        "has_aux",
        "highest",
        "holomorphic",
        "label",
        "nums",
        "reduce_axes",
        "root",
        "single",
    )

    def __init__(
        self,
        call: str,
        fun: Any,
        argnums: Any,
        has_aux: bool,
        holomorphic: bool,
        allow_int: bool,
        reduce_axes: Any = (),
    ) -> None:
        check_callable(call, fun)
        self.call = call
        self.fun = fun
        self.argnums = argnums
        self.nums = derivative_argnums(call, argnums)
        self.single = hasattr(argnums, "__index__")
        self.highest = max([i + 1 if i >= 0 else -i for i in self.nums], default=0)
        self.has_aux = has_aux
        self.holomorphic = holomorphic
        self.allow_int = allow_int
        self.reduce_axes = reduce_axes
        names = argument_names_at(fun, self.nums)
        # What messages call the differentiated arguments.
        self.root = names[0] if self.single else names
        self.label = f"{call}({name_of(fun)})"


def grad(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[P, Any]:
    """A function that computes the gradient of ``fun``.

    Args:
        fun: function of arrays and trees of arrays. Its result is a real scalar of shape ``()``,
            or with ``has_aux`` a pair ``(scalar, auxiliary data)``.
        argnums: position, or positions, of the arguments to differentiate.
        has_aux: ``fun`` returns a pair; its second element is passed on undifferentiated.
        holomorphic: ``fun`` is complex-differentiable: arguments and result are complex.
        allow_int: integer and boolean arguments get gradients of dtype ``float0``.
        reduce_axes: names of axes of surrounding ``vmap`` calls. The gradient of an argument
            that all elements of such an axis share is summed over the axis: the gradient of the
            sum of all results. Without it each element has the gradient of its own result.

    Returns:
        A function with the arguments of ``fun``. Its result has the structure, shapes and dtypes
        of the argument ``argnums``, as a tuple if ``argnums`` is a sequence; with ``has_aux``
        a pair of that and the auxiliary data.

    Raises:
        GradientTypeError: an argument or the result has a wrong dtype, or is no scalar.
        ArgumentSpecError: the call gives too few positional arguments for ``argnums``.

    >>> import tracebridge as tb
    >>> print(tb.grad(lambda x: x * x)(3.0))
    6.0
    >>> tb.grad(lambda p, x: p['w'] * x)({'w': 2.0}, 5.0)
    {'w': Array(5., dtype=float32, weak_type=True)}
    """
    options = GradOptions("grad", fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @named_like(fun, _DOC.format("Gradient", argnums, "the gradient"))
    def grad_f(*args: Any, **kwargs: Any) -> Any:
        _, gradient, aux = gradient_of(options, args, kwargs)
        return (gradient, aux) if has_aux else gradient

    return api_boundary(grad_f)


def value_and_grad(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[P, tuple[Any, Any]]:
    """A function that computes the value of ``fun`` and its gradient.

    Args:
        fun: as in ``grad``.
        argnums: as in ``grad``.
        has_aux: as in ``grad``; the value is then the pair ``(scalar, auxiliary data)``.
        holomorphic: as in ``grad``.
        allow_int: as in ``grad``.
        reduce_axes: as in ``grad``.

    Returns:
        A function with the arguments of ``fun`` that gives ``(value, gradient)``.

    Raises:
        GradientTypeError: an argument or the result has a wrong dtype, or is no scalar.
        ArgumentSpecError: the call gives too few positional arguments for ``argnums``.

    >>> import tracebridge as tb
    >>> value, gradient = tb.value_and_grad(lambda x: x * x)(3.0)
    >>> print(value, gradient)
    9.0 6.0
    """
    options = GradOptions(
        "value_and_grad", fun, argnums, has_aux, holomorphic, allow_int, reduce_axes
    )

    @named_like(fun, _DOC.format("Value and gradient", argnums, "a pair of both"))
    def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
        value, gradient, aux = gradient_of(options, args, kwargs)
        return ((value, aux) if has_aux else value), gradient

    return api_boundary(value_and_grad_f)


def gradient_of(
    options: GradOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """``(value, gradient, aux)``: one linearization and one backward walk."""
    if len(args) < options.highest or not options.single:
        check_argument_count(options.call, options.fun, options.argnums, options.highest, len(args))
    nums = options.nums
    chosen = args[nums[0]] if options.single else tuple([args[i] for i in nums])
    leaves, tree = flatten(chosen)
    values = values_of(options.label, leaves, tree, options.root)
    for i, value in enumerate(values):
        if value.aval.dtype not in floats or options.holomorphic:
            check_input(options, value.aval, tree, i)
    positions = nums[0] if options.single else nums
    call = FlatCall(options.fun, tree, positions, args, kwargs, has_aux=options.has_aux)
    flags = differentiable(values) if options.allow_int else None
    flat = call.call
    if options.reduce_axes != ():
        flat = with_reduced_axes(options.label, flat, values, options.reduce_axes)
    outs, linear = linearize_flat(flat, values, flags, options.label)
    out = _scalar_result(options, outs, call)
    seed = _SEEDS.get(out.aval)
    if seed is None:
        seed = _seed_of(out.aval)
    cts = [seed, *[None] * (len(outs) - 1)]
    grads = backward(linear, cts, current_trace().process)
    results = [
        tangent_or_zeros(ct, v.aval.tangent)
        for ct, v in zip(spread(grads, flags), values, strict=True)
    ]
    gradient = tree.unflatten(results)
    return public(out), gradient, call.aux(outs[1:]) if options.has_aux else None


def _types(tree: PyTreeDef, outs: Sequence[Value]) -> str:
    """A tree of types."""
    return format_treedef(tree, [o.aval.str_short() for o in outs[: tree.num_leaves]])


# One literal per aval: it keeps its device buffer.
_SEEDS: dict[ShapedArray, Literal] = register_table("seeds of gradients", {})


def _seed_of(aval: ShapedArray) -> Literal:
    """The cotangent 1 of a scalar result."""
    seed = _SEEDS[aval] = Literal(1.0 if aval.dtype in floats else 1.0 + 0.0j, aval)
    return seed


def check_input(options: GradOptions, aval: ShapedArray, tree: PyTreeDef, index: int) -> None:
    """Raise GradientTypeError unless an argument of this dtype can be differentiated."""
    if is_user_type(aval):
        return  # it says itself what its tangents are
    dtype = aval.dtype
    if options.holomorphic:
        if is_complex(dtype):
            return
        expected, hint = "a complex dtype, because holomorphic=True", "leave holomorphic out"
    elif is_inexact(dtype) or (options.allow_int and aval.tangent.dtype == float0):
        return
    else:
        expected = "a real or complex dtype"
        hint = "convert it to a float dtype, or pass allow_int=True, or use vjp"
    where = name_of_leaf(tree, index, options.root)
    raise GradientTypeError(
        f"{options.label}: {where} is {aval.str_short()}",
        expected=expected,
        hint=hint,
    )


_ONE_SCALAR = "Gradient only defined for scalar-output functions."


def _scalar_result(options: GradOptions, outs: list[Value], call: FlatCall) -> Value:
    """The result; raises GradientTypeError unless it is one scalar of a fitting dtype."""
    single = call.out_tree is leaf_treedef or call.out_tree == leaf_treedef
    plain = single and outs[0].aval.ndim == 0 and outs[0].aval.dtype in floats
    if plain and not options.holomorphic:
        return outs[0]
    name = options.label
    if not single:
        raise GradientTypeError(
            f"{_ONE_SCALAR} {name}: the function returned a tree {_types(call.out_tree, outs)}",
            hint="return (scalar, aux) with has_aux=True, or use jacrev for several results",
        )
    aval = outs[0].aval
    if aval.shape != ():
        raise GradientTypeError(
            f"{_ONE_SCALAR} {name}: the function returned an array {aval.str_short()}",
            hint="reduce the result (sum, mean), or use jacrev or vjp",
        )
    check_output(options, aval, name)
    return outs[0]


def check_output(options: GradOptions, aval: ShapedArray, name: str) -> None:
    """Raise GradientTypeError unless a result of this dtype can be differentiated in reverse."""
    dtype = aval.dtype
    if options.holomorphic:
        if dtype not in complexes:
            raise GradientTypeError(
                f"{name}: the result is {aval.str_short()}",
                expected="a complex dtype, because holomorphic=True",
                hint="leave holomorphic out, or take the derivative of a complex function",
            )
        return
    if dtype in floats:
        return
    if dtype in complexes:
        hint = "pass holomorphic=True if the function is holomorphic, else use vjp"
    else:
        hint = "return a float, or use vjp, whose cotangent of an integer result is float0"
    raise GradientTypeError(
        f"{name}: the result is {aval.str_short()}", expected="a real floating dtype", hint=hint
    )
