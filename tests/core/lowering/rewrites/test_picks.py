"""Elements picked from chains: the numbers of the plain form, without the chain of all elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.core.config.scopes import scope
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lowering.rewrites.programs import rewritten
from tracebridge.core.lowering.rewrites.spliced import Instead, spliced

_RNG = np.random.default_rng(0)
ROWS, COLUMNS = 64, 640
X = _RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
BIAS = _RNG.standard_normal(COLUMNS).astype(np.float32)
LABELS = _RNG.integers(0, COLUMNS, ROWS).astype(np.int32)
MODES = ["fill", "clip", "promise_in_bounds"]


def shared(x: Any) -> Any:
    """Parts of it are read by a sum too."""
    shifted = x - tb.lax.stop_gradient(x.max(-1, keepdims=True))
    return shifted - tnp.log(tnp.exp(shifted).sum(-1, keepdims=True))


# name -> picks few elements of shared(x) by labels
FORMS: dict[str, Any] = {
    "take_along_axis": lambda x, y: tnp.take_along_axis(shared(x), y[:, None], -1),
    "positions": lambda x, y: shared(x)[tnp.arange(ROWS), y],
    "mapped": tb.vmap(lambda x, y: shared(x)[y]),
    "rows": lambda x, y: shared(x)[y[:7] % ROWS],
    "columns": lambda x, y: shared(x)[:, y[:9]],
    "log_softmax": lambda x, y: tnp.take_along_axis(tb.nn.log_softmax(x), y[:, None], -1),
    "softmax": lambda x, y: tb.nn.softmax(x)[tnp.arange(ROWS), y],
    "biased": lambda x, y: tnp.take_along_axis(tb.nn.log_softmax(x + BIAS), y[:, None], -1),
    "columns first": lambda x, y: tnp.take_along_axis(shared(x.T).T, y[:, None], 1),
    "three axes": lambda x, y: tnp.take_along_axis(
        shared(x.reshape(8, 8, COLUMNS)), y.reshape(8, 8, 1), -1
    ),
    "masked": lambda x, y: tnp.maximum(
        tnp.take_along_axis(tb.nn.log_softmax(x, where=x > -1), y[:, None], -1), -99
    ),
}  # fmt: skip


def plainly(f: Any, *args: Any) -> Any:
    """The result without rules for speed."""
    with scope("platform_rules", False):
        return tb.jit(f)(*args)


def test_picks_of_chains_are_those_of_all_elements() -> None:
    """Values and gradients of each form, in one program."""

    def both(f: Any, x: Any, y: Any) -> Any:
        return f(x, y), tb.grad(lambda x: (f(x, y) ** 2).mean())(x)

    def everything(x: Any, y: Any) -> Any:
        return [both(f, x, y) for f in FORMS.values()]

    pairs = zip(tb.jit(everything)(X, LABELS), plainly(everything, X, LABELS), strict=True)
    for name, (fast, plain) in zip(FORMS, pairs, strict=True):
        for a, b in zip(fast, plain, strict=True):
            np.testing.assert_allclose(
                a, b, rtol=2e-6, atol=1e-6 * float(abs(b).max()), err_msg=name
            )


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.uint64])
def test_positions_out_of_bounds_are_those_of_all_elements(dtype: Any) -> None:
    """Far outside, negative, at the ends; with the number that fills them, or another."""
    info = np.iinfo(dtype)
    numbers = [info.min, info.max, 0, COLUMNS - 1, COLUMNS, -1, -COLUMNS, -COLUMNS - 1]
    ends = [n for n in numbers if info.min <= n <= info.max]
    y = np.resize(np.array(ends, dtype), ROWS)

    def f(x: Any, y: Any) -> Any:
        chain, rows = shared(x), tb.lax.iota(dtype, ROWS)
        return [
            (
                tnp.take_along_axis(chain, y[:, None], -1, mode=mode),
                chain.at[rows, y].get(mode=mode, fill_value=7 if mode == "fill" else None),
                chain.at[y % 80].get(mode=mode).sum(-1),
            )
            for mode in MODES
        ]

    with scope("enable_x64", True):
        for fast, plain in zip(tb.jit(f)(X, y), plainly(f, X, y), strict=True):
            for a, b in zip(fast, plain, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


def test_nan_and_infinities_are_those_of_all_elements() -> None:
    """In the picked element, beside it, in the statistics of its row."""
    x = X.copy()
    for row, values in enumerate([[np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [np.nan] * 9]):
        x[row, 5 : 5 + len(values)] = values
        x[row + 10, LABELS[row + 10]] = values[0]
    x[20] = -np.inf
    names = "take_along_axis", "positions", "softmax"

    def f(x: Any, y: Any) -> Any:
        return [FORMS[name](x, y).ravel() for name in names]

    for fast, plain in zip(tb.jit(f)(x, LABELS), plainly(f, x, LABELS), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-5)


def test_no_chain_is_written_for_a_pick() -> None:
    """The only reader of the differences is the sum of their exponentials; off with the option."""

    def written(f: Any) -> list[str]:
        jaxpr = rewritten(tb.make_jaxpr(f)(X, LABELS).jaxpr)
        subs = [k for k, (app, _) in enumerate(jaxpr.equations) if app.primitive.name == "sub"]
        return [jaxpr.equations[k][0].out.shape for k in subs]

    for name in ("take_along_axis", "positions", "mapped"):
        assert sum(shape == (ROWS, COLUMNS) for shape in written(FORMS[name])) == 1

    def with_derivative(x: Any, y: Any) -> Any:
        return tb.value_and_grad(lambda x: FORMS["log_softmax"](x, y).mean())(x)

    assert written(with_derivative).count((ROWS, 1)) == 2

    def once(x: Any, y: Any) -> Any:
        return tnp.take_along_axis(tnp.exp(x - 1), y[:, None], -1)

    assert written(once) == [(ROWS, COLUMNS)]  # XLA makes it a part of the pick
    text = tb.jit(FORMS["log_softmax"]).lower(X, LABELS).as_text()
    with scope("platform_rules", False):
        assert text != tb.jit(lambda x, y: FORMS["log_softmax"](x, y)).lower(X, LABELS).as_text()


def test_derivatives_batching_and_loops_of_picks() -> None:
    """Second order, vmap and scan, in one program; float64."""

    def loss(x: Any, y: Any) -> Any:
        return -FORMS["log_softmax"](x, y).mean()

    def everything(x: Any, y: Any) -> Any:
        direction = tb.jvp(tb.grad(lambda x: loss(x, y)), (x,), (x,))[1]
        mapped = tb.vmap(loss)(tnp.stack([x, 2 * x]), tnp.stack([y, y[::-1]]))
        steps = tb.lax.scan(lambda c, k: (c + loss(c * k, y) * c, c[0, 0]), x, tnp.arange(3.0))
        return direction, mapped, *steps

    with scope("enable_x64", True):
        x = X.astype(np.float64)
        for fast, plain in zip(
            tb.jit(everything)(x, LABELS), plainly(everything, x, LABELS), strict=True
        ):
            np.testing.assert_allclose(fast, plain, rtol=1e-12, atol=1e-12)
    jaxpr = tb.make_jaxpr(everything)(X, LABELS)
    assert "gather" in primitives_in(jaxpr, inside=True)


def test_few_picks_only() -> None:
    """Small arrays, many picks, and arrays of no elements are left alone."""
    small = tb.make_jaxpr(FORMS["take_along_axis"])(X[:4], LABELS[:4]).jaxpr
    many = tb.make_jaxpr(lambda x, y: shared(x)[:, y])(X, np.resize(LABELS, 300)).jaxpr
    for jaxpr in (small, many):
        assert sum(app.primitive.name == "gather" for app, _ in rewritten(jaxpr).equations) == 1
    empty = tb.jit(lambda x, y: shared(x).at[y].get(mode="clip"))(X, np.zeros(0, np.int32))
    assert empty.shape == (0, COLUMNS)


def test_picks_from_picks_and_of_one_chain() -> None:
    """A pick reads what another one gives; two read one chain, which a sum reads too."""
    x = np.resize(X, 1 << 19)
    many = _RNG.integers(0, len(x), 1 << 16).astype(np.int32)
    few = _RNG.integers(0, len(many), 1 << 12).astype(np.int32)

    def f(x: Any, many: Any, few: Any) -> Any:
        chain = tnp.exp(x * 2 - 1)
        first = chain[many]
        shifted = tnp.sin(first) * 3
        return chain.sum(), shifted[few], shifted.sum(), (chain + 1)[few], first

    jaxpr = rewritten(tb.make_jaxpr(f)(x, many, few).jaxpr)
    shapes = [app.avals[0].shape for app, _ in jaxpr.equations if app.primitive.name == "exp"]
    assert sorted(shapes) == [few.shape, many.shape, x.shape]
    for fast, plain in zip(tb.jit(f)(x, many, few), plainly(f, x, many, few), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-5)


def test_programs_in_place_of_equations_have_constants_of_both() -> None:
    """A constant of both is one; what nobody reads any more goes, with its constants."""
    jaxpr = tb.make_jaxpr(lambda x, y: tnp.cos((x * 3 + 5) * y) + 5)(X, X).jaxpr
    names = [app.primitive.name for app, _ in jaxpr.equations]
    other = tb.make_jaxpr(lambda y, x: tnp.sin(x - 7))(X, X).jaxpr
    shared_const = next(c for c in jaxpr.consts if c.aval.ndim == 0 and float(c.value) == 5)
    consts = [shared_const if float(c.value) == 7 else c for c in other.consts]
    given, outs = other.in_avals, other.out_avals
    other = Jaxpr(given, consts, other.equations, other.outs, outs, other.sources)
    with scope("enable_checks", True):
        new = spliced(jaxpr, {names.index("cos"): Instead(other, (0, 1))})
    assert [app.primitive.name for app, _ in new.equations] == ["sub", "sin", "add"]
    assert [float(c.value) for c in new.consts] == [5]
    (got,) = tb.core.eval_jaxpr(new, [], X, BIAS[0] * X)
    np.testing.assert_allclose(got, np.sin(BIAS[0] * X - 5) + 5, rtol=1e-5)
