"""Sums over the leading axes of two large arrays are calls of a library on x86."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.scopes import scope
from tracebridge.core.lax.contract import by_library
from tracebridge.core.mlir.onednn import IS_BUILT_IN, MATMUL
from tracebridge.experimental import serialize_executable as saving

pytestmark = pytest.mark.skipif(not IS_BUILT_IN, reason="jaxlib has oneDNN on Linux, x86-64")


@pytest.fixture(autouse=True)
def _sums_over_leading_axes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Which other products are calls depends on the processor: here tests say which."""
    monkeypatch.setattr(by_library, "_wins_from_ynnpack", lambda: False)
    tb.clear_caches()
    yield
    tb.clear_caches()


@pytest.fixture
def every_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on processors on which the library was measured to be faster."""
    monkeypatch.setattr(by_library, "_wins_from_ynnpack", lambda: True)
    tb.clear_caches()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leading(x, y, n=1):
    axes = tuple(range(n))
    return lax.dot_general(x, y, ((axes, axes), ((), ())))


def text(f, *args) -> str:
    return tb.jit(f).lower(*args).as_text()


@pytest.mark.parametrize(
    ("x_shape", "y_shape", "n"),
    [
        ((1024, 128), (1024, 64), 1),
        ((16, 700), (16, 801), 1),
        ((8193, 33), (8193, 65), 1),
        ((40000, 16), (40000, 17), 1),
        ((1023, 129), (1023, 77), 1),
        ((30, 20, 9, 14), (30, 20, 130), 2),
    ],
)
def test_values(x_shape: tuple[int, ...], y_shape: tuple[int, ...], n: int) -> None:
    """As NumPy has them in 64 bits, of any rank, also in loops."""
    x, y = normal(*x_shape), normal(*y_shape, seed=1)
    expected = np.tensordot(x.astype(np.float64), y, ((*[range(n)],) * 2))

    assert text(lambda x, y: leading(x, y, n), x, y).count(MATMUL) == 1
    tolerance = 1e-5 * np.prod(x_shape[:n]) ** 0.5
    np.testing.assert_allclose(
        tb.jit(leading, static_argnums=2)(x, y, n), expected, 1e-4, tolerance
    )
    twice = tb.jit(lambda x, y: lax.map(lambda s: leading(x * s, y, n), tnp.arange(2.0)))(x, y)
    np.testing.assert_allclose(twice[1], expected, 1e-4, tolerance)


@pytest.mark.usefixtures("every_product")
@pytest.mark.parametrize("x_summed", [(0, 1), (2, 3), (1,)])
@pytest.mark.parametrize("y_summed", [(0, 1), (1, 2), (0,)])
def test_products_of_all_kinds(
    x_summed: tuple[int, ...], y_summed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over leading or trailing axes of either operand; axes between are XLA's."""
    monkeypatch.setattr(by_library, "_LEAST_WORK", 1)
    n = min(len(x_summed), len(y_summed))
    x_summed, y_summed = x_summed[:n], y_summed[:n]
    x_sizes, y_sizes = [40, 30, 20, 10], [50, 60, 70]
    for i, j, size in zip(x_summed, y_summed, (16, 18), strict=False):
        x_sizes[i] = y_sizes[j] = size
    x, y = normal(*x_sizes), normal(*y_sizes, seed=1)
    numbers = (x_summed, y_summed), ((), ())
    expected = np.tensordot(x.astype(np.float64), y, (x_summed, y_summed))
    f = lambda x, y: lax.dot_general(x, y, numbers)

    ends = [s[0] == 0 or s[-1] == a.ndim - 1 for s, a in ((x_summed, x), (y_summed, y))]
    assert text(f, x, y).count(MATMUL) == int(all(ends))
    np.testing.assert_allclose(tb.jit(f)(x, y), expected, 1e-4, 1e-3)
    # The sides exchanged: a product of the library in the other order.
    order = (*range(x.ndim - n, expected.ndim), *range(x.ndim - n))
    turned = tb.jit(lambda x, y: f(x, y).transpose(order))(x, y)
    np.testing.assert_allclose(turned, expected.transpose(order), 1e-4, 1e-3)


@pytest.mark.usefixtures("every_product")
def test_costs_of_products_of_all_kinds() -> None:
    """However the operands lie, and with one that is transposed, which XLA reads through."""
    x, y = normal(512, 384), normal(384, 256, seed=1)

    def flops(f, *args) -> float:
        return tb.jit(f).lower(*args).compile().cost_analysis()["flops"]

    assert MATMUL in text(lambda x, y: x @ y, x, y)
    assert flops(lambda x, y: x @ y, x, y) == 2 * 512 * 384 * 256
    by_rows = lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((), ())))
    assert flops(by_rows, x, y.T.copy()) == 2 * 512 * 384 * 256
    assert MATMUL not in text(lambda x, y: x @ y.T, x, y.T.copy())


def test_numbers_that_are_not_finite() -> None:
    """NaN and infinity reach what they are summed up in, and nothing else."""
    x, y = normal(64, 512), normal(64, 512, seed=1)
    x[3, 5], y[7, 9] = np.nan, np.inf

    np.testing.assert_array_equal(
        np.isfinite(tb.jit(leading)(x, y)), np.isfinite(x.T.astype(np.float64) @ y)
    )


def test_gradients_of_layers_are_not_transposed() -> None:
    """Weights as torch stores them, and as NumPy would: one call each, that writes the gradient."""
    x, w = normal(4, 128, 256), normal(192, 256, seed=1)
    by_torch = tb.grad(lambda w, x: ((x @ w.T) ** 2).sum())
    plain = tb.grad(lambda w, x: ((x @ w) ** 2).sum())
    flat = x.reshape(-1, 256).astype(np.float64)
    expected = 2 * (flat @ w.T).T @ flat

    for f, weights, want in ((by_torch, w, expected), (plain, w.T.copy(), expected.T)):
        program = text(f, weights, x)
        assert program.count(MATMUL) == 1
        assert "transpose" not in program[program.index(MATMUL) + len(MATMUL) :].split("\n", 1)[1]
        np.testing.assert_allclose(tb.jit(f)(weights, x), want, 1e-4, 1e-1)


def test_products_that_others_read_stay() -> None:
    """A product that is read beside its transpose is computed once."""
    x, y = normal(1024, 128), normal(1024, 64, seed=1)

    def both(x, y):
        product = leading(x, y)
        return product, product.T

    assert text(both, x, y).count(MATMUL) == 1
    product, turned = tb.jit(both)(x, y)
    np.testing.assert_array_equal(product, np.asarray(turned).T)


@pytest.mark.parametrize("turned", [False, True])
def test_algorithms_stay_with_xla(turned: bool) -> None:
    """An algorithm is a tuple, but no pair of precisions: nobody drops or turns it."""
    x, y = normal(1024, 128), normal(1024, 64, seed=1)
    algorithm = lax.DotAlgorithm("float32", "float32", "float32")

    def product(x, y):
        made = lax.dot_general(x, y, (((0,), (0,)), ((), ())), precision=algorithm)
        return made.T if turned else made

    program = text(product, x, y)
    assert MATMUL not in program
    assert "algorithm" in program
    expected = x.T.astype(np.float64) @ y
    np.testing.assert_allclose(
        tb.jit(product)(x, y), expected.T if turned else expected, 1e-4, 1e-2
    )


def test_where_it_is_not_called(tmp_path) -> None:
    """Small products, other dtypes, transposed operands; under options; where programs are kept."""
    x, y = normal(1024, 128), normal(1024, 64, seed=1)

    assert MATMUL not in text(leading, x[:512, :16], y[:512, :16])
    assert MATMUL not in text(lambda x, y: leading(x, y).astype("bfloat16"), *[
        tnp.asarray(a, "bfloat16") for a in (x, y)
    ])  # fmt: skip
    assert MATMUL not in text(lambda x, y: leading(x.T, y), x.T.copy(), y)
    with scope("platform_rules", False):
        assert MATMUL not in text(leading, x, y)
    tb.config.update("compilation_cache_dir", str(tmp_path))
    try:
        assert MATMUL not in text(lambda x, y: leading(x, y) + 1, x, y)
    finally:
        tb.config.update("compilation_cache_dir", None)
    assert MATMUL in text(leading, x, y)


def test_costs() -> None:
    """What XLA does not count of a call is added."""
    x, y = normal(1024, 128), normal(1024, 64, seed=1)
    costs = tb.jit(leading).lower(x, y).compile().cost_analysis()

    assert costs["flops"] == 2 * 1024 * 128 * 64
    assert costs["bytes accessed"] >= 4 * (1024 * 192 + 128 * 64)


def test_saved_executables() -> None:
    """What is saved has been compiled without the call."""
    x, y = normal(1024, 128), normal(1024, 64, seed=1)
    compiled = tb.jit(leading).lower(x, y).compile()
    loaded = saving.deserialize_and_load(*saving.serialize(compiled))

    np.testing.assert_allclose(loaded(x, y), compiled(x, y), 1e-4, 1e-3)


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call takes no temporary memory in XLA's plan."""
    monkeypatch.setattr(by_library, "_LEAST_WORK", 1)
    x, y = normal(512, 96), normal(512, 160, seed=1)
    memory = tb.jit(leading).lower(x, y).compile().memory_analysis()

    assert memory.temp_size_in_bytes == 0
