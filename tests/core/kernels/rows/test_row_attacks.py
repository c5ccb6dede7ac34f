"""What once broke kernels over rows: programs, numbers, threads and memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import is_as_plain, kernels_in, needs_kernels
from tracebridge import lax, nn
from tracebridge.core.config.scopes import scope
from tracebridge.experimental import io_callback

pytestmark = needs_kernels

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    """Normal numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def check(f: Callable[..., Any], *args: Any, tolerance: float = 1e-5) -> None:
    """The numbers of ``f`` are those of its plain form."""
    fast = tb.tree.leaves(tb.jit(f)(*args))
    with scope("platform_rules", False):
        plain = tb.tree.leaves(tb.jit(f)(*args))
    for x, y in zip(fast, plain, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        finite = np.abs(np.where(np.isfinite(y), y, 0)).max(initial=0)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * finite)


@pytest.mark.parametrize(
    "read",
    [
        lambda x, rows, columns: rows + columns,
        lambda x, rows, columns: x + columns[:, None],
        lambda x, rows, columns: tnp.exp(columns * 1e-3) * 2,
        lambda x, rows, columns: x - columns.reshape(256, 1),
    ],
    ids=["with rows", "along rows", "alone", "reshaped"],
)
def test_sums_of_columns_of_square_frames(read: Any) -> None:
    """They have the shape of numbers of rows, and are known after all rows only."""

    def f(x: Any) -> Any:
        centred = x - x.max(-1, keepdims=True)
        return read(centred, centred.sum(-1), centred.sum(0)), centred

    check(f, array(256, 256))


def test_effects_keep_their_order() -> None:
    """A call that waits for a kernel is not overtaken by the next one."""
    calls: list[str] = []

    def second() -> Any:
        calls.append("second")
        return np.float32(3)

    def f(x: Any) -> Any:
        y = x / abs(x).sum(-1, keepdims=True)
        io_callback(lambda _: calls.append("first"), None, y[0, 0], ordered=True)
        factor = io_callback(second, tb.ShapeDtypeStruct((), np.float32), ordered=True)
        return y * factor, y + 1

    tb.block_until_ready(tb.jit(f)(array(512, 64)))
    tb.effects_barrier()
    assert calls == ["first", "second"]


def test_products_are_rounded_alike_in_all_passes() -> None:
    """The largest element of a row is equal to its maximum."""

    def f(x: Any) -> Any:
        places = tb.lax.broadcasted_iota(np.int32, x.shape, 1).astype(np.float32)
        y = x + places * 0.01
        return (y == y.max(-1, keepdims=True)).sum(-1), tb.lax.logistic(y)

    hits, _ = tb.jit(f)(array(2000, 200))
    assert (np.asarray(hits) == 1).all()


def test_many_kept_rows_in_a_thread_with_a_small_stack() -> None:
    """They lie in memory of their own."""

    def f(x: Any) -> Any:
        powers = [tnp.exp(x * 0.01 * k) for k in range(16)]
        total = sum(powers[1:], powers[0]).sum(-1, keepdims=True)
        for y in powers:
            x = x + y * total
        return x

    x = array(8, 8192)
    compiled = tb.jit(f)
    expected = np.asarray(compiled(x))
    found: list[Any] = []
    before = threading.stack_size(256 << 10)
    try:
        thread = threading.Thread(target=lambda: found.append(np.asarray(compiled(x))))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    np.testing.assert_array_equal(found[0], expected)


def test_long_programs_that_wait_for_a_kernel() -> None:
    """Each equation is looked at once, however many wait for a kernel that stands at the end."""

    def f(x: Any) -> Any:
        y = nn.softmax(x)
        for _ in range(2000):
            y = tnp.sin(y)
        return y, x - x.max(-1, keepdims=True)

    traced = tb.jit(f).trace(array(512, 64))
    start = time.process_time()
    traced.lower()
    assert time.process_time() - start < 3


@pytest.mark.parametrize("dtype", [tnp.float16, tnp.bfloat16])
@pytest.mark.parametrize("number", [1.5, 1.25, 0.1, -0.0, np.inf, np.nan])
def test_numbers_of_16_bits(dtype: Any, number: float) -> None:
    """They stand in kernels with their fractions, in numbers of their own."""
    x = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)

    def f(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        y = centred / tnp.abs(centred).max(-1, keepdims=True)
        return lax.select(x > 0.3, y.astype(dtype), lax.full(y.shape, number, dtype))

    assert kernels_in(f, x) == 1
    is_as_plain(f, x, tolerance=1e-2, signs=True)
    other = np.asarray(x <= 0.3)
    found = np.asarray(tb.jit(f)(x).astype(tnp.float32))[other]
    np.testing.assert_array_equal(found, np.float32(tnp.asarray(number, dtype)))


def spread(x: Any, axes: tuple[int, ...]) -> Any:
    """The means of rows, one for each of their elements."""
    return tnp.exp(x.mean(axes, keepdims=True)) * tnp.ones_like(x)


@pytest.mark.parametrize(
    "read",
    [
        lambda m, axes: m.sum(axes, keepdims=True),
        lambda m, axes: (-m * m).sum(axes, keepdims=True) - m.max(axes, keepdims=True),
        lambda m, axes: (tnp.tanh(m) * 2.5).sum(axes, keepdims=True),
        lambda m, axes: m.sum(0, keepdims=True),
    ],
    ids=["itself", "negative", "a function", "other sums"],
)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((512, 256), (1,)), ((512, 256), (0,)), ((16, 32, 256), (1, 2))],
    ids=["rows", "across rows", "rows of two axes"],
)
def test_sums_of_what_is_one_number_for_each_row(shape: Any, axes: Any, read: Any) -> None:
    """A sum along a row of what does not differ there was a product of no factors."""

    def f(x: Any) -> Any:
        m = spread(x, axes)
        return (x - m) / read(m, axes)

    def loss(x: Any) -> Any:
        return (f(x) ** 2).mean()

    assert kernels_in(f, array(*shape))
    check(f, array(*shape), tolerance=3e-5)
    check(tb.grad(loss), array(*shape), tolerance=1e-3)


def test_sums_of_what_is_one_number_for_each_part_of_a_row() -> None:
    """The scales of channels of an image."""

    def f(x: Any, scale: Any) -> Any:
        wide = lax.broadcast_in_dim(scale, x.shape, (1,))
        centred = x - x.mean((1, 2), keepdims=True)
        return centred * wide.sum((1, 2), keepdims=True), (x * wide).sum((1, 2)), wide.sum(2)

    args = array(16, 32, 256), array(32)
    assert kernels_in(f, *args)
    check(f, *args, tolerance=3e-5)


def _of_rows(x: Any, how: Callable[[Any, Any], Any]) -> Any:
    """An array that is one number in all of each row."""
    largest, squares = x.max((1, 2)), (x * x).sum((1, 2))
    whole = [lax.broadcast_in_dim(v, x.shape, (0,)) for v in (largest, squares)]
    return how(*whole)


@pytest.mark.parametrize(
    "how",
    [
        lambda s, t: -(s * t),
        lambda s, t: s * t,
        lambda s, t: s + t,
        lambda s, t: tnp.exp(s) - 0.3 * t,
        lambda s, t: tnp.where(s > 2, t, -t),
    ],
)
@pytest.mark.parametrize("shape", [(1000, 1, 64), (1000, 4, 16)])
def test_sums_of_what_is_one_number_in_a_row(
    how: Callable[[Any, Any], Any], shape: tuple[int, ...]
) -> None:
    """No factor of it differs within the row; there was no kernel, but an error of ours."""

    def rows(x: Any) -> Any:
        found = _of_rows(x, how)
        return x * found.sum((1, 2), keepdims=True) + found, found.sum(2)

    def parts(x: Any, w: Any) -> Any:
        found = _of_rows(x, how) * lax.broadcast_in_dim(w, x.shape, (1,))
        return x + found.sum((1, 2), keepdims=True), found.sum((0, 2)), found.sum(2)

    x, w = array(*shape), array(shape[1])
    assert kernels_in(rows, x)
    check(rows, x)
    check(parts, x, w)


def test_gradient_of_a_sum_of_normalised_rows() -> None:
    """It is zero but for rounding: a cotangent is one number in each row."""
    x, w = array(1000, 64), array(1000)

    def loss(x: Any) -> Any:
        return (nn.standardize(x, -1, epsilon=0.1).sum(-1) * w).sum()

    assert kernels_in(tb.grad(loss), x)
    np.testing.assert_allclose(np.zeros_like(x), tb.jit(tb.grad(loss))(x), atol=2e-6)
