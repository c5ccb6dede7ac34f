"""The interpreter of masking: a program traced at logical sizes, run on padded arrays.

Arrays are padded at the end of each axis. An invariant holds of every value: its entries within
the logical shape are those of the program on unpadded arrays; the entries beyond may be anything.
A rule gives results of which that is true from arguments of which it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.interpreters.specialize import specialize_param
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.families import Elementwise
from tracebridge.core.symbolic.dims import DimExpr, is_static
from tracebridge.core.symbolic.evaluate import dims_evaluate

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand


Rule = Callable[["Masker", Application, list[Any]], Any]

RULES: dict[Primitive, Rule] = {}
"""The rules of primitives that need one: they mix entries of an axis, or look at its size."""


def rule_for(*primitives: Primitive) -> Callable[[Rule], Rule]:
    """Decorator: the masking rule of some primitives, ``(masker, application, args) -> result``."""

    def register(rule: Rule) -> Rule:
        for primitive in primitives:
            RULES[primitive] = rule
        return rule

    return register


class _SizeOps:
    """Arithmetic of ``dims_evaluate`` on ints and int32 scalars."""

    constant = staticmethod(int)
    add = staticmethod(operator.add)
    mul = staticmethod(operator.mul)
    floordiv = staticmethod(operator.floordiv)
    mod = staticmethod(operator.mod)

    @staticmethod
    def max(a: Operand, b: Operand) -> Any:
        """The greater one."""
        return max(a, b) if isinstance(a, int) and isinstance(b, int) else lax.max(a, b)

    @staticmethod
    def min(a: Operand, b: Operand) -> Any:
        """The smaller one."""
        return min(a, b) if isinstance(a, int) and isinstance(b, int) else lax.min(a, b)


@final
class Masker:
    """Sizes of the variables: ``padded`` ones, all ints, and ``logical`` ones, ints or scalars."""

    __slots__ = ("logical", "padded")

    def __init__(self, padded: Mapping[str, int], logical: Mapping[str, Any]) -> None:
        self.padded = padded
        self.logical = logical

    def run(self, jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
        """The padded results of a program at padded arguments."""
        env: list[Any] = [*args, *jaxpr.consts]
        for app, variables in jaxpr.equations:
            result = self.apply(app, [env[i] for i in variables])
            if app.multiple:
                env.extend(result)
            else:
                env.append(result)
        return [env[i] for i in jaxpr.outs]

    def apply(self, app: Application, args: list[Any]) -> Any:
        """The padded result of one equation.

        Raises:
            MissingRuleError: the primitive has no masking rule.
        """
        primitive = app.primitive
        rule = RULES.get(primitive)
        if rule is None or is_plain(app):
            if rule is None and not (isinstance(primitive, Elementwise) or is_plain(app)):
                raise MissingRuleError(primitive.name, "masking")
            return self.direct(app, args)
        return rule(self, app, args)

    def direct(self, app: Application, args: Sequence[Any]) -> Any:
        """The equation as it is, at padded sizes."""
        return app.primitive.bind(*args, **self.params(app))

    def params(self, app: Application) -> dict[str, Any]:
        """The parameters at padded sizes."""
        return {name: specialize_param(p, self.padded) for name, p in app.params.items()}

    def padded_size(self, dim: object) -> int:
        """The size of an axis in memory."""
        return dims_evaluate(dim, self.padded)

    def size(self, dim: object) -> Any:
        """The logical size: an int, or an int32 scalar."""
        return dims_evaluate(dim, self.logical, _SizeOps)

    def index(self, dim: object) -> Any:
        """The logical size as an int32 scalar."""
        size = self.size(dim)
        if isinstance(size, int):
            return literal(size, "int32")
        return lax.convert_element_type(size, "int32")

    def inside(self, aval: ShapedArray, axis: int) -> Any:
        """Which entries of a padded array are within logical axis ``axis``."""
        shape = tuple([self.padded_size(d) for d in aval.shape])
        positions = lax.broadcasted_iota("int32", shape, axis)
        return lax.lt(positions, self.index(aval.shape[axis]))

    def fill(self, x: Any, aval: ShapedArray, axes: Sequence[int], value: Any) -> Any:
        """``x`` with ``value`` beyond the logical end of some axes."""
        for axis in axes:
            if isinstance(aval.shape[axis], DimExpr):
                shape = tuple([self.padded_size(d) for d in aval.shape])
                beyond = lax.broadcast_in_dim(as_value(value), shape, ())
                x = lax.select(self.inside(aval, axis), x, beyond)
        return x

    def window(self, x: Any, axis: int, start: object, size: int) -> Any:
        """``size`` entries along an axis from a logical position (a dimension) on."""
        at = self.size(start)
        if isinstance(at, int):
            return lax.slice_in_dim(x, at, at + size, axis=axis)
        return lax.dynamic_slice_in_dim(x, at, size, axis=axis)


def is_plain(app: Application) -> bool:
    """Whether no symbolic size is anywhere in an equation."""
    avals = all([is_static(a.shape) for a in (*app.avals, *app.outs)])
    return avals and not any([mentions_dims(p) for p in app.params.values()])


def mentions_dims(param: object) -> bool:
    """Whether a parameter has symbolic sizes in it, also inside programs and tuples."""
    if isinstance(param, Jaxpr):
        avals = (*param.in_avals, *param.out_avals)
        static = all([is_static(a.shape) for a in avals])
        return not static or not all([is_plain(app) for app, _ in param.equations])
    if isinstance(param, ShapedArray):
        return not is_static(param.shape)
    if isinstance(param, tuple):
        return any([mentions_dims(p) for p in param])
    return isinstance(param, DimExpr)
