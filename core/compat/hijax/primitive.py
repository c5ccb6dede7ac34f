"""Operations on values of types that programs define, given by a class of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from tracebridge.core.compat.ad import primitive_jvps, primitive_transposes
from tracebridge.core.compat.hijax.mutable import AvalQDD
from tracebridge.core.compat.primitive import Primitive
from tracebridge.core.control.refs.ref import Ref
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import is_mutable
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import LoweringContext

_RULES = ("jvp", "transpose", "is_high", "is_effectful")


@public_path("tracebridge.experimental.hijax")
class HiPrimitive(Primitive):
    """Base of operations whose rules are methods, in the terms of values of users.

    A subclass defines ``abstract_eval(*types, **params)``, which gives the type of the result (a
    list where ``multiple_results``) and a set of effects; ``to_lojax(*values, **params)``, which
    computes it from arrays by other operations; for derivatives
    ``jvp(primals, tangents, **params)`` and, of linear operations,
    ``transpose(cotangent, *arguments, **params)``, where symbolic zeros are ``Zero`` and linear
    arguments are those that ``is_undefined_primal``. ``bind`` applies one.

    Args:
        name: what it is called in printed programs.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.hijax import HiPrimitive
    >>> class Twice(HiPrimitive):
    ...     def abstract_eval(self, x):
    ...         return x, set()
    ...     def to_lojax(self, x):
    ...         return x + x
    ...     def jvp(self, primals, tangents):
    ...         return twice_p.bind(*primals), twice_p.bind(*tangents)
    ...     def transpose(self, cotangent, x):
    ...         return [twice_p.bind(cotangent)]
    >>> twice_p = Twice("twice")
    >>> print(tb.jit(twice_p.bind)(3.0), tb.grad(twice_p.bind)(3.0))
    6.0 2.0
    """

    _rules_of_users: ClassVar[Mapping[str, Callable[..., Any]]] = MappingProxyType({})

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        found = dict(cls._rules_of_users)
        for name in _RULES:
            if name in vars(cls):
                # The engine's methods of these names take other arguments.
                found[name] = vars(cls)[name]
                delattr(cls, name)
        cls._rules_of_users = found

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._impl = self._evaluate
        rules = self._rules_of_users
        if "jvp" in rules:
            primitive_jvps[self] = rules["jvp"].__get__(self)
        if "transpose" in rules:
            primitive_transposes[self] = rules["transpose"].__get__(self)

    def to_lojax(self, *args: Any, **params: Any) -> Any:
        """The results by other operations; a subclass defines it.

        Raises:
            MissingRuleError: it does not.
        """
        del args, params
        raise MissingRuleError(self.name, "to_lojax", hint="define the method in the subclass")

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the operation to values; to what no program computes with, or to make it, at once.

        That are objects that change, references, and types in the place of arrays.
        """
        at_once = any([is_mutable(a) or isinstance(a, Ref | ShapeDtypeStruct) for a in args])
        if at_once or self._makes_mutable(args, params):
            out = self.to_lojax(*args, **params)
            return list(out) if self.multiple_results else out
        return super().bind(*args, **params)

    def _makes_mutable(self, args: Sequence[Any], params: Params) -> bool:
        out = self._abstract([as_value(a).aval for a in args], params)
        return any([isinstance(a, AvalQDD) for a in (out if self.multiple_results else [out])])

    def _evaluate(self, *args: Any, **params: Any) -> Any:
        return self.to_lojax(*args, **params)

    def is_high(self, avals: Sequence[Any], outs: Sequence[Any], params: Params) -> bool:
        """Always: it is replaced by what it is made of before a program is lowered."""
        return True

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> Any:
        out = self.to_lojax(*args, **params)
        return [as_value(o) for o in out] if self.multiple_results else as_value(out)

    def lower(self, ctx: LoweringContext, *operands: object, **params: Any) -> Any:
        raise MissingRuleError(self.name, "lowering")
