"""Strict options of promotion judge what a user combines, never what library functions do."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge.numpy.table import Case
from tests.bridge.numpy.wide import CASES
from tracebridge import lax
from tracebridge.core.config.option_scopes import numpy_dtype_promotion, numpy_rank_promotion
from tracebridge.core.errors.dtype_errors import TypePromotionError
from tracebridge.core.errors.shape_errors import BroadcastError

# Functions that combine their array arguments element by element, or join them.
NAMES = """
add subtract multiply divide true_divide floor_divide mod remainder fmod divmod power pow
float_power arctan2 atan2 hypot logaddexp logaddexp2 maximum minimum fmax fmin copysign nextafter
ldexp heaviside equal not_equal less less_equal greater greater_equal bitwise_and bitwise_or
bitwise_xor left_shift right_shift bitwise_left_shift bitwise_right_shift logical_and logical_or
logical_xor isclose allclose clip where
"""
RANKS = frozenset(NAMES.split())
DTYPES = (RANKS - {"ldexp", "where"}) | {"digitize", "interp", "searchsorted"}
TRACED = [c for c in CASES if c.traced and c.letter in "fic" and c.arrays()]


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Both options at once."""
    with numpy_rank_promotion("raise"), numpy_dtype_promotion("strict"):
        yield


def program(fun: Callable[..., Any], *args: Any) -> str:
    """The program of a call, as text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(tb.make_jaxpr(fun)(*args))


def is_combined(case: Case) -> bool:
    """Whether the arguments of a case differ in what its function combines."""
    arrays = case.arrays()
    ranks = {x.ndim for x in arrays if x.ndim}
    # The third argument of searchsorted is an order.
    dtypes = {x.dtype for x in (arrays[:2] if case.name == "searchsorted" else arrays)}
    return (case.name in RANKS and len(ranks) > 1) or (case.name in DTYPES and len(dtypes) > 1)


@pytest.mark.parametrize("part", range(4))
def test_functions_are_judged_by_their_arguments_alone(part: int) -> None:
    """Each function makes the same program under strict options, unless its user combined."""
    wrong: list[str] = []
    for case in TRACED[part::4]:
        arrays = [tnp.asarray(x) for x in case.arrays()]
        expected: Any = None if is_combined(case) else program(case.run, *arrays)
        with strict():
            try:
                actual: Any = program(case.run, *arrays)
            except (BroadcastError, TypePromotionError):
                actual = None
        if expected != actual:
            wrong.append(f"{case}: {'raises' if actual is None else 'does not raise'}")

    assert [] == wrong


X = np.arange(6.0, dtype=np.float32).reshape(2, 3)
V = np.arange(3.0, dtype=np.float32)
N = np.arange(3, dtype=np.int32)
MASK = np.array([True, False, True])

INSIDE = {
    "sum where": lambda x, v, i, b: tnp.sum(x, where=b),
    "mean where": lambda x, v, i, b: tnp.mean(x, where=b),
    "std where": lambda x, v, i, b: tnp.std(x, where=b),
    "any where": lambda x, v, i, b: tnp.any(x > 0, where=b),
    "max initial where": lambda x, v, i, b: tnp.max(x, initial=i[0], where=b),
    "nansum where": lambda x, v, i, b: tnp.nansum(x, where=b),
    "ufunc.reduce where": lambda x, v, i, b: tnp.multiply.reduce(x, where=b),
    "ufunc.outer": lambda x, v, i, b: tnp.add.outer(v, x),
    "trapezoid": lambda x, v, i, b: (tnp.trapezoid(x, v), tnp.trapezoid(x, dx=v[:2])),
    "trapezoid of integers": lambda x, v, i, b: tnp.trapezoid(i, v),
    "histogram": lambda x, v, i, b: (tnp.histogram(i), tnp.histogram(v, weights=i)),
    "histogram bins": lambda x, v, i, b: tnp.histogram(i, bins=v),
    "histogram2d": lambda x, v, i, b: tnp.histogram2d(i, i),
    "quantile": lambda x, v, i, b: (tnp.quantile(x, v / 3), tnp.percentile(x, i)),
    "median": lambda x, v, i, b: (tnp.median(i), tnp.nanmedian(x, axis=0)),
    "logspace": lambda x, v, i, b: tnp.logspace(v, v, 4, base=v),
    "logspace of integers": lambda x, v, i, b: (tnp.logspace(i, i, 4), tnp.logspace(i, i, base=i)),
    "logspace of booleans": lambda x, v, i, b: tnp.logspace(b, b, 4),
    "polyint": lambda x, v, i, b: (tnp.polyint(v), tnp.polyint(v, 1, v[0])),
    "polyint of integers": lambda x, v, i, b: tnp.polyint(i, 2),
    "polyint of booleans": lambda x, v, i, b: tnp.polyint(b),
    "array_equiv": lambda x, v, i, b: tnp.array_equiv(x, v),
    "gradient": lambda x, v, i, b: tnp.gradient(x, v[:2], v),
    "cov": lambda x, v, i, b: (tnp.cov(x, aweights=v), tnp.cov(x, fweights=i)),
    "polyval": lambda x, v, i, b: tnp.polyval(v, x),
    "interp": lambda x, v, i, b: tnp.interp(x, v, v),
    "indices": lambda x, v, i, b: (x[:, i], x.at[:, i].add(v), x.at[0].set(1)),
    "apply_along_axis": lambda x, v, i, b: tnp.apply_along_axis(lambda r: r + v, 1, x),
    "lax.dot": lambda x, v, i, b: lax.dot(x, i.astype("int8")),
    "lax.dot_general": lambda x, v, i, b: lax.dot_general(
        x.astype("bfloat16"), v, (((1,), (0,)), ((), ()))
    ),
    "derivatives": lambda x, v, i, b: (
        tb.grad(lambda a: tnp.var(a, where=b))(x),
        tb.hessian(tnp.prod)(v),
        tb.grad(lambda a: tnp.quantile(a, 0.3))(x),
    ),
    "vmap": lambda x, v, i, b: tb.vmap(tnp.interp, (0, None, None))(x, v, v),
    "loops": lambda x, v, i, b: lax.scan(lambda c, y: (c + y, c * 2), 0.0, v),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inner_steps_are_not_judged(name: str) -> None:
    """Masks, weights, edges, samples and parameters are no operands."""
    args = [tnp.asarray(x) for x in (X, V, N, MASK)]
    expected = program(INSIDE[name], *args)

    with strict():
        actual = program(INSIDE[name], *args)

    assert expected == actual


COMBINED = {
    "operators": lambda x, v, i: x + v,
    "dtypes": lambda x, v, i: v * i,
    "where": lambda x, v, i: tnp.where(v > 1, x, 0.0),
    "ufunc.outer": lambda x, v, i: tnp.add.outer(v, i),
    "concatenate": lambda x, v, i: tnp.concatenate([v, i]),
    "matmul": lambda x, v, i: x @ i,
    "einsum": lambda x, v, i: tnp.einsum("ij,j->i", x, i),
    "clip": lambda x, v, i: tnp.clip(x, 0, v),
    "isclose": lambda x, v, i: tnp.isclose(x, v),
    "in a function that a library function calls": lambda x, v, i: tnp.apply_along_axis(
        lambda r: r + i, 1, x
    ),
    "in a body": lambda x, v, i: lax.fori_loop(0, 3, lambda k, c: c + v, x),
    "in jit": lambda x, v, i: tb.jit(lambda a, b: a + b)(x, v),
    "after the same inside": lambda x, v, i: (tnp.histogram(i, bins=v), i < v),
}


@pytest.mark.parametrize("name", COMBINED)
def test_what_users_combine_is_judged(name: str) -> None:
    """Operands that a user combines must agree, wherever he does it; also the second time."""
    args = [tnp.asarray(x) for x in (X, V, N)]
    program(COMBINED[name], *args)

    with strict():
        for _ in range(2):
            with pytest.raises((BroadcastError, TypePromotionError)):
                program(COMBINED[name], *args)
            with pytest.raises((BroadcastError, TypePromotionError)):
                COMBINED[name](*args)


def test_options_of_the_process_judge_alike() -> None:
    """The same for options that are set for all threads."""
    v, i = tnp.asarray(V), tnp.asarray(N)
    tb.config.update("numpy_dtype_promotion", "strict")
    try:
        expected, _ = np.histogram(N, bins=V)
        assert expected.tolist() == tnp.histogram(i, bins=v)[0].tolist()
        for _ in range(2):
            with pytest.raises(TypePromotionError):
                v + i
    finally:
        tb.config.update("numpy_dtype_promotion", "standard")
