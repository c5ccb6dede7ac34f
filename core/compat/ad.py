"""Rules of differentiation as functions: tables, and the usual ways to make rules.

Inside the engine a symbolic zero is None; the rules here see and give ``Zero(aval)``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.ir.primitive as base
import tracebridge.core.lax as lax
from tracebridge.core.compat.tables import RuleTable
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.transform_errors import CustomRuleError, MissingRuleError
from tracebridge.core.interpreters.jvp import JvpTrace, JvpTracer
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.linear_input import LinearInput, is_linear_input
from tracebridge.core.ir.typeof import as_value, typeof
from tracebridge.core.lax.ad_util import float0_of
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.value import Value


__all__ = [
    "JvpTrace",
    "JvpTracer",
    "LinearInput",
    "Zero",
    "add_jaxvals",
    "add_tangents",
    "defbilinear",
    "defjvp",
    "defjvp2",
    "deflinear",
    "deflinear2",
    "get_primitive_transpose",
    "instantiate_zeros",
    "is_linear_input",
    "primitive_jvps",
    "primitive_transposes",
    "zeros_like_aval",
]

Rule = Callable[..., Any]


@public_path("tracebridge.interpreters.ad")
@final
class Zero:
    """A tangent or cotangent that is zero, known by its aval alone.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import ad
    >>> ad.instantiate_zeros(ad.Zero(tb.typeof(2.0)))
    Array(0., dtype=float32)
    """

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        """The zero tangent of a value."""
        return Zero(typeof(value).tangent)

    def instantiate(self) -> Any:
        """An array of zeros."""
        return zeros_like_aval(self.aval)

    def __repr__(self) -> str:
        return f"Zero({self.aval.str_short()})"


# Both are structure of a tree without leaves, so that rules may go through vmap and the like.
register_pytree_node(Zero, lambda zero: ((), zero.aval), lambda aval, _: Zero(aval))
register_pytree_node(LinearInput, lambda x: ((), x.aval), lambda aval, _: LinearInput(aval))


def zeros_like_aval(aval: ShapedArray) -> Any:
    """An array of zeros of the type ``aval``.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import ad
    >>> print(ad.zeros_like_aval(tb.core.ShapedArray((2,), "float32")))
    [0. 0.]
    """
    if aval.dtype == float0:
        return float0_of(aval.shape)
    return lax.full(aval.shape, 0, aval.dtype)


def instantiate_zeros(tangent: object) -> Any:
    """The array of a ``Zero``; everything else as it is.

    Args:
        tangent: an array, or a ``Zero``.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import ad
    >>> print(ad.instantiate_zeros(ad.Zero(tb.typeof(1.0))), ad.instantiate_zeros(2.0))
    0.0 2.0
    """
    return tangent.instantiate() if type(tangent) is Zero else tangent


def add_jaxvals(x: Any, y: Any) -> Any:
    """The sum of two tangents, or of two cotangents.

    Args:
        x: a number or an array.
        y: a number or an array of the same shape and dtype.

    >>> from tracebridge.interpreters import ad
    >>> print(ad.add_jaxvals(1.0, 2.0))
    3.0
    """
    return lax.add(x, y)


def add_tangents(x: object, y: object) -> Any:
    """The sum of two tangents, each of which may be a ``Zero``.

    Args:
        x: an array, or a ``Zero``.
        y: an array of the same shape and dtype, or a ``Zero``.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import ad
    >>> ad.add_tangents(ad.Zero(tb.typeof(1.0)), 2.0)
    2.0
    """
    if type(x) is Zero:
        return y
    return x if type(y) is Zero else add_jaxvals(x, y)


# conversion of rules -----------------------------------------------------------------------------


def _given(x: object) -> Any:
    """A tangent or cotangent of a rule, as the engine has it."""
    if x is None or type(x) is Zero or getattr(x, "dtype", None) == float0:
        return None
    return as_value(x)


def _list(primitive: base.Primitive, what: str, x: object) -> list[Any]:
    if isinstance(x, list | tuple):
        return list(x)
    msg = f"the {what} rule of {primitive} gave {x!r}, expected a list"
    raise CustomRuleError(msg, hint="multiple_results is set on the primitive")


def _install_jvp(primitive: base.Primitive, rule: Rule) -> Rule:
    def jvp(primals: Sequence[Value], tangents: Sequence[object], **params: Any) -> Any:
        instantiated = [
            Zero(typeof(p).tangent) if t is None else t
            for p, t in zip(primals, tangents, strict=True)
        ]
        pair = rule(tuple(primals), tuple(instantiated), **params)
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            msg = f"the jvp rule of {primitive} gave {pair!r}, expected (result, tangent)"
            raise CustomRuleError(msg)
        out, tangent = pair
        if not primitive.multiple_results:
            return as_value(out), _given(tangent)
        outs = [as_value(o) for o in _list(primitive, "jvp", out)]
        return outs, [_given(t) for t in _list(primitive, "jvp", tangent)]

    return jvp


def _offer_jvp(primitive: base.Primitive) -> Rule:
    def rule(primals: Sequence[object], tangents: Sequence[object], **params: Any) -> Any:
        values = [as_value(p) for p in primals]
        tangents_or_none = [_given(t) for t in tangents]
        if all([t is None for t in tangents_or_none]):
            out = primitive.bind(*values, **params)
            outs = out if primitive.multiple_results else [out]
            zeros = [Zero.from_primal_value(o) for o in outs]
            return (out, zeros) if primitive.multiple_results else (out, zeros[0])
        out, tangent = primitive.jvp(values, tangents_or_none, **params)
        if not primitive.multiple_results:
            return out, _zero_for(out, tangent)
        return out, [_zero_for(o, t) for o, t in zip(out, tangent, strict=True)]

    return rule


def _zero_for(out: object, tangent: object) -> Any:
    return Zero.from_primal_value(out) if tangent is None else tangent


def _install_transpose(primitive: base.Primitive, rule: Rule) -> Rule:
    def transpose(ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        if primitive.multiple_results:
            avals = primitive.application(tuple([a.aval for a in args]), params).outs
            ct = [Zero(a.tangent) if c is None else c for a, c in zip(avals, ct, strict=True)]
        results = rule(ct, *args, **params)
        if not isinstance(results, list | tuple) or len(results) != len(args):
            msg = (
                f"the transpose rule of {primitive} gave {results!r}, expected {len(args)} results"
            )
            raise CustomRuleError(msg, hint="give None for arguments that are not linear")
        return [_given(r) for r in results]

    return transpose


def _offer_transpose(primitive: base.Primitive) -> Rule:
    def rule(ct: Any, *args: Any, **params: Any) -> Any:
        cts = _list(primitive, "transpose", ct) if primitive.multiple_results else [ct]
        cts_or_none = [_given(c) for c in cts]
        if all([c is None for c in cts_or_none]):
            return [Zero(a.aval.tangent) if is_linear_input(a) else None for a in args]
        values = [a if is_linear_input(a) else as_value(a) for a in args]
        arg_cts = primitive.transpose(
            cts_or_none if primitive.multiple_results else cts_or_none[0], *values, **params
        )
        return [
            Zero(a.aval.tangent) if c is None and is_linear_input(a) else c
            for a, c in zip(values, arg_cts, strict=True)
        ]

    return rule


primitive_jvps = RuleTable("ad.primitive_jvps", "jvp", _install_jvp, _offer_jvp)
"""``rule(primals, tangents, **params) -> (result, tangent)``; lists for several results."""

primitive_transposes = RuleTable(
    "ad.primitive_transposes", "transpose", _install_transpose, _offer_transpose
)
"""``rule(cotangent, *args, **params)`` gives a cotangent, or None, for each argument."""


def get_primitive_transpose(p: object) -> Rule:
    """The transpose rule of a primitive.

    Args:
        p: the primitive.

    Raises:
        MissingRuleError: there is none.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import ad
    >>> aval = tb.typeof(1.0)
    >>> ad.get_primitive_transpose(tb.lax.neg_p)(2.0, ad.UndefinedPrimal(aval))
    [Array(-2., dtype=float32, weak_type=True)]
    """
    rule = primitive_transposes.get(p)
    if rule is None:
        raise MissingRuleError(str(p), "transpose")
    return rule


# the usual rules ---------------------------------------------------------------------------------


def deflinear(primitive: Primitive, transpose_rule: Rule) -> None:
    """Say that a primitive is linear in all arguments together.

    Args:
        primitive: the primitive.
        transpose_rule: ``transpose_rule(cotangent, **params)`` gives a list of cotangents.

    >>> import tracebridge as tb
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import ad
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_impl(lambda x: 2 * x)
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> ad.deflinear(twice_p, lambda ct: [twice_p.bind(ct)])
    >>> print(tb.grad(twice_p.bind)(3.0))
    2.0
    """

    def rule(cotangent: object, *_: object, **params: Any) -> Any:
        return transpose_rule(cotangent, **params)

    deflinear2(primitive, rule)


def deflinear2(primitive: Primitive, transpose_rule: Rule) -> None:
    """As ``deflinear``, with a rule that sees the arguments as well.

    Args:
        primitive: the primitive.
        transpose_rule: ``transpose_rule(cotangent, *args, **params)`` gives a list of cotangents.

    >>> import tracebridge as tb
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import ad
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_impl(lambda x: 2 * x)
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> ad.deflinear2(twice_p, lambda ct, x: [twice_p.bind(ct)])
    >>> print(tb.grad(twice_p.bind)(3.0))
    2.0
    """
    primitive_jvps[primitive] = functools.partial(_linear_jvp, primitive)
    primitive_transposes[primitive] = functools.partial(_linear_transpose, transpose_rule)


def _linear_jvp(
    primitive: Any, primals: Sequence[Value], tangents: Sequence[object], **params: Any
) -> Any:
    out = primitive.bind(*primals, **params)
    if all([type(t) is Zero for t in tangents]):
        zeros = [Zero.from_primal_value(o) for o in (out if primitive.multiple_results else [out])]
        return (out, zeros) if primitive.multiple_results else (out, zeros[0])
    return out, primitive.bind(*[instantiate_zeros(t) for t in tangents], **params)


def _linear_transpose(rule: Rule, cotangent: object, *args: Any, **params: Any) -> Any:
    if type(cotangent) is Zero:
        return [Zero(a.aval.tangent) if is_linear_input(a) else None for a in args]
    return rule(cotangent, *args, **params)


def defjvp(primitive: Primitive, *jvprules: Rule | None) -> None:
    """Set the derivative with respect to each argument.

    Args:
        primitive: a primitive with one result.
        *jvprules: for each argument ``rule(tangent, *args, **params)``, or None for no derivative.

    >>> import tracebridge as tb
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import ad
    >>> cube_p = Primitive("cube")
    >>> _ = cube_p.def_impl(lambda x: x * x * x)
    >>> _ = cube_p.def_abstract_eval(lambda x: x)
    >>> ad.defjvp(cube_p, lambda t, x: 3 * x * x * t)
    >>> print(tb.grad(cube_p.bind)(2.0))
    12.0
    """

    def without_result(rule: Rule | None) -> Rule | None:
        if rule is None:
            return None
        return lambda t, ans, *args, **params: rule(t, *args, **params)

    defjvp2(primitive, *[without_result(rule) for rule in jvprules])


def defjvp2(primitive: Any, *jvprules: Rule | None) -> None:
    """As ``defjvp``, with rules ``rule(tangent, result, *args, **params)``.

    >>> import tracebridge as tb
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import ad
    >>> exp_p = Primitive("own_exp")
    >>> _ = exp_p.def_impl(tb.lax.exp)
    >>> _ = exp_p.def_abstract_eval(lambda x: x)
    >>> ad.defjvp2(exp_p, lambda t, result, x: t * result)
    >>> print(tb.grad(exp_p.bind)(0.0))
    1.0
    """

    def jvp(primals: Sequence[Value], tangents: Sequence[object], **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        total: Any = Zero.from_primal_value(out)
        for rule, tangent in zip(jvprules, tangents, strict=True):
            if rule is not None and type(tangent) is not Zero:
                total = add_tangents(total, rule(tangent, out, *primals, **params))
        return out, total

    primitive_jvps[primitive] = jvp


def defbilinear(prim: Any, lhs_rule: Rule, rhs_rule: Rule) -> None:
    """Say that a primitive of two arguments is linear in each of them.

    Args:
        prim: the primitive.
        lhs_rule: ``lhs_rule(cotangent, x, y, **params)`` gives the cotangent of the first
            argument; its ``x`` has an aval only.
        rhs_rule: the same for the second argument.

    >>> import tracebridge as tb
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import ad
    >>> product_p = Primitive("product")
    >>> _ = product_p.def_impl(lambda x, y: x * y)
    >>> _ = product_p.def_abstract_eval(lambda x, y: x)
    >>> ad.defbilinear(product_p, lambda ct, x, y: ct * y, lambda ct, x, y: x * ct)
    >>> print(tb.grad(product_p.bind, argnums=1)(3.0, 4.0))
    3.0
    """

    def left(t: Any, x: object, y: Any, **params: Any) -> Any:
        return prim.bind(t, y, **params)

    def right(t: Any, x: Any, y: object, **params: Any) -> Any:
        return prim.bind(x, t, **params)

    def transpose(ct: Any, x: Any, y: Any, **params: Any) -> Any:
        if is_linear_input(x):
            cotangent = Zero(x.aval.tangent) if type(ct) is Zero else lhs_rule(ct, x, y, **params)
            return cotangent, None
        cotangent = Zero(y.aval.tangent) if type(ct) is Zero else rhs_rule(ct, x, y, **params)
        return None, cotangent

    defjvp(prim, left, right)
    primitive_transposes[prim] = transpose
