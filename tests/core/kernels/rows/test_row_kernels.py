"""Kernels over rows: where programs get one, the same numbers as XLA's, and what else they owe."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import needs_kernels, texts_of
from tracebridge import export, nn
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.rewrites import rows

pytestmark = needs_kernels

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    """Normal numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def kernels_in(f: Any, *args: Any) -> int:
    """How many kernels the program of a function calls."""
    return tb.jit(f).lower(*args).as_text().count(f"@{KERNEL}")


def plainly(f: Any, *args: Any) -> Any:
    """The results without rules for speed."""
    with scope("platform_rules", False):
        return tb.jit(f)(*args)


def check(f: Any, *args: Any, kernels: int = 1, tolerance: float = 2e-6) -> None:
    """``f`` has so many kernels, and the numbers of its plain form."""
    assert kernels_in(f, *args) == kernels
    fast, plain = tb.tree.leaves(tb.jit(f)(*args)), tb.tree.leaves(plainly(f, *args))
    for a, b in zip(fast, plain, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.itemsize == 2:  # a step of the dtype, where it is rounded
            tolerance = 2 * float(tnp.finfo(b.dtype).eps)
        x, y = np.asarray(a.astype("f4")), np.asarray(b.astype("f4"))
        finite = np.abs(np.where(np.isfinite(y), y, 0)).max(initial=0)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * finite)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    """Over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / tnp.sqrt(variance + 1e-5) * scale + bias


def gradients(f: Any, *args: Any) -> Any:
    """Of a weighted sum of the result."""
    weights = np.cos(np.arange(args[0].size, dtype=np.float32)).reshape(args[0].shape)
    return tb.grad(lambda *a: (f(*a) * weights).sum(), range(len(args)))(*args)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (nn.softmax, (array(512, 100),)),
    "softmax, three axes, odd rows": (nn.softmax, (array(31, 29, 77),)),
    "softmax, one vector a row": (nn.softmax, (array(4096, 16),)),
    "softmax, rows of 17": (nn.softmax, (array(2048, 17),)),
    "log_softmax": (nn.log_softmax, (array(300, 128),)),
    "logsumexp": (lambda x: nn.logsumexp(x, -1), (array(300, 128),)),
    "gradient of softmax": (lambda x: gradients(nn.softmax, x), (array(300, 128),)),
    "layer norm": (layer_norm, (array(600, 64), array(64), array(64))),
    "gradients of layer norm": (
        lambda *a: gradients(layer_norm, *a),
        (array(600, 72), array(72), array(72)),
    ),
    "root mean squares": (
        lambda x, w: x * tb.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w,
        (array(400, 96), array(96)),
    ),
    "unit rows": (lambda x: x / tnp.linalg.norm(x, axis=-1, keepdims=True), (array(512, 64),)),
    "largest and smallest": (
        lambda x: (x - x.min(-1, keepdims=True)) / (x.max(-1) - x.min(-1))[:, None],
        (array(512, 64),),
    ),
    "masked": (
        lambda x, m: nn.softmax(tnp.where(m, x, -tnp.inf)),
        (array(3, 4, 64, 64), RNG.random((3, 1, 64, 64)) > 0.3),
    ),
    "a mask of rows and one of columns": (
        lambda x, r, c: nn.softmax(tnp.where(r[:, None] & c, x, -1e9)),
        (array(512, 64), RNG.random(512) > 0.3, RNG.random(64) > 0.3),
    ),
    "causal": (
        lambda x: nn.softmax(tnp.where(tnp.tri(64, dtype=bool), x, -tnp.inf)),
        (array(8, 64, 64),),
    ),
    "a number": (lambda x, t: nn.softmax(x / t), (array(512, 64), np.float32(3))),
    "numbers of rows from outside": (
        lambda x, t: x * t / (x * t).sum(-1, keepdims=True),
        (array(512, 64) + 9, np.exp(array(512, 1))),
    ),
    "an axis of size 1, taken away again": (
        lambda x: x - tb.lax.squeeze(x.max(-1, keepdims=True), (1,))[:, None] * 2,
        (array(512, 64),),
    ),
    "squares, powers, logistic": (
        lambda x: tb.lax.logistic(x) ** 3 / (1 + (x**2).sum(-1, keepdims=True) ** -0.5),
        (array(512, 64),),
    ),
    "mapped": (tb.vmap(nn.softmax), (array(16, 32, 64),)),
    "in a loop": (
        lambda x: tb.lax.scan(lambda c, _: (nn.softmax(c * 2), c.sum()), x, None, length=3),
        (array(512, 64),),
    ),
    "half precision in memory": (
        lambda x, w: layer_norm(x.astype("f4"), w.astype("f4"), 0).astype(x.dtype),
        (array(600, 72).astype(np.float16), array(72).astype(np.float16)),
    ),
    "bfloat16 in memory": (
        lambda x, w: layer_norm(x.astype("f4"), w.astype("f4"), 0).astype(x.dtype),
        (array(600, 72).astype(tnp.bfloat16), array(72).astype(tnp.bfloat16)),
    ),
    "sums of columns of several blocks": (
        lambda x: (nn.softmax(x), nn.softmax(x).sum(0)),
        (array(4001, 77),),
    ),
    "sums of columns, of two kinds": (
        lambda x: (nn.softmax(x).sum(0), (nn.softmax(x) * x).sum(0), nn.softmax(x).max(-1)),
        (array(1000, 65),),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_get_kernels_with_the_same_numbers(name: str) -> None:
    """One kernel for each, forward and backward."""
    f, args = PROGRAMS[name]
    check(f, *args, tolerance=4e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e37, 1e-42, 0.0])
def test_extreme_numbers(value: float) -> None:
    """They come out as from XLA, and stay in their rows."""
    x = array(512, 75)
    x[3], x[5, 74], x[6, 0], x[7, ::2] = value, value, value, value
    check(lambda x: (nn.softmax(x), x / abs(x).sum(-1, keepdims=True)), x)
    check(lambda x: (x - x.max(-1, keepdims=True), x.min(-1)), x)


def test_divisors_without_an_inverse() -> None:
    """Rows with divisors that are tiny, huge, infinite, zero or NaN are divided one by one."""
    x = array(512, 64)
    x[:5] = np.array([1e-37, 2e38, np.inf, 0, np.nan], np.float32)[:, None]

    def f(x: Any) -> Any:
        return x / x.max(-1, keepdims=True)

    assert kernels_in(f, x) == 1
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(tb.jit(f)(x), f(x), rtol=1e-6)


def test_rounding_to_half_precision() -> None:
    """To the nearest, of two the even one, with NaN and infinities; as XLA does."""
    bits = RNG.integers(0, 1 << 32, (1024, 64), np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x[0, :4] = [np.nan, np.inf, -np.inf, 3.4e38]

    def f(x: Any) -> Any:
        y = tnp.where(x.max(-1, keepdims=True) > 0, x, x)
        return y.astype(tnp.bfloat16), y.astype(tnp.float16), y.astype(tnp.float16).astype("f4")

    assert kernels_in(f, x) == 1
    for fast, plain in zip(tb.jit(f)(x), plainly(f, x), strict=True):
        np.testing.assert_array_equal(np.asarray(fast, np.float32), np.asarray(plain, np.float32))


def test_functions_are_exact() -> None:
    """The exponential, logarithm and logistic function of a kernel, in ulps of float32."""
    x = np.linspace(-104, 89, 1 << 17, dtype=np.float32).reshape(-1, 128)
    x[0, :6] = [0, -0.0, np.inf, -np.inf, np.nan, 1]

    def f(x: Any) -> Any:
        one = tnp.exp(x.min(-1, keepdims=True) * 0 + 0)
        one = tnp.where(one == 1, one, 1)
        return tnp.exp(x) * one, tnp.log(abs(x)) * one, tb.lax.logistic(x) * one

    assert kernels_in(f, x) == 1
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = np.exp(wide), np.log(np.abs(wide)), 1 / (1 + np.exp(-wide))
    for found, true, bound in zip(tb.jit(f)(x), exact, (1.01, 1.01, 2.5), strict=True):
        with np.errstate(all="ignore"):
            rounded = true.astype(np.float32)
        normal = np.isfinite(true) & (np.abs(rounded) >= np.finfo(np.float32).tiny)
        normal &= np.isfinite(rounded)
        errors = np.abs(np.asarray(found, np.float64)[normal] - true[normal])
        assert (errors / np.spacing(np.abs(rounded[normal]))).max() <= bound
        special = ~np.isfinite(rounded)
        np.testing.assert_array_equal(np.asarray(found)[special], rounded[special])


# which equations -------------------------------------------------------------------------------


def test_what_depends_on_a_kernel_is_not_in_it() -> None:
    """A member that reads what another made of the kernel's results begins a kernel of its own."""

    def f(x: Any) -> Any:
        y = nn.softmax(x)
        order = tnp.sort(y, axis=0)  # no member: needs the whole array
        return nn.softmax(order + y) + y

    check(f, array(512, 64), kernels=2)


def test_circles_through_several_groups() -> None:
    """Frames of two shapes that read results of each other in turns."""

    def f(x: Any, y: Any) -> Any:
        for _ in range(3):
            x = x / x.sum(-1, keepdims=True) + y.max()
            y = y / y.sum(-1, keepdims=True) + x.max()
        return x, y

    assert kernels_in(f, array(512, 64), array(64, 512)) > 1
    x, y = np.abs(array(512, 64)) + 1, np.abs(array(64, 512)) + 1
    for a, b in zip(tb.jit(f)(x, y), plainly(f, x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_square_frames() -> None:
    """Rows and columns of the same length are told apart."""

    def f(x: Any) -> Any:
        rows, columns = x.sum(-1), x.sum(0)
        return x - rows[:, None], x - rows, x - columns, x * columns[:, None], rows + columns

    x = array(256, 256)
    for a, b in zip(tb.jit(f)(x), plainly(f, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.sum(-1),
        lambda x: tnp.exp(x) @ x.T,
    ],
    ids=["one sum", "no sum"],
)
def test_what_is_no_gain_is_left(f: Any) -> None:
    """One pass is XLA's as well."""
    assert kernels_in(f, array(512, 64)) == 0


@pytest.mark.parametrize(
    "x",
    [array(4, 64), array(512, 64).astype(np.float16), array(4096, 9), array(2, 140_000)],
    ids=["small", "half precision", "short rows", "long rows"],
)
def test_other_arrays_are_left(x: Any) -> None:
    """What is too small, of another dtype, too short or too long."""
    assert kernels_in(lambda x: x - x.max(-1, keepdims=True), x) == 0


@pytest.mark.usefixtures("own_rewrites")
def test_without_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are XLA's alone."""
    monkeypatch.setattr(rows, "is_there", lambda: False)
    assert kernels_in(lambda x: nn.softmax(x + 1), array(512, 66)) == 0


def test_one_text_for_all_numbers_of_rows() -> None:
    """Batches of any size share the machine code."""

    assert (
        len({text for n in (200, 300, 1001) for text in texts_of(nn.softmax, array(n, 200))}) == 1
    )


# what programs owe -----------------------------------------------------------------------------


def test_exports_have_no_kernels() -> None:
    """Machine code of this process is for it alone."""
    exported = export.export(tb.jit(nn.softmax))(array(512, 64))
    assert KERNEL not in exported.mlir_module()


def test_saved_programs_have_no_kernels() -> None:
    """An executable in a file runs in another process."""
    from tracebridge.experimental import serialize_executable

    x = array(512, 64)
    compiled = tb.jit(nn.softmax).lower(x).compile()
    saved = serialize_executable.serialize(compiled)
    loaded = serialize_executable.deserialize_and_load(*saved)
    np.testing.assert_allclose(loaded(x), compiled(x), rtol=1e-6)
    assert KERNEL not in loaded.as_text()


CACHED = """
import sys, numpy as np, tracebridge as tb
from tracebridge import nn
tb.config.update("compilation_cache_dir", sys.argv[1])
tb.config.update("persistent_cache_min_compile_time_secs", 0.0)
x = np.random.default_rng(0).standard_normal((512, 64)).astype(np.float32)
print(float(nn.softmax(x * 3)[7, 7]), tb.jit(lambda x: nn.softmax(x * 3))(x)[7, 7])
"""


def test_the_persistent_cache_in_other_processes(tmp_path: Any) -> None:
    """They make the kernel anew and find it by the name in the executable."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", CACHED, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    assert list(tmp_path.iterdir())
    assert runs[0].stdout == runs[1].stdout != ""


def test_costs() -> None:
    """XLA's estimate has the share of kernels: a read and a write of the array."""
    costs = tb.jit(nn.softmax).lower(array(512, 64)).compile().cost_analysis()
    assert costs["bytes accessed"] == 2 * 4 * 512 * 64
    assert costs["transcendentals"] == 512 * 64
    assert costs["flops"] >= 4 * 512 * 64


def test_donated_arrays() -> None:
    """A result in the memory of the operand has the same numbers."""
    x = array(600, 64)
    expected = np.asarray(tb.jit(nn.softmax)(x))
    given = tb.device_put(x)
    found = tb.jit(nn.softmax, donate_argnums=0)(given)
    np.testing.assert_array_equal(found, expected)
    assert given.is_deleted()


def test_calls_from_several_threads() -> None:
    """Each call has memory of its own, and all end."""
    args = [array(4000, 100) for _ in range(4)]
    f = tb.jit(lambda x: (nn.softmax(x), nn.softmax(x).sum(0)))
    expected = [tb.tree.map(np.asarray, f(x)) for x in args]
    found: list[Any] = [None] * len(args)

    def run(k: int) -> None:
        for _ in range(30):
            found[k] = tb.tree.map(np.asarray, f(args[k]))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(args))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])


def test_subnormal_numbers_in_all_threads() -> None:
    """Every block treats them alike, whichever thread has it."""
    x = np.full((8192, 64), -100.0, np.float32)
    x[:, 0] = 0
    y = np.asarray(tb.jit(nn.softmax)(x))
    assert (y == y[:1]).all()
