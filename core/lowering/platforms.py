"""Lowerings of our own primitives for single platforms: compositions that beat the operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.aval import ShapedArray, stored
from tracebridge.core.lax.elementwise import (
    complex_corrections,
    cpu_exponentials,
    cpu_hyperbolic,
    cpu_lowerings,
)
from tracebridge.core.lax.families import InexactUnary, is_narrow
from tracebridge.core.lax.reduce import cpu_sums, exp_sums, positions
from tracebridge.core.lax.shape.roll import emit_written, is_joined
from tracebridge.core.lax.special import cpu_erf, cpu_gamma, cpu_special
from tracebridge.core.lax.stored import emit_stored
from tracebridge.core.lowering.compositions import composed
from tracebridge.core.lowering.context import register_platform_lowering, register_rewrites
from tracebridge.core.lowering.rewrites.blocks import with_blocks
from tracebridge.core.lowering.rewrites.by_content import by_content
from tracebridge.core.lowering.rewrites.own_copies import may_have_no_shift
from tracebridge.core.lowering.rewrites.producers import forget_facts
from tracebridge.core.lowering.rewrites.programs import rewritten
from tracebridge.core.lowering.rewrites.steps import with_scan_kernels
from tracebridge.core.lowering.rewrites.waves import LEAST_GUARDED
from tracebridge.core.mlir.attrs import i64
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.rule_contexts import LoweringContext

# Calls of libm are little loss for so few elements, and the operation lowers and compiles faster.
MAX_SCALAR_CALLS = 512

_F32 = np.dtype(np.float32)
_INDEX = ShapedArray((), np.int32)
_DIVIDED_AS_FLOATS = tuple(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4))


def is_small(aval: ShapedArray) -> bool:
    """Whether an array has so few elements that a composition does not pay."""
    return type(aval.size) is int and aval.size <= MAX_SCALAR_CALLS


def composition_rule(
    primitive: Primitive,
    compose: Callable[..., object],
    dtypes: tuple[object, ...],
    at_any_size: bool = False,
) -> Callable[..., Any]:
    """A lowering rule that calls ``compose`` for operands of ``dtypes``, else the usual one.

    ``at_any_size``: also for small arrays, because the composition is more exact.

    Requests for an accuracy, the only parameters that these primitives have, stay with XLA.
    """
    widens = isinstance(primitive, InexactUnary) and primitive.by_float32 and _F32 in dtypes

    def lower(ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
        dtype = ctx.avals_in[0].dtype
        by_float32 = widens and is_narrow(dtype)
        is_left = not by_float32 and dtype not in dtypes
        if params or is_left or (not at_any_size and is_small(ctx.aval_out)):
            return primitive.lower(ctx, *operands, **params)
        if not by_float32:
            return composed(ctx, compose, operands)
        wide = tuple([a.update(dtype=_F32) for a in ctx.avals_in])
        converted = [ctx.convert(x, a) for x, a in zip(operands, wide, strict=True)]
        return ctx.convert(composed(ctx, compose, converted, wide), ctx.aval_out)

    return lower


def correction_rule(
    primitive: Primitive, correct: Callable[..., object], dtypes: tuple[object, ...]
) -> Callable[..., Any]:
    """A lowering rule that calls ``correct`` with the operands and the usual result."""

    def lower(ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
        plain = primitive.lower(ctx, *operands, **params)
        if ctx.avals_in[0].dtype not in dtypes:
            return plain
        return composed(ctx, correct, (*operands, plain), (*ctx.avals_in, ctx.aval_out))

    return lower


_complex_reciprocal = correction_rule(
    lax.integer_pow_p, complex_corrections.reciprocal, complex_corrections.COMPLEX
)


def lower_integer_pow(ctx: LoweringContext, x: Any, **params: Any) -> Any:
    """Products, and reciprocals of complex numbers that keep the signs of zeros."""
    if params["y"] != -1:
        return lax.integer_pow_p.lower(ctx, x, **params)
    return _complex_reciprocal(ctx, x, **params)


def _is_constant(x: Any) -> bool:
    """Whether an operand is known to the compiler."""
    owner = x.owner
    if getattr(owner, "name", None) == "stablehlo.broadcast_in_dim":
        owner = owner.operands[0].owner
    return getattr(owner, "name", None) == "stablehlo.constant"


def integer_rule(every: Callable[..., Any], compose: Callable[..., object]) -> Callable[..., Any]:
    """The rule ``every``, but for large arrays of integers of 8 to 32 bits: ``compose``.

    Processors divide integers one by one; divisions by constants become products in XLA.
    """

    def lower(ctx: LoweringContext, x: Any, y: Any, **params: Any) -> Any:
        is_left = ctx.avals_in[0].dtype not in _DIVIDED_AS_FLOATS
        if params or is_left or is_small(ctx.aval_out) or _is_constant(y):
            return every(ctx, x, y, **params)
        return composed(ctx, compose, (x, y))

    return lower


def lower_rem(ctx: LoweringContext, x: Any, y: Any) -> Any:
    """One exact step for all elements, or the operation where a quotient is too large for that."""
    size = ctx.aval_out.size
    # A test and two branches, with all that is computed around them, take 100 ms to compile.
    if ctx.avals_in[0].dtype != np.float32 or type(size) is not int or size < LEAST_GUARDED:
        return lax.rem_p.lower(ctx, x, y)
    is_hard = composed(ctx, cpu_lowerings.rem_is_hard, (x, y))
    return _either(
        ctx,
        is_hard,
        lambda: lax.rem_p.lower(ctx, x, y),
        lambda: composed(ctx, cpu_lowerings.rem, (x, y)),
    )


def _either(
    ctx: LoweringContext, is_hard: Any, hard: Callable[[], Any], easy: Callable[[], Any]
) -> Any:
    """What ``hard`` emits where a flag is set, else what ``easy`` does."""
    # A case: XLA computes both branches of an "if" of elementwise operations and selects.
    index = ctx.op1("stablehlo.convert", [is_hard], _INDEX)
    choice = ctx.op("stablehlo.case", [index], [ctx.aval_out], regions=2)
    for region, emit in zip(choice.regions, (easy, hard), strict=True):
        with ctx.block(region, []):
            ctx.finish([emit()])
    return choice.results[0]


def lower_stored(ctx: LoweringContext, x: Any, **params: Any) -> Any:
    """Keep an array apart from what uses it, if it is large enough or known to be worth it."""
    aval = stored(ctx.aval_out)
    return x if is_small(aval) and "small" not in params else emit_stored(ctx, x, aval)


def lower_roll(ctx: LoweringContext, x: Any, **params: Any) -> Any:
    """By writing into memory, except for vectors, a few elements and two large blocks."""
    plain = (
        is_small(ctx.aval_out) or not is_static(ctx.aval_out) or is_joined(ctx.aval_out, **params)
    )
    return (lax.roll_p.lower if plain else emit_written)(ctx, x, **params)


def lower_concatenate(ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
    """Single columns are joined as rows, and turned: XLA uses no vectors along the last axis.

    ``stack((x, y, z), -1)`` of float32, two cores: 26 and 8 us for 10000 elements each, 1020 and
    155 us for a million.
    """
    out, axis = ctx.aval_out, params["dimension"]
    is_plain = axis != out.ndim - 1 or out.ndim == 1 or out.split is not None
    if is_plain or is_small(out) or not is_static(out):
        return lax.concatenate_p.lower(ctx, *operands, **params)
    if any([a.shape[axis] != 1 for a in ctx.avals_in]):
        return lax.concatenate_p.lower(ctx, *operands, **params)
    row = ctx.avals_in[0].update(shape=(1, *out.shape[:-1]))
    whole = out.update(shape=(len(operands), *out.shape[:-1]))
    rows = [ctx.reshape(x, row) for x in operands]
    joined = ctx.op1("stablehlo.concatenate", rows, whole, {"dimension": i64(0)})
    return ctx.transpose(joined, out, (*range(1, out.ndim), 0))


def lower_true_positions(ctx: LoweringContext, mask: Any, **params: Any) -> Any:
    """By blocks, where rows are long."""
    (aval,) = ctx.avals_in
    is_short = aval.shape[-1] < positions.LEAST_PACKED
    if is_short or not is_static(aval) or aval.size == 0:
        return positions.true_positions_p.lower(ctx, mask, **params)
    return ctx.lower_fun(positions.packed_positions, mask, **params)


def lower_shifted_exp_sum(ctx: LoweringContext, x: Any, **params: Any) -> Any:
    """Without a shift, where rows are long and no sum of them is too large or too small."""
    (aval,), axes = ctx.avals_in, params["axes"]
    if not (is_static(aval) and may_have_no_shift(aval, axes, has_maxima=False)):
        return exp_sums.shifted_exp_sum_p.lower(ctx, x, **params)
    within, *results = ctx.lower_fun(exp_sums.by_sum, x, **params)
    choice = ctx.op("stablehlo.if", [within], ctx.avals_out, regions=2)
    with ctx.block(choice.regions[0], []):
        ctx.finish(results)
    with ctx.block(choice.regions[1], []):
        ctx.finish(exp_sums.shifted_exp_sum_p.lower(ctx, x, **params))
    return list(choice.results)


def _by_dtype(
    primitive: Primitive,
    real: Callable[..., Any] | None,
    complex_rule: Callable[..., Any],
) -> Callable[..., Any]:
    """One rule from those for real and for complex operands."""

    def lower(ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
        rule = complex_rule if ctx.avals_in[0].dtype.kind == "c" else real or primitive.lower
        return rule(ctx, *operands, **params)

    return lower


def _rules() -> dict[str, Callable[..., Any]]:
    by_name: dict[str, Callable[..., Any]] = {}
    for rules, at_any_size in (
        (cpu_lowerings.CPU_RULES, False),
        (cpu_exponentials.CPU_RULES, False),
        (cpu_lowerings.CPU_EXACT_RULES, True),
        (cpu_exponentials.CPU_EXACT_RULES, True),
        (cpu_hyperbolic.CPU_EXACT_RULES, True),
        (cpu_special.CPU_EXACT_RULES, True),
        (cpu_gamma.CPU_EXACT_RULES, True),
    ):
        for name, (compose, dtypes) in rules.items():
            primitive = getattr(lax, f"{name}_p")
            by_name[name] = composition_rule(primitive, compose, dtypes, at_any_size)
    complex_dtypes = complex_corrections.COMPLEX
    for name, compose in complex_corrections.CPU_COMPLEX_RULES.items():
        primitive = getattr(lax, f"{name}_p")
        rule = composition_rule(primitive, compose, complex_dtypes, at_any_size=True)
        by_name[name] = _by_dtype(primitive, by_name.get(name), rule)
    for name, correct in complex_corrections.CPU_COMPLEX_CORRECTIONS.items():
        primitive = getattr(lax, f"{name}_p")
        rule = correction_rule(primitive, correct, complex_dtypes)
        by_name[name] = _by_dtype(primitive, by_name.get(name), rule)
    by_name["integer_pow"] = lower_integer_pow
    divide = by_name.get("div", lax.div_p.lower)
    by_name["div"] = integer_rule(divide, cpu_lowerings.quotient)
    by_name["rem"] = integer_rule(lower_rem, cpu_lowerings.integer_rem)
    return by_name


def _register() -> None:
    for name, rule in _rules().items():
        register_platform_lowering(getattr(lax, f"{name}_p"), "cpu", rule, optional=True)
    erf = composition_rule(lax.erf_p, cpu_erf.erf, (np.dtype(np.float64),))
    register_platform_lowering(lax.erf_p, "cpu", erf, optional=True)
    register_platform_lowering(lax.reduce_sum_p, "cpu", cpu_sums.lower_sum, optional=True)
    register_platform_lowering(lax.stored_p, "cpu", lower_stored, optional=True)
    register_platform_lowering(lax.roll_p, "cpu", lower_roll, optional=True)
    register_platform_lowering(lax.concatenate_p, "cpu", lower_concatenate, optional=True)
    register_platform_lowering(
        positions.true_positions_p, "cpu", lower_true_positions, optional=True
    )
    register_platform_lowering(
        exp_sums.shifted_exp_sum_p, "cpu", lower_shifted_exp_sum, optional=True
    )
    register_rewrites("cpu", cpu_form)


def cpu_form(jaxpr: Jaxpr) -> Jaxpr:
    """The form of a program for the CPU."""
    # None stands for the Jaxpr itself, which must not refer to itself.
    if "for the CPU" not in jaxpr.cache:
        jaxpr.cache["for the CPU"] = by_content(jaxpr, _cpu_form)
    return jaxpr.cache["for the CPU"] or jaxpr


def _cpu_form(jaxpr: Jaxpr) -> Jaxpr | None:
    """The form of a program for the CPU, unless its types say how arrays are split.

    A program that computes the same in another way may leave undecided how its values are split.
    """
    # What equations read is an argument, a constant, or a result of another one.
    given = [*jaxpr.in_avals, *[c.aval for c in jaxpr.consts]]
    if any([a.split is not None for a in given]) or any(
        [a.split is not None for app, _ in jaxpr.equations for a in app.outs]
    ):
        return None
    new = rewritten(jaxpr)
    with_kernels = with_scan_kernels(new)
    form = with_blocks(with_kernels)
    for program in (new, with_kernels, form):
        forget_facts(program)
    return None if form is jaxpr else form


_register()
