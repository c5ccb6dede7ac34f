"""Compositions for the CPU: accuracy, special values, and where they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core import lax
from tracebridge.core.config.scopes import scope
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lax.elementwise.cpu_waves import NEAR
from tracebridge.core.lowering.module import lower_module
from tracebridge.core.lowering.platforms import MAX_SCALAR_CALLS
from tracebridge.core.lowering.rewrites.waves import LEAST_GUARDED
from tracebridge.core.mlir.context import building
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.symbolic.scope import symbolic_shape
from tracebridge.testing import check_rules

Host = np.ndarray[Any, Any]
N = 20_000
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
SPECIAL = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -7, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-30]


def spread(low: float, high: float, dtype: Any, seed: int = 0) -> Host:
    """Numbers of both signs whose logarithms are uniform."""
    random = np.random.default_rng(seed)
    sizes = np.exp(random.uniform(np.log(low), np.log(high), N))
    return (sizes * random.choice([-1.0, 1.0], N)).astype(dtype)


def ulps(actual: Host, expected: Host) -> float:
    """The largest error of normal numbers in units in the last place; longdouble reference."""
    rounded = expected.astype(actual.dtype)
    seen = np.abs(rounded) > np.finfo(actual.dtype).tiny
    error = np.abs(actual.astype(np.longdouble) - expected)[seen]
    return float(np.max(error / np.spacing(np.abs(rounded[seen]))))


def run(fun: Callable[..., Any], *hosts: Host) -> Host:
    """Evaluate eagerly."""
    return np.asarray(fun(*map(put_numpy, hosts)))


ACCURATE = [
    (lax.sin, np.sin, F32, (1e-30, 1e5)),
    (lax.cos, np.cos, F32, (1e-30, 1e5)),
    (lax.tan, np.tan, F32, (1e-30, 1e5)),
    (lax.sin, np.sin, F32, (1e5, 1e18)),
    (lax.cos, np.cos, F32, (1e5, 1e18)),
    (lax.tan, np.tan, F32, (1e5, 1e18)),
    *[
        (fun, reference, dtype, bounds)
        for dtype in (F32, F64)
        for fun, reference, bounds in (
            (lax.asin, np.arcsin, (1e-20, 1.0)),
            (lax.asin, np.arcsin, (0.3, 1.0)),
            (lax.acos, np.arccos, (1e-20, 1.0)),
            (lax.acos, np.arccos, (0.3, 1.0)),
            (lax.atan, np.arctan, (1e-20, 1e20)),
            (lax.atan, np.arctan, (0.1, 10.0)),
            (lax.rsqrt, lambda x: 1 / np.sqrt(x), (1e-30, 1e30)),
        )
    ],
]


@pytest.mark.parametrize(
    ("fun", "reference", "dtype", "bounds"),
    ACCURATE,
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_unary_compositions_are_accurate(
    fun: Any, reference: Any, dtype: Any, bounds: tuple[float, float]
) -> None:
    """Results are within 3 units in the last place of the exact ones."""
    x = spread(*bounds, dtype)
    x = np.abs(x) if fun is lax.rsqrt else x

    assert ulps(run(fun, x), reference(x.astype(np.longdouble))) < 3


@pytest.mark.parametrize("exponent", range(23, 128, 5))
def test_sine_knows_pi_to_many_digits(exponent: int) -> None:
    """Huge arguments are reduced exactly: compared with integer arithmetic on 400 digits."""
    random = np.random.default_rng(exponent)
    mantissas = random.integers(2**23, 2**24, MAX_SCALAR_CALLS + 50)
    x = (mantissas.astype(np.float64) * 2.0 ** (exponent - 23)).astype(np.float32)
    expected = np.array([exact_remainder(int(v)) for v in x])

    assert ulps(run(lax.sin, x), np.sin(expected.astype(np.longdouble))) < 3
    assert ulps(run(lax.cos, -x), np.cos(expected.astype(np.longdouble))) < 3


def exact_remainder(n: int) -> float:
    """``n`` modulo 2 pi, rounded once; pi from Machin's formula in integers."""
    scale = 10**80
    two_pi = 2 * machin(scale)
    r = (n * scale) % two_pi
    return float(r - two_pi if r > two_pi // 2 else r) / float(scale)


def machin(scale: int) -> int:
    """``pi * scale``, rounded down or nearly so."""

    def arccot(k: int) -> int:
        total, term, n, sign = 0, scale * 10**10 // k, 1, 1
        while term:
            total += sign * (term // n)
            term, n, sign = term // (k * k), n + 2, -sign
        return total

    return (4 * (4 * arccot(5) - arccot(239))) // 10**10


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("sin", F32), ("cos", F32), ("tan", F32), ("sin", F64), ("cos", F64)],
    ids=str,
)
def test_near_angles_of_large_arrays(name: str, dtype: Any) -> None:
    """Within 2.5 units beside multiples of pi/2 too; one far angle takes the other branch."""
    fun, reference, limit = getattr(lax, name), getattr(np, name), NEAR[dtype]
    multiples = np.arange(1, int(limit / (np.pi / 2)), dtype=np.longdouble)
    halves = (multiples * (np.longdouble(np.pi / 2) + 6.123233995736766e-17)).astype(dtype)
    beside = [np.nextafter(halves, dtype.type(side)) for side in (0, np.inf)]
    x = np.concatenate([halves, *beside, spread(1e-30, limit, dtype), dtype.type(SPECIAL)])
    x = x[(np.abs(x) < limit) | ~np.isfinite(x)]
    assert x.size >= LEAST_GUARDED
    assert "stablehlo.case" in text_of(fun, ShapedArray(x.shape, dtype))

    with np.errstate(invalid="ignore"):
        expected = reference(x.astype(np.longdouble))
    near, far = run(fun, x), run(fun, np.append(x, dtype.type(3e38)))

    same(near, expected.astype(dtype))
    finite = np.isfinite(expected)
    assert ulps(near[finite], expected[finite]) < 2.5
    assert ulps(far[:-1][finite], expected[finite]) < 2
    last = reference(exact_remainder(int(dtype.type(3e38))))
    assert abs(far[-1] - last) < 1e-6 * abs(last)


@pytest.mark.usefixtures("without_kernels")
def test_equal_waves_of_an_operand_are_one() -> None:
    """The derivative of sin(x) cos(x) computes each of them once in each branch."""
    x = ShapedArray((LEAST_GUARDED,), F32)
    text = text_of(lambda x: lax.add(lax.mul(lax.sin(x), lax.cos(x)), lax.sin(x)), x)

    assert 4 == text.count("call @")


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("bounds", [(1e-15, 1e15), (0.1, 10.0)], ids=str)
def test_atan2_is_accurate_in_all_quadrants(dtype: Any, bounds: tuple[float, float]) -> None:
    """Within 3 units in the last place."""
    y, x = spread(*bounds, dtype), spread(*bounds, dtype, seed=1)

    expected = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))

    assert ulps(run(lax.atan2, y, x), expected) < 3


@pytest.mark.parametrize("bounds", [(1.0, 1e3), (1e-3, 1e3), (1e-15, 1e15)], ids=str)
def test_rem_is_exact(bounds: tuple[float, float]) -> None:
    """Remainders of floats are floats; large quotients take the other branch."""
    x, y = [np.tile(spread(*bounds, F32, seed), 4) for seed in (0, 1)]

    assert x.size >= LEAST_GUARDED
    np.testing.assert_array_equal(np.fmod(x, y), run(lax.rem, x, y))
    np.testing.assert_array_equal(np.fmod(x, y)[:N], run(lax.rem, x[:N], y[:N]))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int16, np.uint8])
def test_division_of_integers_is_exact(dtype: Any) -> None:
    """Beside multiples and at the ends of the range, as integers of 64 bits divide; XLA's by 0."""
    random, ends = np.random.default_rng(0), np.iinfo(dtype)
    edges = [0, 1, 2, 7, 46341, 65537, ends.max, ends.max - 1, ends.min, ends.min + 1, -1 % 2**32]
    grid = np.meshgrid(np.array(edges).astype(dtype), np.array(edges).astype(dtype))
    y = random.integers(1, 70_000, N)
    multiple = random.integers(ends.min, ends.max, N) // y * y
    near = [np.clip(multiple + side, ends.min, ends.max) for side in (-1, 0, 1)]
    x = np.concatenate([grid[0].ravel(), *near]).astype(dtype)
    y = np.concatenate([grid[1].ravel(), *[y] * 3]).astype(dtype)
    wide, divisor = x.astype(np.int64), np.where(y == 0, 1, y).astype(np.int64)
    quotient = np.sign(wide) * np.sign(divisor) * (np.abs(wide) // np.abs(divisor))

    np.testing.assert_array_equal(run(lax.div, x, y), np.where(y == 0, -1, quotient).astype(dtype))
    rest = np.where(y == 0, wide, wide - quotient * divisor).astype(dtype)
    np.testing.assert_array_equal(run(lax.rem, x, y), rest)
    seen = y != 0
    floors = [np.floor_divide(wide, divisor), np.mod(wide, divisor)]
    for fun, expected in zip((tnp.floor_divide, tnp.mod), floors, strict=True):
        np.testing.assert_array_equal(run(fun, x, y)[seen], expected.astype(dtype)[seen])


def test_which_divisions_of_integers_stay() -> None:
    """By constants, which XLA makes products of, of few elements, and of other widths."""
    many = ShapedArray((MAX_SCALAR_CALLS + 1,), np.int32)
    few, short = many.update(shape=(8,)), many.update(dtype=np.int64)

    for fun in (lax.div, lax.rem):
        assert "f64" in text_of(fun, many, many)
        assert "f32" in text_of(fun, *[many.update(dtype=np.int8)] * 2)
        assert "f64" not in text_of(fun, many, many, platform="cuda")
        assert "f64" not in text_of(lambda x, fun=fun: fun(x, 7), many)
        assert "f64" not in text_of(fun, few, few) + text_of(fun, short, short)
    x = np.arange(many.size, dtype=np.int32)
    assert "f64" not in _text(lambda x: x // 7 + x % 10, x)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_special_values(dtype: Any) -> None:
    """Zeros, infinities, NaN and huge numbers give what NumPy gives, with the sign of zeros."""
    x = np.array(SPECIAL, dtype)
    unary = (
        (lax.sin, np.sin),
        (lax.cos, np.cos),
        (lax.tan, np.tan),
        (lax.asin, np.arcsin),
        (lax.acos, np.arccos),
        (lax.atan, np.arctan),
        (lax.rsqrt, lambda x: 1 / np.sqrt(x)),
    )
    y, z = (v.reshape(-1) for v in np.meshgrid(x, x, indexing="ij"))
    # More elements than arrays have for which the operations are called.
    x, y, z = (np.tile(v, 1 + MAX_SCALAR_CALLS // v.size) for v in (x, y, z))
    with np.errstate(all="ignore"):
        for fun, reference in unary:
            same(run(fun, x), reference(x.astype(np.float64)).astype(dtype))
        for fun, reference in ((lax.atan2, np.arctan2), (lax.rem, np.fmod)):
            same(run(fun, y, z), reference(y, z))
            # Without the hard quotients of huge numbers.
            same(run(fun, y / 2**100, z), reference((y / 2**100).astype(dtype), z))


def same(actual: Host, expected: Host) -> None:
    """Equal but for a few units in the last place; signs of zeros count, subnormals do not."""
    tiny = float(np.finfo(actual.dtype).tiny)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=tiny)
    zero = (expected == 0) & (actual == 0)
    np.testing.assert_array_equal(np.signbit(expected[zero]), np.signbit(actual[zero]))


def text_of(fun: Any, *avals: ShapedArray, platform: str = "cpu") -> str:
    """The StableHLO text of an operation; MLIR checks it."""
    lowered = lower_module(stage(lambda *xs: [fun(*xs)], avals), "f", platform)
    with building():
        assert lowered.module.operation.verify()
    return lowered.as_text()


def test_where_compositions_are_used() -> None:
    """On the CPU, for these dtypes, for more than a few elements, without a wished accuracy."""
    many = ShapedArray((MAX_SCALAR_CALLS + 1,), F32)

    assert "stablehlo.sine" not in text_of(lax.sin, many)
    assert "stablehlo.sine" in text_of(lax.sin, many, platform="cuda")
    assert "stablehlo.sine" in text_of(lax.sin, ShapedArray((MAX_SCALAR_CALLS,), F32))
    assert "stablehlo.sine" not in text_of(lax.sin, many.update(dtype=np.complex64))
    assert "stablehlo.sine" in text_of(lax.sin, many.update(dtype=np.float16))
    assert "HIGHEST" in text_of(lambda x: lax.sin(x, accuracy=lax.AccuracyMode.HIGHEST), many)
    large = many.update(shape=(LEAST_GUARDED,))
    assert "stablehlo.case" in text_of(lax.rem, large, large)
    assert "stablehlo.case" not in text_of(lax.rem, many, many)
    assert "stablehlo.case" not in text_of(lax.rem, *[large.update(dtype=np.int32)] * 2)


@pytest.mark.parametrize("fun", [lax.atan2, lax.rem], ids=lambda f: f.__name__)
def test_scalars_and_symbolic_shapes(fun: Any) -> None:
    """An operand may be a scalar, and the number of elements unknown."""
    x, y = spread(0.1, 10.0, F32), np.float32(0.7)
    shape = symbolic_shape("n, 2")

    np.testing.assert_array_equal(run(fun, x, np.full_like(x, y)), run(fun, x, np.asarray(y)))
    np.testing.assert_array_equal(run(fun, np.full_like(x, y), x), run(fun, np.asarray(y), x))
    for avals in (
        (ShapedArray(shape, F32), ShapedArray(shape, F32)),
        (ShapedArray(shape, F32), ShapedArray((), F32)),
        (ShapedArray((), F32), ShapedArray(shape, F32)),
    ):
        text_of(fun, *avals)


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "asin", "acos", "atan", "rsqrt"])
def test_rules_agree_for_many_elements(name: str) -> None:
    """jit, derivatives and vmap go through the compositions too."""
    x = np.linspace(0.1, 0.9, MAX_SCALAR_CALLS + 4)

    check_rules(getattr(lax, name), x, rtol=1e-12, atol=1e-12)
    check_rules(getattr(lax, name), x.astype(np.float32), order=0, rtol=1e-5)


def _text(f: Any, *args: Any) -> str:
    return tb.jit(f).lower(*args).as_text()


def test_the_option_turns_rules_off() -> None:
    """Without the rules the primitive is its operation, traced before or after the change."""
    x = np.linspace(0, 1, 1000, dtype=np.float32)
    traced = tb.jit(tnp.arcsin).trace(x)
    assert "chlo.asin" not in _text(tnp.arcsin, x)

    with scope("platform_rules", False):
        assert "chlo.asin" in _text(tnp.arcsin, x)
        assert "chlo.asin" in traced.lower().as_text()
        plain = tb.jit(tnp.arcsin)(x), tnp.arcsin(x)

    assert "chlo.asin" not in traced.lower().as_text()
    for result in plain:
        np.testing.assert_allclose(result, np.arcsin(x), rtol=1e-6)


def test_a_rule_of_a_user_stays_where_rules_for_speed_come_later(run_alone: Any) -> None:
    """Registered before the first program of a process, and whatever the option says."""
    run_alone(
        """
import numpy as np
import tracebridge as tb
from tracebridge.core import lax
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.context import register_platform_lowering

def doubled(ctx, x):
    return ctx.op1("stablehlo.add", [x, x], ctx.aval_out)

register_platform_lowering(lax.sin_p, "cpu", doubled)
x = np.full(1000, 3.0, np.float32)
assert tb.jit(tb.lax.sin)(x)[0] == 6.0
with scope("platform_rules", False):
    assert tb.jit(lambda x: tb.lax.sin(x))(x)[0] == 6.0
"""
    )


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_single_columns_are_joined_as_rows(dtype: str, count: int) -> None:
    """XLA uses no vectors for what it joins along the last axis."""
    arrays = [tnp.arange(600).reshape(20, 30).astype(dtype) * k for k in range(count)]

    def run(*xs: Any) -> Any:
        return tnp.stack(xs, -1)

    assert "dim = 0" in tb.jit(run).lower(*arrays).as_text()
    expected = np.stack([np.asarray(x) for x in arrays], -1)
    np.testing.assert_array_equal(np.asarray(tb.jit(run)(*arrays)), expected)
