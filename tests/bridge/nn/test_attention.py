"""Attention by scaled products, all scores at once and by blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import tracebridge as tb
import tracebridge.nn as nn
from tests.quick_compiles import check_grads
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.config.scopes import scope
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.kernels.machine import is_there, n_threads
from tracebridge.nn import _blocks
from tracebridge.testing import assert_allclose, check_rules

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def arrays() -> tuple[Any, ...]:
    """Queries with four heads, keys and values with two."""
    random = np.random.default_rng(1)
    shapes = (2, 5, 4, 8), (2, 5, 2, 8), (2, 5, 2, 8)
    return tuple([random.normal(size=s).astype(np.float32) for s in shapes])


def by_loop(q: Any, k: Any, v: Any, bias: Any = 0.0, allowed: Any = True, scale: Any = None) -> Any:
    """Attention of one head after the other."""
    batch, t, n, h = q.shape
    out = np.zeros(q.shape)
    shape = (batch, n, t, k.shape[1])
    bias, allowed = np.broadcast_to(bias, shape), np.broadcast_to(allowed, shape)
    for i in range(batch):
        for head in range(n):
            g = head * k.shape[2] // n
            logits = q[i, :, head].astype(np.float64) @ k[i, :, g].T
            logits = logits * (scale or 1 / np.sqrt(h)) + bias[i, head]
            weights = special.softmax(np.where(allowed[i, head], logits, -1e38), axis=-1)
            out[i, :, head] = weights @ v[i, :, g]
    return out


ROW, COLUMN = np.arange(5)[:, None], np.arange(5)[None]
LENGTHS = np.array([2, 4], np.int32)
SEEN = (np.arange(5) < LENGTHS[:, None])[:, None, None, :]
ATTENTION: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "scaled": ({"scale": 0.3}, {"scale": 0.3}),
    "biased": ({"bias": X[:1, :1, None, None]}, {"bias": X[:1, :1, None, None]}),
    "masked": ({"mask": ROW != COLUMN}, {"allowed": ROW != COLUMN}),
    "causal": ({"is_causal": True}, {"allowed": COLUMN <= ROW}),
    "window": ({"local_window_size": 1}, {"allowed": abs(ROW - COLUMN) <= 1}),
    "left_window": ({"local_window_size": (2, 0)},
                    {"allowed": (COLUMN <= ROW) & (ROW <= COLUMN + 2)}),
    "lengths": ({"key_value_seq_lengths": LENGTHS}, {"allowed": SEEN}),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_agrees_with_a_loop(name: str) -> None:
    """Heads in groups, bias, masks, causal and local ones, lengths."""
    q, k, v = arrays()
    options, wanted = ATTENTION[name]
    out = nn.dot_product_attention(q, k, v, **options)

    np.testing.assert_allclose(np.asarray(out), by_loop(q, k, v, **wanted), rtol=1e-4, atol=1e-5)


def test_attention_rules_and_padding() -> None:
    """Derivatives of all three, no NaN in rows without keys; padded queries give 0."""
    q, k, v = [a[:1, :3, :, :2] for a in arrays()]
    check_rules(lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True), q, k, v, order=1)
    zero = np.array([0], np.int32)
    out, pullback = tb.vjp(
        lambda q: nn.dot_product_attention(q, k, v, query_seq_lengths=zero + 2,
                                           key_value_seq_lengths=zero), q,
    )  # fmt: skip

    assert float(abs(out[:, 2:]).sum()) == 0
    assert np.isfinite(np.asarray(pullback(out)[0])).all()


def test_attention_without_batch_and_residuals() -> None:
    """Three axes are one element of a batch; the residual is the log of the sums."""
    q, k, v = arrays()
    out, residual = nn.dot_product_attention(q[0], k[0], v[0], return_residual=True)

    assert out.shape == q[0].shape
    logits = np.einsum("tnh,snh->tns", q[0], np.repeat(k[0], 2, axis=1)) / np.sqrt(8)
    assert_allclose(np.asarray(residual), special.logsumexp(logits, axis=-1), rtol=1e-4, atol=1e-5)
    half = nn.dot_product_attention(*[tb.numpy.asarray(a, "bfloat16") for a in (q, k, v)])
    assert half.dtype == "bfloat16"


def test_attention_says_what_is_wrong() -> None:
    """Each mistake has its class."""
    q, k, v = arrays()
    wrong: list[tuple[Any, Any]] = [
        (RankError, lambda: nn.dot_product_attention(q[0, 0], k, v)),
        (ShapeMismatchError, lambda: nn.dot_product_attention(q, k, v[:, :3])),
        (ShapeMismatchError, lambda: nn.dot_product_attention(q[:, :, :3], k, v)),
        (DtypeMismatchError, lambda: nn.dot_product_attention(q, k, v.astype(np.float16))),
        (DtypeMismatchError, lambda: nn.dot_product_attention(q, k, v, mask=np.ones((5, 5)))),
        (ArgumentValueError, lambda: nn.dot_product_attention(q, k, v, implementation="fast")),
    ]
    for kind, call in wrong:
        with pytest.raises(kind, match="dot_product_attention"):
            call()


# How many scores are a block, and how few queries: of the arrays above one element of the batch
# has 100, one head of the keys 50, one query of both of its heads 10.
BLOCKS = {
    "batches": (200, 1),
    "batch": (100, 1),
    "heads": (50, 1),
    "queries": (20, 2),
    "query": (10, 1),
    "kernels of one query": (0, 1),
    "kernels of some queries": (25, 1),
}


@pytest.fixture(params=BLOCKS)
def by_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few scores."""
    small_blocks(monkeypatch, *BLOCKS[request.param], kernels="kernels" in request.param)


def small_blocks(patch: pytest.MonkeyPatch, block: int, rows: int, kernels: bool = False) -> None:
    """Blocks of so many scores; ``kernels``: of the queries of all heads at a time."""
    patch.setattr(_blocks, "_AT_ONCE", 0)
    patch.setattr(_blocks, "_HEAD", 0)
    patch.setattr(_blocks, "_PART_OF_HEAD" if kernels else "_BLOCK", block)
    patch.setattr(_blocks, "_ROWS", rows)
    patch.setattr(_blocks, "_FEWEST_CAUSAL", 2)
    patch.setattr(_blocks, "_CAUSAL_ROWS", 1)
    patch.setattr(_blocks, "_are_kernels", lambda *_: kernels)


@pytest.mark.usefixtures("by_blocks")
@pytest.mark.parametrize("name", ATTENTION)
def test_blocks_agree_with_a_loop(name: str) -> None:
    """Blocks change nothing, whatever is asked for."""
    q, k, v = arrays()
    options, wanted = ATTENTION[name]
    out = tb.jit(lambda q, k, v: nn.dot_product_attention(q, k, v, **options))(q, k, v)

    np.testing.assert_allclose(np.asarray(out), by_loop(q, k, v, **wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("by_blocks")
@pytest.mark.parametrize("shape", [(2, 4, 5, 5), (1, 4, 5, 1), (2, 1, 1, 5), (1, 1, 5, 5)], ids=str)
def test_blocks_of_a_bias(shape: tuple[int, ...]) -> None:
    """Values and derivatives with a bias that is shared along some axes, residuals, lengths."""
    q, k, v = arrays()
    bias = np.random.default_rng(2).normal(size=shape).astype(np.float32)

    def attend(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return nn.dot_product_attention(
            q, k, v, bias, is_causal=True, query_seq_lengths=LENGTHS, return_residual=True
        )

    here = (np.arange(5) < LENGTHS[:, None])[:, :, None, None]
    out, residual = attend(q, k, v, bias)
    wanted = by_loop(q, k, v, bias, COLUMN <= ROW) * here

    assert_allclose(np.asarray(out), wanted, rtol=1e-4, atol=1e-5)
    assert residual.shape == (2, 5, 4)
    check_grads(lambda *xs: attend(*xs)[0], (q, k, v, bias), order=1, rtol=2e-2, atol=2e-2)


def attended(q: Any) -> Any:
    """A number from attention of queries to themselves."""
    return (nn.dot_product_attention(q, q, q, is_causal=True) ** 2).sum()


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("block", [200, 50, 10])
def test_second_derivatives_of_blocks(
    monkeypatch: pytest.MonkeyPatch, block: int, kernels: bool
) -> None:
    """Products with the Hessian, tangents and batches are those of all scores at once."""
    q = arrays()[0]

    def both(q: Any, t: Any) -> Any:
        value, tangent = tb.jvp(attended, (q,), (t,))
        product = tb.jvp(tb.grad(attended), (q,), (t,))[1]
        return value, tangent, product, tb.vmap(attended)(q[:, None])

    wanted = tb.jit(both)(q, q[::-1])
    small_blocks(monkeypatch, block, 1, kernels)
    found = tb.jit(lambda q, t: both(q, t))(q, q[::-1])

    for x, y in zip(found, wanted, strict=True):
        assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1024, 4, 16), (16, 256, 4, 16)], ids=str)
def test_long_sequences_do_not_hold_their_scores(shape: tuple[int, ...]) -> None:
    """Value and gradients need less memory than the scores would take."""
    batch, n, heads, _ = shape
    q = np.zeros(shape, np.float32)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (nn.dot_product_attention(q, k, v) ** 2).sum()

    compiled = tb.jit(tb.value_and_grad(loss, (0, 1, 2))).lower(q, q, q).compile()
    scores = 4 * batch * heads * n * n

    assert compiled.memory_analysis().temp_size_in_bytes < 0.8 * scores


def test_bias_and_mask_fit_the_scores() -> None:
    """Axes of another size are refused."""
    q, k, v = arrays()
    for name, given in (("bias", np.ones((2, 5, 5))), ("mask", np.ones((1, 4, 5, 2), bool))):
        with pytest.raises(ShapeMismatchError, match=name):
            nn.dot_product_attention(q, k, v, **{name: given})


@pytest.mark.skipif(not is_there(), reason="llvmlite is not installed")
@pytest.mark.parametrize(("t", "s", "is_causal"), [(800, 800, True), (736, 720, False)])
def test_long_sequences_are_one_kernel_each_way(t: int, s: int, is_causal: bool) -> None:
    """Queries after queries, also where gradients of keys and values are sums over them.

    A causal mask cuts them into parts, each with the keys that it sees.
    """
    random = np.random.default_rng(2)
    n = max(2, n_threads())
    q, k, v, g = [random.normal(size=(1, m, n, 8)).astype(np.float32) for m in (t, s, s, t)]

    def attend(q: Any, k: Any, v: Any) -> Any:
        return nn.dot_product_attention(q, k, v, is_causal=is_causal)

    def backward(q: Any, k: Any, v: Any, g: Any) -> Any:
        return tb.vjp(attend, q, k, v)[1](g)

    allowed = np.tril(np.ones((t, s), np.bool_)) if is_causal else True
    assert_allclose(by_loop(q, k, v, allowed=allowed), attend(q, k, v), rtol=1e-5, atol=1e-5)
    parts = _blocks._CAUSAL_PARTS if is_causal else 1
    for f, args in ((attend, (q, k, v)), (backward, (q, k, v, g))):
        assert tb.jit(f).lower(*args).as_text().count(f"@{KERNEL}") == parts
    found = tb.jit(backward)(q, k, v, g)
    with scope("platform_rules", False):
        wanted = tb.jit(lambda *xs: backward(*xs))(q, k, v, g)
    for a, b in zip(wanted, found, strict=True):
        assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("t", "s"), [(900, 900), (700, 1700), (1700, 700)])
def test_hidden_keys_are_not_read(t: int, s: int) -> None:
    """Queries of a part do not see keys after the part, be these NaN; no weight goes to them."""
    random = np.random.default_rng(4)
    q, k, v, g = [random.normal(size=(1, m, 2, 8)).astype(np.float32) for m in (t, s, s, t)]
    size = -(-t // (_blocks._CAUSAL_PARTS * 32)) * 32

    def attend(q: Any, k: Any, v: Any) -> Any:
        return nn.dot_product_attention(q, k, v, is_causal=True)

    out = attend(q, k, v)
    spoilt = [x.copy() for x in (k, v)]
    for x in spoilt:
        x[:, size:] = np.nan
    assert_allclose(
        by_loop(q, k, v, allowed=np.tril(np.ones((t, s), bool))), out, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(attend(q, *spoilt)[:, :size], out[:, :size])
    mask = np.tril(np.ones((t, s), bool))[None, None]
    found = tb.vjp(attend, q, k, v)[1](g)
    wanted = tb.vjp(lambda q, k, v: nn.dot_product_attention(q, k, v, mask=mask), q, k, v)[1](g)
    for a, b in zip(wanted, found, strict=True):
        assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_which_sequences_are_done_by_rows() -> None:
    """Those that some queries divide, without biases and shared keys, and not too many scores."""

    def by_rows(t: int, s: int, extra: Any = None, **sizes: int) -> bool:
        operands = _blocks.Operands(None, None, None, (extra,), None, None)
        return _blocks._are_by_rows(operands, {"b": 1, "k": 8, "g": 1, "t": t, "s": s, **sizes})

    assert by_rows(2048, 2048)
    assert by_rows(1000, 1000, np.ones((1, 1, 1000, 1000), np.bool_))
    assert not by_rows(1000, 1000, np.ones((1, 1, 1000, 1000), np.float32))
    assert not by_rows(2039, 1024)
    assert not by_rows(4096, 2048)
    assert not by_rows(2048, 2048, b=2)
    assert not by_rows(1024, 1024, g=2)


def test_no_heads() -> None:
    """Without heads the result is empty; queries with heads need keys with some."""
    empty = np.ones((2, 3, 0, 4), np.float32)

    assert (2, 3, 0, 4) == tb.nn.dot_product_attention(empty, empty, empty).shape
    for more in ({"bias": np.ones((2, 0, 3, 3), "f4")}, {"mask": np.ones((2, 0, 3, 3), bool)}):
        assert (2, 3, 0, 4) == tb.nn.dot_product_attention(empty, empty, empty, **more).shape
    with pytest.raises(ShapeMismatchError, match="heads"):
        tb.nn.dot_product_attention(np.ones((2, 3, 2, 4), np.float32), empty, empty)


def test_heads_of_no_size() -> None:
    """Heads of size 0 give results of size 0, with a scale of their own."""
    empty = np.ones((2, 3, 2, 0), np.float32)

    assert (2, 3, 2, 0) == tb.nn.dot_product_attention(empty, empty, empty).shape
