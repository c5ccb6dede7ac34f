"""What a loop alone reads is made for a few of its steps at a time, with the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering import platforms

lax = tb.lax
STEPS, WIDTH = 49, 8192  # 1.6 MB, of which a block has 8 steps, so that one step is left over
_RNG = np.random.default_rng(0)
XS = _RNG.standard_normal((STEPS, WIDTH)).astype(np.float32)
START = np.zeros(WIDTH, np.float32)
SIZE = XS.nbytes


def step(carry: Any, x: Any) -> tuple[Any, Any]:
    """A sum whose former terms fade."""
    carry = 0.9 * carry + x
    return carry, carry.sum()


def of_two(carry: Any, x: Any) -> tuple[Any, Any]:
    """The same of a product."""
    return step(carry, x[0] * x[1])


def run(make: Any, **options: Any) -> Any:
    """Last carry and ys of a loop over what ``make`` makes of arrays."""

    def program(*args: Any) -> Any:
        xs = make(*args)
        body = of_two if isinstance(xs, tuple) else step
        return lax.scan(body, tnp.asarray(START), xs, **options)

    return program


def is_by_blocks(f: Any, *args: Any) -> bool:
    """Whether a program has a loop in a loop."""
    return tb.jit(f).lower(*args).as_text().count("stablehlo.while") == 2


def temporary(f: Any, *args: Any) -> int:
    """Bytes that a compiled program needs beside arguments and results."""
    return tb.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes


def assert_same(f: Any, *args: Any) -> None:
    """The results are those without blocks, NaN and infinities too.

    Not those without any rule for speed: there sums of 8192 numbers have fewer digits.
    """
    new = tb.tree.leaves(tb.jit(f)(*args))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platforms, "with_blocks", lambda jaxpr: jaxpr)
        patch.setattr(platforms, "by_content", lambda jaxpr, rewrite: rewrite(jaxpr))
        whole = tb.jit(lambda *xs: f(*xs))
        assert not is_by_blocks(whole, *args)
        plain = tb.tree.leaves(whole(*args))
    for a, b in zip(new, plain, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("steps", [STEPS, 48, 40], ids=["a step more", "6 blocks", "5 blocks"])
def test_loops_over_arrays_made_for_them_make_them_by_blocks(steps: int, reverse: bool) -> None:
    """In both directions, whether the blocks fit the length or not."""
    f = run(tnp.exp, reverse=reverse)
    carry, ys = tb.jit(f)(XS[:steps])
    expected, sums = np.zeros(WIDTH), np.zeros(steps)
    for i in reversed(range(steps)) if reverse else range(steps):
        expected = 0.9 * expected + np.exp(XS[i].astype(np.float64))
        sums[i] = expected.sum()

    assert is_by_blocks(f, XS[:steps])
    np.testing.assert_allclose(np.asarray(carry), expected, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(ys), sums, rtol=1e-5)


def test_the_arrays_are_not_in_memory_at_once() -> None:
    """Two arrays for a loop take two blocks of 8 of 49 steps, not 3.2 MB."""
    f = run(lambda x: (tnp.exp(x), tnp.tanh(x)))
    with scope("platform_rules", False):
        plain = temporary(f, XS)

    assert temporary(f, XS) < 0.5 * SIZE
    assert plain >= 2 * SIZE


def test_numbers_parts_and_other_slices_enter_the_loop() -> None:
    """Parts of wider arrays, a number that is computed, and xs that were there already."""

    def f(x: Any, scale: Any) -> Any:
        a, b = tnp.split(x, 2, axis=1)
        factors = tnp.tanh(a * (scale + 1.0)) + x[:, WIDTH // 2 :] * b
        return lax.scan(of_two, tnp.asarray(START[: WIDTH // 2]), (b, factors))

    wide = np.concatenate([XS, XS[::-1]])
    scale = np.float32(0.5)

    assert is_by_blocks(f, wide, scale)
    assert_same(f, wide, scale)


@pytest.mark.parametrize("of", [np.asarray, tnp.asarray], ids=["NumPy", "array"])
def test_constants_enter_the_loop_by_blocks(of: Any) -> None:
    """Arrays that the function closes over, beside others, alone, and longer than the loop."""
    longer = of(np.concatenate([XS[::-1], XS]))
    constant = of(XS[::-1].copy())

    def f(x: Any) -> Any:
        return run(lambda x: tnp.exp(x) * constant + longer[:STEPS])(x)

    def alone(x: Any) -> Any:
        return run(lambda: tnp.tanh(constant) * 2)(), x

    assert is_by_blocks(f, XS)
    assert_same(f, XS)
    assert is_by_blocks(alone, XS[:1])
    assert_same(alone, XS[:1])


def test_keys_enter_the_loop_by_blocks() -> None:
    """They have an axis more in memory than in programs."""

    def f(a: Any, b: Any, one: Any, x: Any) -> Any:
        keys = tnp.where(x > 1, one, tnp.where(x > 0, a, b))
        return lax.scan(
            lambda c, k: (c + tb.vmap(tb.random.bits)(k), k), tnp.zeros(WIDTH // 2, np.uint32), keys
        )[1]

    def data(*args: Any) -> Any:
        return tb.random.key_data(f(*args))

    keys = tb.random.split(tb.random.key(0), (STEPS, WIDTH // 2))
    args = keys, keys[::-1], tb.random.key(7), XS[:, ::2].copy()

    assert is_by_blocks(data, *args)
    assert_same(data, *args)


def test_unusual_numbers_stay_where_they_are() -> None:
    """NaN and infinities reach the steps that they reach without blocks."""
    x = XS.copy()
    x[5, 3], x[STEPS - 2, 7], x[0, 9] = np.nan, np.inf, -np.inf

    assert_same(run(tnp.exp), x)
    assert_same(run(lambda x: (tnp.tanh(x), 1.0 / x), reverse=True), x)


def stencil(x: Any) -> Any:
    """A loop that XLA runs by two steps per round."""
    start = tnp.zeros(x.shape[1:])
    return lax.scan(lambda c, x: (tnp.roll(c, 1, 1) + x, None), start, tnp.exp(x))[0]


@pytest.mark.parametrize(
    "f",
    [
        run(lambda x: x),
        run(lambda x: tnp.flip(tnp.exp(x), 0)),
        run(lambda x: tnp.exp(x + tnp.flip(x, 0))),
        run(lambda x: tnp.exp(tnp.cumsum(x, 1))),
        run(tnp.exp, unroll=2),
        lambda x: (lax.scan(step, tnp.asarray(START), y := tnp.exp(x)), y),
        lambda x: lax.scan(lambda c, x: (c + y[0], c * x), START, y := tnp.exp(x))[0],
        lambda x: stencil(x.reshape(STEPS, 64, 128).repeat(2, 1)),
    ],
    ids=[
        "arguments", "of other steps", "with other steps", "no gain", "two steps per round",
        "a result", "read as a whole", "stencil",
    ],
)  # fmt: skip
def test_others_are_left_alone(f: Any) -> None:
    """What other steps need, what others read, and what gains no memory."""
    assert not is_by_blocks(f, XS)
    assert_same(f, XS)


def test_small_arrays_are_made_at_once() -> None:
    """Less than a megabyte is not worth a loop."""
    assert not is_by_blocks(run(tnp.exp), XS[:30])


def test_sizes_that_are_not_known_are_left_alone() -> None:
    """A part of known size of an array whose size is not known is no part of the loop."""

    def f(x: Any) -> Any:
        return run(tnp.exp)(x[:, :WIDTH])

    width = tb.export.symbolic_shape("n", constraints=["n >= 8192"])[0]
    x = tb.ShapeDtypeStruct((STEPS, width), np.float32)
    exported = tb.export.export(tb.jit(f))(x)

    np.testing.assert_allclose(
        np.asarray(exported.call(XS)[1]), np.asarray(tb.jit(f)(XS)[1]), rtol=1e-5
    )
