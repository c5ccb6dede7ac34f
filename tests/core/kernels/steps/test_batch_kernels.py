"""Batches of small matrices as one kernel: where programs get one, and the plain form's numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import export, lax, nn
from tracebridge.core.config.scopes import scope
from tracebridge.core.kernels.steps import batch_kernel

pytestmark = needs_kernels

RNG = np.random.default_rng(0)
KERNEL = "tracebridge_kernel_"


def check(f: Callable[..., Any], *args: Any, kernels: int = 1) -> None:
    """``f`` has so many kernels, and the numbers of its plain form."""
    assert kernels_in(f, *args) == kernels
    is_as_plain(f, *args, tolerance=2e-6)


def swapped(x: Any) -> Any:
    """The transposes of matrices."""
    return tnp.swapaxes(x, -1, -2)


def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Mixed values, weighted by the softmax of products."""
    scores = q @ swapped(k) / 4
    return nn.softmax(scores if mask is None else tnp.where(mask, scores, -tnp.inf)) @ v


SIZES = [(2, 2, 2), (3, 5, 7), (8, 64, 32), (5, 33, 17), (64, 16, 16), (2, 100, 3), (40, 2, 130)]


@pytest.mark.parametrize("shape", SIZES)
def test_attention_and_its_gradient(shape: tuple[int, ...]) -> None:
    """Products of all sizes, maxima and sums of rows; transposes of products are views."""
    q, k, v, g = [array(*shape) for _ in range(4)]
    check(attention, q, k, v)
    check(lambda q, k, v, g: tb.vjp(attention, q, k, v)[1](g), q, k, v, g)
    check(lambda q, k, v, g: tb.jvp(attention, (q, k, v), (g, q, g)), q, k, v, g)


@pytest.mark.parametrize("shape", [(1, 4, 20, 8), (4, 1, 20, 8), (1, 3, 1, 20, 8)])
def test_axes_of_one_element_in_the_batch(shape: tuple[int, ...]) -> None:
    """One sequence, or one head: such axes come and go with reshapes within the kernel."""
    q, k, v, g = [array(*shape) for _ in range(4)]
    check(attention, q, k, v)
    check(lambda q, k, v, g: tb.vjp(attention, q, k, v)[1](g), q, k, v, g)
    check(lambda q, k, v: tnp.squeeze(attention(q, k, v) * 2), q, k, v)
    check(lambda q, k, v: tnp.squeeze(q @ swapped(k)) @ tnp.squeeze(v), q, k, v)


def test_axes_of_one_element_outside_of_a_kernel() -> None:
    """Operands whose order is changed, and which then get axes of one element, are not copied."""
    q, k, v = [array(320, 4, 8) for _ in range(3)]

    def f(q: Any, k: Any, v: Any) -> Any:
        q, k, v = [tnp.moveaxis(x, 1, 0)[None, :, None] for x in (q, k, v)]
        return attention(q, k, v)

    check(f, q, k, v)
    text = tb.jit(f).lower(q, k, v).as_text()
    assert "transpose" not in text
    check(lambda x: f(x, x, x), q)
    check(lambda x: f(x, x.reshape(8, 40, 4, 8).reshape(320, 4, 8) + 1, x), q)


@pytest.mark.parametrize("size", [250, 256, 331, 640])
def test_rows_of_one_element_of_the_batch(size: int) -> None:
    """More scores than the caches have are done by rows; 331 is a prime number."""
    q, k, v = [array(3, size, 8) for _ in range(3)]
    mask = RNG.random((size, size)) < 0.5
    check(attention, q, k, v)
    check(lambda q, k, v: attention(q, k, v, mask), q, k, v)
    check(lambda q, k, v: (attention(q, k, v), q @ swapped(k)), q, k, v)
    check(lambda q, k, v: attention(q, k, v) + q @ (swapped(k) @ v), q, k, v)


@pytest.mark.parametrize("shape", [(2, 256, 24), (3, 330, 17), (2, 384, 130), (2, 211, 8)])
def test_sums_over_the_rows_of_one_element(shape: tuple[int, ...]) -> None:
    """Gradients of keys and values are added up over blocks of queries, by one thread."""
    q, k, v, g = [array(*shape) for _ in range(4)]

    def backward(q: Any, k: Any, v: Any, g: Any) -> Any:
        return tb.vjp(attention, q, k, v)[1](g)

    check(backward, q, k, v, g)
    mask = np.tril(np.ones(shape[1:2] * 2, np.bool_))
    check(lambda *a: tb.vjp(lambda q, k, v: attention(q, k, v, mask), *a[:3])[1](a[3]), q, k, v, g)
    for first, last in ((0, 5), (-1, -1)):
        q[0, first], g[1, last, 0] = np.nan, np.inf
    is_as_plain(backward, q, k, v, g, tolerance=2e-6)


def test_what_is_summed_over_rows_and_read_again() -> None:
    """A sum that others read is none of the rows' own; one result that is there twice, neither."""
    x, y, z = array(2, 256, 256), array(2, 256, 24), array(2, 256, 256)

    def read(x: Any, y: Any, z: Any) -> Any:
        total = swapped(tnp.tanh(x * z)) @ y
        return tnp.exp(-x), x @ total, total

    is_as_plain(read, x, y, z, tolerance=2e-6)

    def twice(x: Any, y: Any, z: Any) -> Any:
        total = swapped(tnp.tanh(x * z)) @ y
        return total, tnp.exp(-x) @ y, total, swapped(swapped(y) @ tnp.tanh(x))

    is_as_plain(twice, x, y, z, tolerance=2e-6)


def test_blocks_of_sums_are_whole_elements() -> None:
    """Threads do not share the rows of one sum."""
    program = tb.make_jaxpr(lambda x, y: swapped(x) @ y)(array(1, 64, 512), array(1, 64, 64)).jaxpr
    for n, together in ((64, 8), (56, 7), (512, 512), (9, 3)):
        all_steps, per_block, n_blocks = batch_kernel._shares(n, together, program)
        assert all_steps == n
        assert per_block % together == 0
        assert (n_blocks - 1) * per_block < n <= n_blocks * per_block


@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-38, 1.0, 1e37, np.inf])
def test_rows_divided_by_one_number(size: float) -> None:
    """Divisors without an inverse of all digits, and those that are no numbers."""
    x = array(2, 40, 70)
    divisors = np.full((2, 40, 1), size, np.float32)
    divisors[:, 1::2] = -size
    divisors[0, 0], x[:, 3, :40] = np.nan, 0
    check(lambda x, y: ((x @ swapped(x)) / y) @ x, x, divisors)
    check(lambda x, y: (2 * (x @ swapped(x)) / y, x @ swapped(x) @ x), x, divisors)


@pytest.mark.parametrize(
    "mask", [(1, 1, 9), (4, 1, 9), (9, 9), (4, 9, 1), (2, 1, 1, 9), (2, 4, 9, 9), ()]
)
def test_masks_that_are_the_same_for_some_of_the_batch(mask: tuple[int, ...]) -> None:
    """They are broadcast within the kernel: no array of all scores is made for them."""
    q, k, v = [array(2, 4, 9, 5) for _ in range(3)]
    m = RNG.random(mask) < 0.7
    f = tb.jit(lambda q, k, v, m: attention(q, k, v, m))
    check(f, q, k, v, m)
    if mask:
        assert "tensor<2x4x9x9xi1>" not in f.lower(q, k, v, m).as_text() or mask == (2, 4, 9, 9)
    check(lambda q, k, v, m: tb.grad(lambda q: (attention(q, k, v, m) ** 2).sum())(q), q, k, v, m)


def test_rows_without_anything_to_mix() -> None:
    """NaN and infinities are those of the plain form."""
    q, k, v = [array(3, 6, 4) for _ in range(3)]
    mask = np.ones((3, 6, 6), bool)
    mask[1, 2] = False
    q[2, 1, 0], k[0, 3, 1] = np.nan, np.inf
    found = np.asarray(tb.jit(attention)(q, k, v, mask))
    with scope("platform_rules", False):
        expected = np.asarray(tb.jit(lambda *xs: attention(*xs))(q, k, v, mask))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("axes", [(0, 0, 0), (1, 2, 0), (2, 0, None), (None, 1, 1)])
def test_a_batch_that_is_not_the_first_axis(axes: tuple[int | None, ...]) -> None:
    """Elements of the batch are strided parts of the operands, or the same operand."""
    shapes = [[9, 5]] * 3
    args = []
    for shape, axis in zip(shapes, axes, strict=True):
        sizes = list(shape)
        if axis is not None:
            sizes.insert(axis, 6)
        args.append(array(*sizes))
    mapped = tb.vmap(attention, axes, out_axes=1)
    check(mapped, *args, kernels=kernels_in(mapped, *args))


def test_results_that_others_read_and_results_in_other_orders() -> None:
    """Everything that is read outside is a result."""

    def f(x: Any, y: Any) -> Any:
        a = x @ y
        b = tnp.tanh(a).transpose(2, 0, 1)
        c = b.transpose(1, 0, 2) @ a
        return a, b, c, a.sum((1, 2)), c.max(1), (c > 0), c[:, 1:3], tnp.cumsum(b, 0)

    check(f, array(4, 6, 6), array(4, 6, 6))


def test_one_operand_read_in_two_ways() -> None:
    """The batch is one axis of it here and another there."""
    x = array(5, 5, 5)
    check(lambda x: (x @ x) @ (x.transpose(1, 0, 2) @ x), x)
    check(lambda x: tnp.einsum("bij,jbk->bik", x, x) @ x, x)


def test_a_member_that_depends_on_a_group_through_something_outside() -> None:
    """It cannot be in that group; both are kernels if both have products enough."""

    def f(x: Any, y: Any) -> Any:
        a = tnp.tanh(x @ y) @ y
        b = tnp.sort(a, axis=1)
        return tnp.tanh(b @ y) @ a

    check(f, array(4, 6, 6), array(4, 6, 6), kernels=2)


def test_rows_of_the_batch_that_are_mixed() -> None:
    """Sums over the batch, and rolls of it, are outside."""

    def f(x: Any, y: Any) -> Any:
        a = x @ y @ x
        return a.sum(0), tnp.roll(a, 1, 0), a[:2], a.reshape(-1, 6)

    check(f, array(4, 6, 6), array(4, 6, 6))


def test_batches_of_two_axes_in_two_orders() -> None:
    """Products of batches whose axes come in another order are not the same batch."""
    x, y = array(3, 4, 5, 5), array(4, 3, 5, 5)
    check(lambda x, y: (x @ x) @ y.transpose(1, 0, 2, 3), x, y)
    check(lambda x, y: ((x @ x).transpose(1, 0, 2, 3) @ y) @ y, x, y)


def test_what_has_no_kernel() -> None:
    """Other dtypes, one product alone, no batch, symbolic sizes, exports."""
    x = array(4, 6, 6)
    assert kernels_in(lambda x: x @ x, x) == 0
    assert kernels_in(lambda x: (x[0] @ x[1]) @ x[2], x) == 0
    assert kernels_in(lambda x: (x @ x) @ x, x.astype(np.float16)) == 0
    with scope("enable_x64", True):
        assert kernels_in(lambda x: (x @ x) @ x, x.astype(np.float64)) == 0
    with scope("platform_rules", False):
        assert kernels_in(lambda x: (x @ x) @ x + 1, x) == 0
    exported = export.export(tb.jit(lambda x: (x @ x) @ x))(x)
    assert KERNEL not in exported.mlir_module()
    (b,) = export.symbolic_shape("b")
    symbolic = export.export(tb.jit(lambda x: (x @ x) @ x))(tb.ShapeDtypeStruct((b, 6, 6), x.dtype))
    assert KERNEL not in symbolic.mlir_module()


def test_equations_that_a_kernel_cannot_have_are_outside() -> None:
    """The others are a kernel nevertheless."""
    x = array(4, 6, 6)
    others: list[Callable[[Any], Any]] = [
        lambda s: (s > 0).sum(-1),
        lambda s: lax.pad(s, np.float32(0), ((0, 0, 0), (-1, 2, 0), (0, 0, 1))),
        lambda s: lax.pad(s, s[0, 0, 0], ((0, 0, 0), (1, 2, 0), (0, 0, 0))),
        lambda s: (s * 9).astype(np.int32) @ (s * 9).astype(np.int32),
        lambda s: s.prod(-1),
    ]
    for other in others:
        check(lambda x, f=other: (nn.softmax(x @ x) @ x, f(x @ x)), x)


def test_products_over_several_axes_in_other_orders() -> None:
    """Axes that do not lie one after another are copied first."""

    def f(x: Any) -> Any:
        a = (x @ x)[:, :, :, None] * x[:, :, None]
        return tnp.einsum("bijk,bjl->bikl", a, x), tnp.einsum("bijk,bkmj->bim", a, a)

    check(f, array(4, 6, 6))


def test_large_matrices_that_each_multiply_one_vector() -> None:
    """Their time is that of reading them: a kernel would save nothing."""
    for n, rows, kernels in ((128, 1, 0), (64, 1, 1), (128, 2, 1)):
        w, x = array(3, n, n) / 16, array(3, rows, n)
        check(lambda w, x: tnp.tanh(x @ w) @ w, w, x, kernels=kernels)
        if rows == 1:
            f = lambda w, x: tnp.einsum("bi,bij,bj->b", x[:, 0], w, x[:, 0])
            assert kernels_in(f, w, x) == kernels


def test_functions_between_products() -> None:
    """Small functions that are programs of their own are part of the kernel: ensembles."""
    w, b, v, x = array(4, 6, 7), array(4, 7), array(4, 7, 3), array(4, 5, 6)
    for activation in (nn.relu, nn.gelu, tb.jit(lambda x: nn.softmax(x - 1)), nn.silu):
        check(lambda w, b, v, x, f=activation: f(x @ w + b[:, None]) @ v, w, b, v, x)
    inner = tb.jit(lambda x: tnp.tanh(x @ x) @ x)
    y = array(4, 6, 6)
    assert kernels_in(lambda y: tnp.cumsum(inner(y), 1), y) == 1


def test_sums_of_outer_products_are_contractions() -> None:
    """Their squares are never made, so a kernel would do more."""
    x, y = array(9, 40), array(9, 30)

    def f(x: Any, y: Any) -> Any:
        outer = tnp.einsum("bi,bj->bij", x, y)
        return (outer**2).sum((1, 2)) + (tnp.einsum("bi,b->bi", x, y[:, 0]) ** 2).sum(1)

    check(f, x, y, kernels=0)


def test_matrices_of_one_element() -> None:
    """Their products are products of numbers, which need no kernel."""
    check(attention, *[array(2, 1, 1) for _ in range(3)], kernels=0)


def test_empty_batches() -> None:
    """Nothing is done for nothing."""
    for shape in ((0, 4, 4), (3, 0, 4), (3, 4, 0)):
        check(attention, *[array(*shape) for _ in range(3)], kernels=0)


@pytest.mark.parametrize("precision", ["highest", "default"])
def test_products_of_any_precision_are_those_of_the_plain_form(precision: str) -> None:
    """Numbers of kernels are float32 throughout: a precision changes nothing."""
    x = array(4, 6, 6)

    def f(x: Any) -> Any:
        return tnp.matmul(tnp.matmul(x, x, precision=precision), x, precision=precision)

    check(f, x, kernels=kernels_in(f, x))


def test_random_products_in_the_middle() -> None:
    """Numbers that are drawn outside are operands: dropout."""
    q, k, v = [array(4, 12, 8) for _ in range(3)]

    def f(key: Any, q: Any, k: Any, v: Any) -> Any:
        weights = nn.softmax(q @ swapped(k))
        kept = tb.random.bernoulli(key, 0.8, weights.shape)
        return tnp.where(kept, weights / 0.8, 0) @ v

    check(f, tb.random.key(0), q, k, v)


def test_blocks_of_the_batch_that_threads_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of all sizes give the same numbers, in several threads at once."""
    q, k, v = [array(2, 13, 9, 6) for _ in range(3)]
    expected = np.asarray(tb.jit(attention)(q, k, v))
    monkeypatch.setattr(batch_kernel, "_LEAST_SHARED", 0)
    for block in (1, 1000, 3000, 10**9):
        monkeypatch.setattr(batch_kernel, "_BLOCK", block)
        f = tb.jit(lambda *xs: attention(*xs))
        wrong: list[int] = []

        def run(f: Any = f, wrong: list[int] = wrong) -> None:
            for _ in range(20):
                if not np.array_equal(np.asarray(f(q, k, v)), expected):
                    wrong.append(1)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert wrong == []


def test_kernels_within_loops_and_branches() -> None:
    """Bodies have kernels of their own."""
    x = array(4, 6, 6)

    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] @ x @ x / 9), (0, x))[1]

    check(f, x)
    check(lambda x: lax.cond(x[0, 0, 0] > 0, lambda: x @ x @ x, lambda: x), x)


def test_second_derivatives() -> None:
    """Of attention, with respect to the queries."""
    q, k, v = [array(2, 3, 2) for _ in range(3)]
    hessian = tb.hessian(lambda q, k, v: (attention(q, k, v) ** 2).sum())
    found = tb.jit(hessian)(q, k, v)
    with scope("platform_rules", False):
        expected = tb.jit(lambda *xs: hessian(*xs))(q, k, v)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
