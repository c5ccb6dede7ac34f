"""mask and shapecheck: functions on logical parts of padded arrays, against unpadded arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ArgumentSpecError,
    MissingRuleError,
    ShapeMismatchError,
    TreeMismatchError,
    UnsupportedDtypeError,
)

LOGICAL = {"n": 3, "m": 2}
PADDED = {"n": 5, "m": 4}


def sizes(spec: str, env: dict[str, int]) -> tuple[int, ...]:
    """The shape of a spec such as ``"2*n, m"``."""
    return tuple(int(eval(d, {}, env)) for d in spec.split(","))


def samples(specs: list[str]) -> tuple[list[Any], list[Any]]:
    """Arrays of the logical shapes, and the same with NaN behind them."""
    rng = np.random.default_rng(0)
    real = [rng.normal(size=sizes(s, LOGICAL)).astype(np.float32) for s in specs]
    padded: list[Any] = []
    for spec, x in zip(specs, real, strict=True):
        p = np.full(sizes(spec, PADDED), np.nan, np.float32)
        p[tuple(slice(0, k) for k in x.shape)] = x
        padded.append(tnp.asarray(p))
    return real, padded


def assert_logical_part(expected: Any, actual: Any, structs: Any) -> None:
    """The first entries of each axis; the shapes of the structs say which."""
    for e, a, s in zip(*map(tb.tree.leaves, (expected, actual, structs)), strict=True):
        shape = tuple(int(d) for d in s.shape)
        assert np.shape(e) == shape
        part = np.asarray(a)[tuple(slice(0, k) for k in shape)]
        np.testing.assert_allclose(part, e, rtol=1e-5, atol=1e-6)


def scanned(x: Any, *, reverse: bool = False) -> Any:
    return tb.lax.scan(lambda c, a: (c * 0.5 + a, (c, a)), 0.0, x, reverse=reverse)


def loss(x: Any) -> Any:
    return tnp.sum(tnp.sin(x) * x[0]) + tnp.sum(x[1:] * x[:-1])


CASES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "sum": (tnp.sum, ["n,m"]),
    "mean": (lambda x: tnp.mean(x, 0), ["n,m"]),
    "var": (lambda x: tnp.var(x, 1), ["n,m"]),
    "max": (tnp.max, ["n,m"]),
    "prod": (lambda x: tnp.prod(x, 1), ["n,m"]),
    "any": (lambda x: (x > 1).any() | ~(x > -9).all(), ["n"]),
    "argmax": (lambda x: (tnp.argmax(x), tnp.argmin(-x)), ["n"]),
    "softmax": (lambda x: tnp.exp(x - tnp.max(x)) / tnp.sum(tnp.exp(x - tnp.max(x))), ["n"]),
    "log_softmax": (tb.nn.log_softmax, ["n"]),
    "matmul": (lambda a, b: a @ b, ["n,m", "m,n"]),
    "einsum": (lambda a, b: tnp.einsum("ij,kj->ik", a, b), ["n,m", "n,m"]),
    "outer": (lambda a, b: a[:, None] * b[None], ["n", "m"]),
    "concatenate": (lambda a, b: tnp.concatenate([a, b, a]), ["n", "m"]),
    "cumsum": (lambda x: (tnp.cumsum(x), tb.lax.cummax(x, reverse=True)), ["n"]),
    "flip": (lambda x: x[::-1], ["n"]),
    "roll": (lambda x: tnp.roll(x, 1), ["n"]),
    "differences": (lambda x: x[1:] - x[:-1], ["n"]),
    "last": (lambda x: x[-1], ["n"]),
    "steps": (lambda x: tb.lax.slice(x, (0,), (x.shape[0],), (2,)), ["2*n"]),
    "sort": (lambda x: (tnp.sort(x), tnp.argsort(-x)), ["n"]),
    "median": (tnp.median, ["n"]),
    "take": (lambda x: x[tnp.array([0, -1, 1])], ["n"]),
    "out of bounds": (lambda x: tnp.take(x, tnp.array([9, 3]), mode="fill", fill_value=7), ["n"]),
    "clip": (lambda x: tnp.take(x, tnp.array([9, 1]), mode="clip"), ["n"]),
    "order": (lambda x: x[tnp.argsort(-x)], ["n"]),
    "set": (lambda x: tnp.asarray(x).at[-1].set(3.0).at[0].add(1.0), ["n"]),
    "scatter": (lambda x: tnp.zeros(4).at[tnp.argsort(x)].add(x), ["n"]),
    "window": (lambda x: tb.lax.dynamic_slice(x, (7,), (2,)), ["n"]),
    "update": (lambda x: tb.lax.dynamic_update_slice(x, tnp.ones(2), (9,)), ["n"]),
    "pad": (lambda x: tnp.pad(x, (2, 1), constant_values=7), ["n"]),
    "arange": (lambda x: x * tnp.arange(x.shape[0]) / x.shape[0], ["n"]),
    "transpose": (lambda x: x.T, ["n,m"]),
    "rows": (lambda x: x.reshape(-1), ["n,2"]),
    "ravel": (lambda x: tnp.ravel(x)[:, None] * 2, ["n,m"]),
    "columns": (lambda x: tnp.ravel(x.T), ["n,m"]),
    "tile": (lambda x: tnp.tile(x, 2), ["n"]),
    "tile of lax": (lambda x: tb.lax.tile(x, (2, 3)), ["n,m"]),
    "stack": (lambda x: tb.lax.stack([x, x]), ["n"]),
    "pairs": (lambda x: x.reshape(-1, 2).sum(1), ["2*n"]),
    "sizes of others": (lambda a, b: a[: b.shape[0]] + b, ["2*n", "n"]),
    "split": (lambda a, b: tb.lax.split(a, (b.shape[0], b.shape[0])), ["2*n", "n"]),
    "scan": (scanned, ["n"]),
    "reversed scan": (lambda x: scanned(x, reverse=True), ["n"]),
    "cond": (lambda x: tb.lax.cond(x[0] > 0, lambda: x * 2, lambda: -x), ["n"]),
    "while": (lambda x: tb.lax.while_loop(lambda c: c.sum() < 20.0, lambda c: c + 1.0, x), ["n"]),
    "jit": (lambda x: tb.jit(lambda y: y / y.shape[0])(x), ["n"]),
    "gradient": (lambda x: tb.grad(loss)(tnp.asarray(x)), ["n"]),
    "map": (lambda a, b: tb.vmap(lambda x: x @ b)(a), ["n,m", "m"]),
    "no padding": (lambda a: tnp.sort(a @ a.T, axis=1), ["3,2"]),
}


@pytest.mark.parametrize("name", CASES)
def test_logical_parts_are_those_of_unpadded_arrays(name: str) -> None:
    """Whatever lies behind them, and whether sizes are ints or arrays."""
    f, specs = CASES[name]
    real, padded = samples(specs)
    masked = tb.mask(f, specs)

    for env in (LOGICAL, {k: tnp.asarray(v) for k, v in LOGICAL.items()}):
        assert_logical_part(f(*real), *masked(padded, env))


def test_full_arrays_have_no_padding() -> None:
    """Logical sizes that are the padded ones."""
    real, _ = samples(["n,m"])
    f, _ = CASES["softmax"]

    outs, structs = tb.mask(lambda x: f(x.reshape(-1)), ["n,m"])(real, LOGICAL)

    assert (6,) == structs.shape
    np.testing.assert_allclose(outs, f(real[0].reshape(-1)), rtol=1e-6)


def test_arrays_of_different_sizes_in_one_map() -> None:
    """vmap over sizes, inside jit and under derivatives."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(4, 6)).astype(np.float32)
    lengths = np.array([6, 1, 3, 5])

    def total(row: Any, n: Any) -> Any:
        return tb.mask(loss, ["n"], "")([row], {"n": n})

    expected = [float(loss(r[:n])) for r, n in zip(rows, lengths, strict=True)]
    for f in (tb.vmap(total), tb.jit(tb.vmap(total))):
        np.testing.assert_allclose(f(rows, lengths), expected, rtol=1e-5, atol=1e-6)
    slopes = tb.jit(tb.vmap(tb.grad(total)))(rows, lengths)
    for slope, r, n in zip(slopes, rows, lengths, strict=True):
        np.testing.assert_allclose(slope[:n], tb.grad(loss)(r[:n]), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(slope[n:], 0)


def test_masked_scan_of_matrices() -> None:
    """A recurrent network over sequences of different lengths."""
    w = np.random.default_rng(2).normal(size=(3, 3)).astype(np.float32)
    xs = np.random.default_rng(3).normal(size=(2, 5, 3)).astype(np.float32)

    def last(w: Any, xs: Any) -> Any:
        return tb.lax.scan(lambda h, x: (tnp.tanh(h @ w + x), None), tnp.zeros(3), xs)[0]

    masked = tb.mask(last, ["3, 3", "(t, _)"], "3")
    found = tb.vmap(lambda x, t: masked([w, x], {"t": t}))(xs, np.array([2, 5]))

    np.testing.assert_allclose(found, [last(w, xs[0, :2]), last(w, xs[1])], rtol=1e-5)


def test_trees_and_named_results() -> None:
    """Arguments and results are trees, with a shape for each array."""

    def f(t: Any, y: Any) -> Any:
        return {"sum": t["a"] + y, "both": (t["a"][None] * t["b"], y.shape[0])}

    shapes = [{"a": "n", "b": "(m, n)"}, "n"]
    out = {"sum": "n", "both": ("m, n", "")}
    masked = tb.mask(f, shapes, out)
    args = [{"a": tnp.ones(4), "b": tnp.ones((2, 4))}, tnp.ones(4)]

    found = masked(args, {"n": 3, "m": 1})

    assert ([2.0] * 3, 3) == (found["sum"][:3].tolist(), int(found["both"][1]))
    _, structs = tb.mask(f, shapes)(args, {"n": 3, "m": 1})
    assert ((3,), (1, 3)) == (structs["sum"].shape, structs["both"][0].shape)


def test_custom_derivatives_without_padding_are_kept() -> None:
    """A rule whose arrays have no logical sizes is used."""

    @tb.custom_jvp
    def f(x: Any) -> Any:
        return x

    f.defjvp(lambda p, t: (p[0], 10 * t[0]))
    total = tb.mask(lambda x: f(tnp.sum(x)), ["n"], "")

    assert [10.0, 10.0, 0.0] == tb.grad(lambda x: total([x], {"n": 2}))(tnp.ones(3)).tolist()


@pytest.mark.parametrize(
    ("f", "specs", "out", "args", "env", "error", "words"),
    [
        (tnp.sum, ["n"], "", [np.ones((2, 2))], {"n": 1}, ShapeMismatchError, "'n' for an array"),
        (
            tnp.add,
            ["n", "n"],
            None,
            [np.ones(2), np.ones(3)],
            {"n": 1},
            ShapeMismatchError,
            "shapes",
        ),
        (tnp.sum, ["n"], "", [np.ones(2)], {"n": 3}, ShapeMismatchError, "'n' is 3, the padded"),
        (tnp.sum, ["n"], "", [np.ones(2)], {"m": 3}, ArgumentSpecError, "no size for 'n'"),
        (tnp.sum, ["n"], "n", [np.ones(2)], {"n": 1}, ShapeMismatchError, "has the shape ()"),
        (tnp.sin, ["n"], "m", [np.ones(2)], {"n": 1}, ShapeMismatchError, "has the shape (n,)"),
        (tnp.sin, ["n"], ["n"], [np.ones(2)], {"n": 1}, TreeMismatchError, "out_shape"),
        (tnp.sin, ["n"], None, np.ones(2), {"n": 1}, TreeMismatchError, "in_shapes"),
        (tnp.sin, [("n", "m")], None, [np.ones(2)], {"n": 1}, TreeMismatchError, "in_shapes"),
        (tnp.sin, [3], None, [np.ones(2)], {"n": 1}, ArgumentSpecError, "got a shape 3"),
        (tnp.sin, ["n +"], None, [np.ones(2)], {"n": 1}, ValueError, "n +"),
        (tnp.sin, ["n"], None, ["x"], {"n": 1}, UnsupportedDtypeError, "'x'"),
        (tnp.sin, ["n"], None, [np.ones(2)], {"n": "x"}, UnsupportedDtypeError, "logical_env['n']"),
        (
            lambda x: tb.lax.top_k(x, 1),
            ["n"],
            None,
            [np.ones(2, np.float32)],
            {"n": 1},
            MissingRuleError,
            "Masking rule for 'top_k' not implemented",
        ),
    ],
)
def test_errors(
    f: Any, specs: Any, out: Any, args: Any, env: Any, error: type[Exception], words: str
) -> None:
    """What was given, what was expected, and where."""
    with pytest.raises(error) as caught:
        tb.mask(f, specs, out)(args, env)

    assert words in str(caught.value)


def test_padded_updates_are_refused() -> None:
    """They would put padding between the entries of the result."""
    with pytest.raises(ShapeMismatchError, match="the update is padded"):
        tb.mask(lambda x, u: tb.lax.dynamic_update_slice(x, u, (0,)), ["2*n", "n"])(
            [tnp.ones(4), tnp.ones(2)], {"n": 1}
        )


# --- shapecheck ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ins", "out", "f"),
    [
        (["(m, n)", "(n, o)"], "(m, o)", lambda a, b: a @ b),
        (["n"], "2*n", lambda x: tnp.concatenate([x, x])),
        (["(n, 3)"], "3*n", tnp.ravel),
        (["n"], {"a": "", "b": "_"}, lambda x: {"a": x[0], "b": x[1:]}),
        ([], "(2, 2)", lambda: tnp.eye(2)),
    ],
)
def test_shapes_that_hold_for_all_sizes(ins: Any, out: Any, f: Any) -> None:
    """The function itself comes back."""
    assert f is tb.shapecheck(ins, out, f)
    assert f is tb.shapecheck(ins, out)(f)


def test_shapes_that_do_not_hold() -> None:
    """The message has both shapes."""
    with pytest.raises(
        ShapeMismatchError, match=r"has the shape \(m, m\), out_shape is '\(m, n\)'"
    ):
        tb.shapecheck(["(m, n)"], "(m, n)", lambda x: x @ x.T)
    with pytest.raises(ShapeMismatchError):
        tb.shapecheck(["(m, n)", "(m, n)"], "(m, n)", lambda a, b: a @ b)
    with pytest.raises(TreeMismatchError):
        tb.shapecheck(["n"], ("n",), tnp.sin)
    with pytest.raises(ValueError, match="_"):
        tb.shapecheck(["_"], "_", tnp.sin)
