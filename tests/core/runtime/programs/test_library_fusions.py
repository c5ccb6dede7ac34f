"""What XLA's library for CPUs does wrongly, whichever way a program comes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.scopes import scope
from tracebridge.core.runtime.programs import compile_or_load
from tracebridge.core.runtime.programs.library_fusions import has_wrong_fusions

_RNG = np.random.default_rng(0)


def eighths(*shape: int) -> Any:
    """Numbers whose products and sums are exact."""
    return (_RNG.integers(-8, 9, shape) / 8).astype(np.float32)


A, B, SHAPE = eighths(24, 32), eighths(32), (16, 24, 32)
COPIES = np.broadcast_to((A * B).sum(0), (16, 32))
W, X, EIGHT, THREE = eighths(3, 3), eighths(40_000, 3), eighths(4, 2, *(3,) * 6), eighths(4, 2)
GAP = eighths(512, 32)
GAP[5, 7] = np.nan
HOLES = np.full((64, 255), -9, np.float32)
HOLES[:, ::2] = IMAGE = eighths(64, 128)


def beside_copies(a: Any, b: Any) -> Any:
    """A sum of products that are broadcast along an axis that stays."""
    return (tnp.broadcast_to(a, SHAPE) * b).sum(1)


def of_an_inner_function(a: Any, b: Any) -> Any:
    """The same, where no single program shows it."""
    return (tb.jit(lambda a: tnp.broadcast_to(a, SHAPE))(a) * b).sum(1)


def in_a_loop(a: Any, b: Any) -> Any:
    """The same in the body of a loop."""
    return lax.fori_loop(0, 2, lambda i, c: c + beside_copies(a, b) / 2, tnp.zeros((16, 32)))


def of_a_dilated_window(x: Any) -> Any:
    """Maxima over windows that hold nothing but padding in every second column."""
    out = lax.reduce_window(
        x, -np.inf, lax.max, (2, 1), (2, 1), ((0, 0), (0, 0)), base_dilation=(1, 2)
    )
    return tnp.maximum(out, -9)


CASES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "copies": (beside_copies, (A, B), COPIES),
    "copies, inner function": (of_an_inner_function, (A, B), COPIES),
    "copies, loop": (in_a_loop, (A, B), COPIES),
    "sum of a matrix product": (lambda w, x: (w @ x.T).sum(0), (W, X), (W @ X.T).sum(0)),
    "squares of matrices by vectors": (
        lambda x: tb.vmap(lambda row: ((W @ row) ** 2).sum())(x),
        (X,),
        ((X @ W.T) ** 2).sum(1),
    ),
    "maxima of a matrix product": (lambda w, x: (w @ x.T).max(0), (W, X), (W @ X.T).max(0)),
    "eight dimensions": (
        lambda x, y: (x[..., None, None, None, None, None, None] * y).sum(1),
        (THREE, EIGHT),
        (THREE[..., None, None, None, None, None, None] * EIGHT).sum(1),
    ),
    "NaN of a relu": (lambda x: tnp.maximum(x, 0).sum(0), (GAP,), np.maximum(GAP, 0).sum(0)),
    "NaN of a relu of a product": (
        lambda x, w: tnp.maximum(x @ w, 0),
        (GAP, GAP[:32]),
        np.maximum(GAP @ GAP[:32], 0),
    ),
    "NaN in a window": (
        lambda x: lax.reduce_window(x, np.inf, lax.min, (2, 1), (2, 1), "VALID"),
        (GAP,),
        GAP.reshape(256, 2, 32).min(1),
    ),
    "dilated window": (of_a_dilated_window, (IMAGE,), HOLES.reshape(32, 2, 255).max(1)),
}


@pytest.mark.parametrize("name", CASES)
def test_reductions_are_right_with_and_without_rules_for_speed(name: str) -> None:
    """Each of these was wrong or crashed the process: which one depends on what XLA fuses."""
    f, args, expected = CASES[name]

    for rules in (True, False):
        with scope("platform_rules", rules):
            np.testing.assert_allclose(tb.jit(f)(*args), expected, rtol=1e-6, atol=1e-6)


def test_over_devices_and_ahead_of_time() -> None:
    """Programs of meshes, of replicas and ahead of time go the same way."""
    f, (a, b), expected = CASES["copies"]
    mesh = tb.make_mesh((2,), ("i",))
    split = tb.NamedSharding(mesh, tb.P(None, "i"))

    with scope("platform_rules", False):
        over_mesh = tb.jit(f, in_shardings=(split, tb.NamedSharding(mesh, tb.P("i"))))(a, b)
        each = tb.pmap(f)(np.stack([a, a]), np.stack([b, b]))[1]
        compiled = tb.jit(f).lower(a, b).compile()(a, b)
    for out in (over_mesh, each, compiled):
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


def random_reduction(seed: int) -> tuple[Any, list[Any]]:
    """A reduction of products and sums of operands that are broadcast, transposed or in bf16."""
    r = random.Random(seed)
    shape = tuple([r.choice([3, 8, 17, 33, 48]) for _ in range(r.choice([3, 3, 4]))])
    rank = len(shape)
    makers: list[Any] = []
    args: list[Any] = []
    for _ in range(r.choice([1, 2, 2, 3])):
        kind = r.choice(["full", "broadcast", "broadcast", "transpose", "bf16", "matmul"])
        axes = tuple([i for i in range(rank) if kind != "broadcast" or r.random() < 0.5])
        n = len(args)
        if kind == "matmul":
            args += [eighths(*shape[:-1], 3), eighths(3, shape[-1])]
            makers.append(lambda np_, a, n=n: a[n] @ a[n + 1])
        elif kind == "transpose":
            args.append(eighths(*shape[::-1]))
            makers.append(lambda np_, a, n=n: np_.transpose(a[n]))
        else:
            args.append(eighths(*[shape[i] if i in axes else 1 for i in range(rank)]))
            as_half = kind == "bf16"
            makers.append(
                lambda np_, a, n=n, h=as_half: np_.broadcast_to(
                    a[n].astype(tnp.bfloat16).astype(np.float32) if h else a[n], shape
                )
            )
    ops = [r.choice(["multiply", "multiply", "add", "maximum"]) for _ in makers[1:]]
    functions: list[Any] = [lambda x: x, lambda x: x * x, abs]
    last = r.choice(functions)
    reduction = r.choice(["sum", "sum", "max", "min"])
    axis = tuple([i for i in range(rank) if r.random() < 0.45]) or (r.randrange(rank),)

    def f(np_: Any, *a: Any) -> Any:
        x = makers[0](np_, a)
        for op, make in zip(ops, makers[1:], strict=True):
            x = getattr(np_, op)(x, make(np_, a))
        return getattr(np_, reduction)(last(x), axis=axis)

    return f, args


def test_random_reductions_agree_with_numpy() -> None:
    """Sums, maxima and minima of what XLA may fuse into them, several in one program."""
    cases = [random_reduction(seed) for seed in range(12)]

    with scope("platform_rules", False):
        outs = tb.jit(lambda every: [f(tnp, *a) for (f, _), a in zip(cases, every, strict=True)])(
            [args for _, args in cases]
        )
    for (f, args), out in zip(cases, outs, strict=True):
        np.testing.assert_allclose(out, f(np, *args), rtol=1e-5, atol=1e-4)


def test_plain_sums_stay_in_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long sums, softmax and normalisations are compiled once: nothing is wrong with them."""
    compiled: list[bool] = []

    def look(text: str) -> bool:
        compiled.append(has_wrong_fusions(text))
        return compiled[-1]

    monkeypatch.setattr(compile_or_load, "has_wrong_fusions", look)
    x, y = eighths(200, 300), eighths(300)

    def f(x: Any, y: Any) -> Any:
        z = (x - x.mean(1, keepdims=True)) * y
        return x.sum(1), (x * y).sum(1), (x * x).sum(0), tnp.exp(z - z.max(1)[:, None]).sum(1)

    tb.jit(f)(x, y)
    assert compiled == [False]
