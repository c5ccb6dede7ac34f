"""Primitives whose rules are functions, registered one by one.

A primitive of the engine is a class with its rules as methods. ``Primitive`` here is the class for
operations that are defined elsewhere: each rule is set when it is known. Rules of tables (ad,
batching) are put on the primitive object itself, where the interpreters look for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import tracebridge.core.ir.primitive as base
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.transform_errors import CustomRuleError, MissingRuleError
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.eager_slot import EAGER
from tracebridge.core.ir.effects import Effects, no_effects
from tracebridge.core.ir.jaxpr import jaxprs_in_params
from tracebridge.core.ir.owners import largest_jaxpr
from tracebridge.core.ir.trace import current_trace, is_eager
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import UserType
from tracebridge.core.runtime.calls.dispatch import forget_executables, to_array
from tracebridge.core.runtime.calls.fastpath import clear_fast_paths
from tracebridge.core.util.caching import BoundedCache, clear_all
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import LoweringContext


F = TypeVar("F", bound=Callable[..., Any])
Rule = Callable[..., Any]


@public_path("tracebridge.extend.core")
class Primitive(base.Primitive):
    """An operation that is defined by functions.

    Args:
        name: what it is called in printed programs and in messages; names need not be unique.

    Rules are registered by the methods ``def_impl``, ``def_abstract_eval`` and
    ``def_effectful_abstract_eval``, by the tables and functions of ``tracebridge.interpreters.ad``
    and ``tracebridge.interpreters.batching``, and by
    ``tracebridge.interpreters.mlir.register_lowering``. Set ``multiple_results`` to True before
    the first use if the rules give lists. Rules are traced once for each kind of arguments: they
    must be functions of their arguments alone.

    >>> import tracebridge as tb
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import mlir
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_impl(lambda x: 2 * x)
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> mlir.register_lowering(twice_p, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
    >>> twice_p.bind(3.0)
    6.0
    >>> print(tb.jit(twice_p.bind)(3.0))
    6.0
    """

    name: str
    multiple_results: bool = False  # pyright: ignore[reportIncompatibleVariableOverride] - of each object
    has_rules_of_users = True
    _method_of_types: Any = None
    call_primitive = False
    map_primitive = False

    def __init__(self, name: str) -> None:
        # Not in the table of the engine's primitives: names of users may occur twice.
        self.name = name  # pyright: ignore[reportIncompatibleVariableOverride] - of each object
        self.applications: BoundedCache[Application] = BoundedCache(
            f"applications of {name}", base.MAX_APPLICATIONS
        )
        self.lowerings: dict[str | None, Rule] = {}
        # Methods of a subclass stand for the rules that functions define.
        own = type(self).impl is not Primitive.impl
        self._impl: Rule | None = self.impl if own else None
        self._abstract_eval: Rule | None = self._method_of_types
        self._has_effects = self._abstract_eval is not None

    def __init_subclass__(cls, **options: object) -> None:
        """Take a method ``abstract_eval``, which gives types and effects, for the rule."""
        super().__init_subclass__(**options)
        method = cls.__dict__.get("abstract_eval")
        if method is not None:
            cls._method_of_types = method
            del cls.abstract_eval

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        """The engine's own primitives are instances too."""
        return base.Primitive in other.__mro__ if cls is Primitive else NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        msg = (
            f"the primitive {self.name} cannot be pickled: its rules are functions of this process"
        )
        raise TypeError(msg)

    def __copy__(self) -> Primitive:
        return self

    def __deepcopy__(self, memo: object) -> Primitive:
        return self

    # definition ----------------------------------------------------------------------------------

    def def_impl(self, impl: F) -> F:
        """Set how the primitive is evaluated: ``impl(*arrays, **params)``; gives ``impl``."""
        forget_programs(self)
        self._impl = impl
        return impl

    def def_abstract_eval(self, abstract_eval: F) -> F:
        """Set the types of results: ``abstract_eval(*avals, **params)`` gives an aval or a list."""
        forget_programs(self)
        self._abstract_eval = abstract_eval
        self._has_effects = False
        return abstract_eval

    def def_effectful_abstract_eval(self, abstract_eval: F) -> F:
        """As ``def_abstract_eval``, but the rule gives a pair of that and a set of effects."""
        forget_programs(self)
        self._abstract_eval = abstract_eval
        self._has_effects = True
        return abstract_eval

    def def_custom_bind(self, bind: F) -> F:
        """Replace ``bind``."""
        self.bind = bind
        return bind

    def impl(self, *args: object, **params: Any) -> Any:
        """Evaluate by the function given to ``def_impl``.

        Raises:
            MissingRuleError: there is none.
        """
        if self._impl is None:
            raise MissingRuleError(
                self.name, "evaluation", hint="define one: primitive.def_impl(function)"
            )
        return self._impl(*args, **params)

    # use -----------------------------------------------------------------------------------------

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the primitive to arrays, numbers and tracers."""
        try:
            is_evaluated = self._impl is not None or not self.lowerings
            if is_evaluated and is_eager() and not any(map(_is_traced, args)):
                return self.impl(*args, **params)
            values = [as_value(a) for a in args]
            app = self.application(tuple([v.aval for v in values]), params)
            return current_trace().process(app, values)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def application(self, avals: tuple[ShapedArray, ...], params: Params) -> Application:
        """The application at ``avals`` and ``params``.

        It is remembered where the parameters can be keys, with a program among them if there is
        one. Functions of users among the parameters belong to no table that lives long.
        """
        jaxprs = jaxprs_in_params(params)
        key: Any = (self, avals, *params.items(), *map(_exact, params.values()))
        try:
            hash(key)
        except TypeError:
            return Application(self, avals, params)
        if jaxprs:
            cache = largest_jaxpr(jaxprs).cache
            app = cache.get(key)
            if app is None:
                app = cache[key] = Application(self, avals, params)
            return app
        if any(map(_is_function, params.values())):
            return Application(self, avals, params)
        return self.applications.get_or_make(key, lambda: Application(self, avals, params))

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Any:
        out = self._abstract(avals, params)
        if not self.multiple_results:
            return _aval(self, out)
        if not isinstance(out, list | tuple):
            msg = (
                f"{self.name}.abstract_eval() gave {out!r}, expected a list or tuple of avals, "
                "as multiple_results is set on the primitive"
            )
            raise CustomRuleError(msg)
        return [_aval(self, a) for a in out]

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        if not self._has_effects:
            return no_effects
        _, found = self._rule_of_types()(*avals, **params)
        return frozenset(found)

    def _rule_of_types(self) -> Rule:
        if self._abstract_eval is None:
            raise MissingRuleError(
                self.name,
                "abstract evaluation",
                hint="define one: primitive.def_abstract_eval(function of avals)",
            )
        return self._abstract_eval

    def _abstract(self, avals: Sequence[ShapedArray], params: Params) -> Any:
        out = self._rule_of_types()(*avals, **params)
        return out[0] if self._has_effects else out

    @property
    def is_only_evaluated(self) -> bool:
        return self._impl is not None and not self.lowerings

    def evaluate(self, arrays: Sequence[Any], **params: Any) -> Any:
        """Evaluate under a transformation: the results must be arrays then."""
        if self._impl is None:
            return NotImplemented if self.lowerings else self.impl()
        out = self._impl(*arrays, **params)
        several = self.multiple_results
        if several and not isinstance(out, list | tuple):
            msg = f"{self.name}: the evaluation rule gave {out!r}, expected a list of arrays"
            raise CustomRuleError(msg, hint="multiple_results is set on the primitive")
        results = [to_array(as_value(o)) for o in (out if several else [out])]
        wanted = self.application(tuple([a.aval for a in arrays]), params).outs
        if [_type(r.aval) for r in results] != [_type(a) for a in wanted]:
            msg = f"{self.name}: the evaluation and the abstract evaluation rule do not agree"
            raise CustomRuleError(
                msg,
                got=", ".join([r.aval.str_short() for r in results]),
                expected=", ".join([a.str_short() for a in wanted]),
            )
        return results if several else results[0]

    def is_lowered_on(self, platform: str, params: Params) -> bool:
        return platform in self.lowerings or None in self.lowerings

    def lower(self, ctx: LoweringContext, *operands: object, **params: Any) -> Any:
        platform = ctx.platform
        if ctx.platforms:
            return self._lower_on_all(ctx, operands, params)
        rule = self.lowerings.get(platform, self.lowerings.get(None))
        if rule is None:
            raise MissingRuleError(
                self.name,
                "lowering",
                message=f"Lowering rule for primitive {self.name!r} not found for platform "
                f"{platform!r}",
                hint="define one: tracebridge.interpreters.mlir.register_lowering(primitive, rule)",
            )
        return rule(ctx, *operands, **params)

    def _lower_on_all(
        self, ctx: LoweringContext, operands: Sequence[object], params: Params
    ) -> Any:
        """The rules of all platforms of a program for several."""
        rules = [self.lowerings.get(p, self.lowerings.get(None)) for p in ctx.platforms]
        return ctx.by_rules(rules, operands, params, multiple=self.multiple_results)


def forget_programs(primitive: base.Primitive) -> None:
    """Forget what was derived from the rules of ``primitive``, because a rule changes."""
    if len(primitive.applications):
        clear_all()
        clear_fast_paths()
        forget_executables()
        primitive.applications.clear()


def _type(aval: ShapedArray) -> tuple[Any, ...]:
    return aval.shape, aval.dtype


def _is_traced(x: object) -> bool:
    return isinstance(x, Tracer)


def _is_function(x: object) -> bool:
    return callable(x) and not isinstance(x, type)


def _exact(x: object) -> Any:
    """What tells numbers apart that Python calls equal."""
    return (type(x), repr(x)) if isinstance(x, float | int | complex) else None


def _aval(primitive: Primitive, x: Any) -> Any:
    """The result of an abstract evaluation rule as an aval."""
    if isinstance(x, ShapedArray | UserType):
        return x
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        msg = f"{primitive.name}.abstract_eval() gave {x!r}, expected one aval"
        raise CustomRuleError(msg, hint="give ShapedArray(shape, dtype), or set multiple_results")
    return ShapedArray(tuple(x.shape), x.dtype, bool(getattr(x, "weak_type", False)))


def apply_primitive(prim: base.Primitive, *args: object, **params: Any) -> Any:
    """Evaluate a primitive at once by compiling its lowering.

    Args:
        prim: the primitive.
        *args: arrays and numbers.
        **params: its parameters.

    >>> import functools
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import mlir, xla
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_impl(functools.partial(xla.apply_primitive, twice_p))
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> mlir.register_lowering(twice_p, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
    >>> print(twice_p.bind(3.0))
    6.0
    """
    values = [as_value(a) for a in args]
    app = prim.application(tuple([v.aval for v in values]), params)
    arrays = [to_array(v, app) for v in values]
    key = tuple([a._sig for a in arrays])
    run = app.eager.get(key)
    if run is None:
        run = app.eager[key] = EAGER.trace.prepare(app, arrays)
    return run(*arrays)
