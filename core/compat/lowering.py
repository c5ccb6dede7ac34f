"""Lowering rules as functions, and what they need to build StableHLO.

A rule is ``rule(ctx, *operands, **params)``: it gets the values of the operands and gives a list of
values. It may create operations with the dialects of ``tracebridge.extend.mlir``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

import tracebridge.core.ir.primitive as base
from tracebridge.core._jaxlib import mlir
from tracebridge.core.compat.primitive import forget_programs
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.transform_errors import CustomRuleError, MissingRuleError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import Effect, IOEffect
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr
from tracebridge.core.lowering.callbacks import emit_callback
from tracebridge.core.lowering.context import register_platform_lowering
from tracebridge.core.mlir.context import mlir_context
from tracebridge.core.util.public_path import public_path

Rule = Callable[..., Any]
PLATFORMS = ("cpu", "cuda", "rocm", "tpu", "METAL")
"""The platforms for which rules can be registered."""
_ALIASES = {"gpu": ("cuda", "rocm")}


@public_path("tracebridge.interpreters.mlir")
@final
class ModuleContext:
    """What the rules of one module share."""

    __slots__ = ("_builder",)

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    @property
    def module(self) -> Any:
        """The MLIR module that is being built."""
        return self._builder.module

    @property
    def context(self) -> Any:
        """The MLIR context."""
        return mlir_context()

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platform of the program, as the only element."""
        return (self._builder.platform,)

    @property
    def symbol_table(self) -> Any:
        """The functions of the module by name, as the bindings keep them."""
        return mlir.ir.SymbolTable(self._builder.module.operation)

    @property
    def keepalives(self) -> list[Any]:
        """What lives as long as the program."""
        return self._builder.keepalives

    def add_keepalive(self, keepalive: Any) -> None:
        """Let an object, such as a function that the program calls, live as long as it."""
        self._builder.keepalives.append(keepalive)


@public_path("tracebridge.interpreters.mlir")
@final
class LoweringRuleContext:
    """What a lowering rule may ask: the types of its equation, the module and the platform."""

    __slots__ = ("avals_in", "avals_out", "builder", "primitive")

    def __init__(
        self,
        builder: Any,
        primitive: Any,
        avals_in: Sequence[ShapedArray],
        avals_out: Sequence[ShapedArray],
    ) -> None:
        self.builder = builder
        self.primitive = primitive
        self.avals_in = tuple(avals_in)
        self.avals_out = tuple(avals_out)

    @property
    def module_context(self) -> ModuleContext:
        """What is common to the whole module."""
        return ModuleContext(self.builder)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platform of the program, as the only element."""
        return (self.builder.platform,)

    def replace(self, **changes: Any) -> LoweringRuleContext:
        """A copy with another primitive, or other avals, for the rule of another equation."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        ignored = {"tokens_in", "tokens_out", "name_stack", "traceback", "jaxpr_eqn_ctx"}
        unknown = sorted(changes.keys() - fields.keys() - ignored)
        if unknown:
            msg = f"LoweringRuleContext.replace: unknown fields {unknown}"
            raise ArgumentTypeError(msg, expected="primitive, avals_in or avals_out")
        known = {k: v for k, v in changes.items() if k in fields}
        return LoweringRuleContext(**{**fields, **known})


def register_lowering(
    prim: Any, rule: Rule, platform: str | None = None, inline: bool = True, cacheable: bool = True
) -> None:
    """Set how a primitive is lowered.

    Args:
        prim: the primitive: one made by ``Primitive(name)``, or one of the engine's own.
        rule: ``rule(ctx, *operands, **params)`` gives the list of results as MLIR values.
        platform: the only platform that the rule is for: "cpu", "cuda", "rocm", "gpu" (both of
            these) or "tpu"; all that have no rule of their own by default.
        inline: accepted; rules are always emitted in place.
        cacheable: accepted; rules run once for each equation.

    Raises:
        MissingRuleError: there is no such platform.
        ArgumentTypeError: ``prim`` is no primitive.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> from tracebridge.extend.core import Primitive
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> mlir.register_lowering(twice_p, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
    >>> print(twice_p.bind(3.0))
    6.0
    """
    del inline, cacheable
    if platform is not None and platform not in (*PLATFORMS, *_ALIASES):
        known = ", ".join(sorted((*PLATFORMS, *_ALIASES)))
        msg = f"register_lowering of {prim}: unknown platform {platform!r}; known: {known}"
        raise MissingRuleError(
            str(prim),
            "lowering",
            message=msg,
            hint="leave platform out for a rule of all platforms",
        )
    if not isinstance(prim, base.Primitive):
        msg = f"register_lowering: got {prim!r}, expected a Primitive"
        raise ArgumentTypeError(msg)
    forget_programs(prim)
    adapted = _adapted(prim, rule)
    names = (platform,) if platform is None else _ALIASES.get(platform, (platform,))
    for name in names:
        if prim.has_rules_of_users:
            prim.lowerings[name] = adapted  # type: ignore[attr-defined]  # of this class, then
            continue
        for one in PLATFORMS if name is None else (name,):
            register_platform_lowering(prim, one, adapted, replaces=True)


def _adapted(prim: base.Primitive, rule: Rule) -> Rule:
    """The rule with the signature of ``Primitive.lower``."""

    def lower(builder: Any, *operands: object, **params: Any) -> Any:
        ctx = LoweringRuleContext(builder, prim, builder.avals_in, builder.avals_out)
        results = flatten_ir_values(_values(rule(ctx, *operands, **params)))
        if len(results) != len(ctx.avals_out):
            msg = (
                f"the lowering rule of {prim} gave {len(results)} values, the primitive has "
                f"{len(ctx.avals_out)} results"
            )
            raise CustomRuleError(msg)
        return results if prim.multiple_results else results[0]

    return lower


def _values(results: Any) -> list[Any]:
    """What a rule gave, as a list: values, or operations with results."""
    if not isinstance(results, list | tuple):
        opened = getattr(results, "results", None)
        try:
            results = list(results) if opened is None else list(opened)
        except TypeError:
            results = [results]
    return [r.result if hasattr(r, "result") and hasattr(r, "operands") else r for r in results]


def flatten_ir_values(xs: Sequence[object]) -> list[Any]:
    """Values, and sequences of values, as one list.

    Args:
        xs: values and sequences of values.

    >>> from tracebridge.interpreters import mlir
    >>> mlir.flatten_ir_values([1, (2, 3)])
    [1, 2, 3]
    """
    flat: list[Any] = []
    for x in xs:
        if isinstance(x, list | tuple):
            flat.extend(x)
        else:
            flat.append(x)
    return flat


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Rule:
    """A lowering rule that emits a function of arrays.

    Args:
        fun: ``fun(*arrays, **params)``, made of operations of this package.
        multiple_results: whether it gives a list of results.

    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import mlir
    >>> twice_p = Primitive("twice")
    >>> mlir.register_lowering(twice_p, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
    """

    def rule(ctx: LoweringRuleContext, *operands: Any, **params: Any) -> list[Any]:
        def flat(*args: Any) -> list[Any]:
            out = fun(*args, **params)
            return list(out) if multiple_results else [out]

        return ctx.builder.lower_fun(flat, *operands, avals_in=ctx.avals_in)

    return rule


def jaxpr_subcomp(
    ctx: LoweringRuleContext, jaxpr: Jaxpr | ClosedJaxpr, *operands: object
) -> list[Any]:
    """Emit the equations of a program here; gives the values of its results.

    Args:
        ctx: the context of the rule.
        jaxpr: the program.
        *operands: values of its inputs.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> from tracebridge.extend.core import Primitive
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> program = tb.make_jaxpr(lambda x: 2 * x)(1.0).jaxpr
    >>> mlir.register_lowering(twice_p, lambda ctx, x: mlir.jaxpr_subcomp(ctx, program, x))
    >>> print(twice_p.bind(3.0))
    6.0
    """
    program = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    return ctx.builder.inline_jaxpr(program, operands)


def core_call_lowering(
    ctx: LoweringRuleContext,
    *operands: object,
    name: str,
    call_jaxpr: Jaxpr | ClosedJaxpr,
    **_: object,
) -> list[Any]:
    """Emit a program once for the module, as a function, and call it.

    Args:
        ctx: the context of the rule.
        *operands: values of the inputs.
        name: what the function is called.
        call_jaxpr: the program.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> from tracebridge.extend.core import Primitive
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> program = tb.make_jaxpr(lambda x: 2 * x)(1.0).jaxpr
    >>> def rule(ctx, x):
    ...     return mlir.core_call_lowering(ctx, x, name="twice", call_jaxpr=program)
    >>> mlir.register_lowering(twice_p, rule)
    >>> print(twice_p.bind(3.0))
    6.0
    """
    program = call_jaxpr.jaxpr if isinstance(call_jaxpr, ClosedJaxpr) else call_jaxpr
    return ctx.builder.call_jaxpr(program, operands, name)


def emit_python_callback(
    ctx: LoweringRuleContext,
    callback: Callable[..., Any],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[ShapedArray],
    result_avals: Sequence[ShapedArray],
    *,
    has_side_effect: bool = True,
    **_: Any,
) -> tuple[list[Any], Any, Any]:
    """Call a Python function of NumPy arrays from the program.

    Args:
        ctx: the context of the rule.
        callback: gets arrays and gives a tuple of arrays.
        token: given back; order is kept by effects.
        operands: values.
        operand_avals: their types.
        result_avals: the types of the results.
        has_side_effect: False allows to drop or repeat the call.

    Returns:
        The values of the results, the token, and None: what the program calls lives with it.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> from tracebridge.extend.core import Primitive
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> def rule(ctx, x):
    ...     avals = ctx.avals_in, ctx.avals_out
    ...     host = lambda x: (2 * x,)
    ...     return mlir.emit_python_callback(ctx, host, None, [x], *avals, has_side_effect=False)[0]
    >>> mlir.register_lowering(twice_p, rule)
    >>> print(twice_p.bind(3.0))
    6.0
    """
    builder = ctx.builder
    effect: Effect | None = IOEffect() if has_side_effect else None
    outer = builder.avals_in, builder.avals_out
    builder.avals_in, builder.avals_out = tuple(operand_avals), tuple(result_avals)
    name = getattr(callback, "__name__", "callback")
    values = emit_callback(builder, _host(callback, result_avals), operands, effect, name)
    builder.avals_in, builder.avals_out = outer
    return values, token, None


def _host(callback: Callable[..., object], avals: Sequence[ShapedArray]) -> Callable[..., Any]:
    def call(*arrays: object) -> list[Any]:
        out = callback(*arrays)
        results = list(out) if isinstance(out, list | tuple) else [out]
        return [np.asarray(r, a.dtype) for r, a in zip(results, avals, strict=True)]

    return call
