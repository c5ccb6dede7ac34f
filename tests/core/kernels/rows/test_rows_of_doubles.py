"""Kernels over rows of float64: the numbers of the plain forms, and what else is theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import is_as_plain, kernels_in, needs_kernels, texts_of
from tracebridge import lax, nn
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.config.scopes import scope
from tracebridge.torch import wrap

pytestmark = needs_kernels

RNG = np.random.default_rng(0)
TOLERANCE = 1e-14


@pytest.fixture(autouse=True)
def with_doubles() -> Iterator[None]:
    """Float64 stays what it is."""
    with scope("enable_x64", True):
        yield


def array(*shape: int) -> Any:
    """Normal numbers."""
    return RNG.standard_normal(shape)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    """Over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / tnp.sqrt(variance + 1e-5) * scale + bias


def rms_norm(x: Any, scale: Any) -> Any:
    """Over the last axis."""
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def cross_entropy(x: Any, labels: Any) -> Any:
    """Of the classes that are the last axis."""
    return -tnp.take_along_axis(nn.log_softmax(x), labels[:, None], -1)[:, 0]


def batch_norm(x: Any, scale: Any) -> Any:
    """Over all axes but that of channels."""
    centred = x - x.mean((0, 2, 3), keepdims=True)
    variance = (centred**2).mean((0, 2, 3), keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * scale[:, None, None]


def group_norm(x: Any, scale: Any) -> Any:
    """Over groups of four channels, each of which has a scale."""
    n, channels, height, width = x.shape
    rows = x.reshape(n, channels // 4, 4, height, width)
    centred = rows - rows.mean((2, 3, 4), keepdims=True)
    variance = (centred**2).mean((2, 3, 4), keepdims=True)
    return (centred / tnp.sqrt(variance + 1e-5)).reshape(x.shape) * scale[:, None, None]


def masked_softmax(x: Any) -> Any:
    """Of the places up to that of the row."""
    rows = lax.broadcasted_iota(np.int32, x.shape, 0)
    columns = lax.broadcasted_iota(np.int32, x.shape, 1)
    return nn.softmax(tnp.where(columns <= rows, x * (1 / 3), -np.inf))


LABELS = RNG.integers(0, 100, 512)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (nn.softmax, (array(512, 100),)),
    "softmax, odd rows": (nn.softmax, (array(31, 29, 77),)),
    "softmax, one vector a row": (nn.softmax, (array(4096, 16),)),
    "softmax, rows of 17": (nn.softmax, (array(2048, 17),)),
    "softmax, shared by threads": (nn.softmax, (array(1500, 333),)),
    "softmax, large": (nn.softmax, (array(1100, 1024),)),
    "softmax over channels": (lambda x: nn.softmax(x, axis=1), (array(5, 30, 19, 21),)),
    "softmax of some places": (masked_softmax, (array(300, 256),)),
    "log_softmax": (nn.log_softmax, (array(300, 128),)),
    "logsumexp": (lambda x: nn.logsumexp(x, -1), (array(300, 128),)),
    "layer norm": (layer_norm, (array(600, 64), array(64), array(64))),
    "layer norm, odd rows": (layer_norm, (array(1200, 71), array(71), array(71))),
    "RMS norm": (rms_norm, (array(512, 160), array(160))),
    "cross entropy": (lambda x: cross_entropy(x, LABELS), (array(512, 100),)),
    "batch norm": (batch_norm, (array(8, 6, 16, 24), array(6))),
    "group norm": (group_norm, (array(3, 8, 40, 40), array(8))),
}


def gradients(f: Any, *args: Any) -> Any:
    """Of a weighted sum of the result."""

    def total(*xs: Any) -> Any:
        y = f(*xs)
        weights = tnp.cos(tnp.arange(y.size, dtype=y.dtype)).reshape(y.shape) + 1.5
        return (y * weights).sum()

    return tb.grad(total, range(len(args)))(*args)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_the_plain_form(name: str) -> None:
    """And there is a kernel."""
    f, args = PROGRAMS[name]
    assert kernels_in(f, *args) >= 1
    is_as_plain(f, *args, tolerance=TOLERANCE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_the_plain_form(name: str) -> None:
    """With sums over rows, over columns, and over parts of rows."""
    f, args = PROGRAMS[name]
    assert kernels_in(lambda *xs: gradients(f, *xs), *args) >= 1
    is_as_plain(lambda *xs: gradients(f, *xs), *args, tolerance=4 * TOLERANCE)


@pytest.mark.parametrize("name", ["softmax", "layer norm, odd rows", "cross entropy"])
def test_second_order_and_batches(name: str) -> None:
    """A product with the Hessian, and the function of each array of a batch."""
    f, args = PROGRAMS[name]

    def product(*xs: Any) -> Any:
        return tb.jvp(lambda x: gradients(f, x, *xs[1:])[0], (xs[0],), (tnp.cos(xs[0]),))[1]

    is_as_plain(product, *args, tolerance=1e-13)
    batch = [np.stack([x, 2 * x]) for x in args]
    if name != "cross entropy":
        is_as_plain(tb.vmap(f), *batch, tolerance=TOLERANCE)
        is_as_plain(tb.vmap(lambda *xs: gradients(f, *xs)), *batch, tolerance=1e-13)


@pytest.mark.parametrize("name", ["softmax", "softmax, rows of 17", "log_softmax", "layer norm"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-310])
def test_rows_with_special_numbers(name: str, number: float) -> None:
    """They are seen in the rows where they are, at any place, and nowhere else."""
    f, (x, *others) = PROGRAMS[name]
    x = x.copy()
    for i in range(40):
        x[3 * i, i % x.shape[1]] = number
    x[1] = number
    is_as_plain(f, x, *others, tolerance=TOLERANCE)


def test_arrays_without_elements() -> None:
    """There is nothing to do."""
    for shape in ((0, 100), (100, 0)):
        y = tb.jit(lambda x: x - x.sum(-1, keepdims=True))(np.zeros(shape))
        assert (y.shape, y.dtype) == (shape, np.float64)


@pytest.mark.parametrize(
    ("function", "domain"),
    [("exp", (-708.0, 709.0)), ("exp", (-1.0, 1.0)), ("log", (0.01, 30.0)), ("log", (0.7, 1.42))],
)
@pytest.mark.parametrize("along", [True, False], ids=["vectors", "numbers of rows"])
def test_digits(function: str, domain: tuple[float, float], along: bool) -> None:
    """Within 1.1 ulp of numbers with more digits."""
    x = RNG.uniform(*domain, (1024, 64))
    if function == "log":
        x[::2] = np.exp(RNG.uniform(-700, 700, (512, 64)))

    def f(x: Any) -> Any:
        greatest = x.max(-1, keepdims=True)
        return getattr(lax, function)(x if along else greatest), x - greatest

    y = np.asarray(tb.jit(f)(x)[0])
    exact = getattr(np, function)(np.longdouble(x if along else x.max(-1, keepdims=True)))
    assert kernels_in(f, x) == 1
    assert (np.abs(y - exact) <= 1.1 * np.spacing(np.abs(y))).all()


@pytest.mark.parametrize("function", ["exp", "log"])
def test_ends_of_functions(function: str) -> None:
    """Infinities, NaN, zeros, and where results leave the numbers."""
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 709.8, -708.0, 720.0, -760.0, 1e308]
    x = np.resize(np.array(ends), (1024, 65))

    def f(x: Any) -> Any:
        return getattr(lax, function)(x), x - x.min(-1, keepdims=True)

    with np.errstate(all="ignore"):
        expected = getattr(np, function)(x)
    y = np.asarray(tb.jit(f)(x)[0])
    np.testing.assert_allclose(y, expected, rtol=4e-16)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(y[zeros]), np.signbit(expected[zeros]))


def test_functions_without_a_form() -> None:
    """They are XLA's, between kernels."""

    def f(x: Any) -> Any:
        y = nn.softmax(x)
        z = lax.erf(y) + tnp.tanh(x) * nn.sigmoid(x) + tnp.sin(x) + tnp.log1p(y) + tnp.expm1(y)
        return z - z.mean(-1, keepdims=True)

    x = array(512, 100)
    assert kernels_in(f, x) >= 1
    is_as_plain(f, x, tolerance=TOLERANCE)
    is_as_plain(lambda x: gradients(f, x), x, tolerance=1e-13)


@pytest.mark.parametrize("first", [np.float64, np.float32, np.float16, np.int32, np.int64, bool])
def test_programs_of_several_types(first: Any) -> None:
    """Each array is of its own type before, in and after a kernel of float64."""
    x, y = array(512, 100), (3 * array(512, 100)).astype(np.int32).astype(first)

    def f(x: Any, y: Any) -> Any:
        wide = y.astype(np.float64)
        z = nn.softmax(x * (1 / 7)) + wide / (1 + tnp.abs(wide).max(-1, keepdims=True))
        narrow = z.astype(np.float32)
        centred = narrow - narrow.mean(-1, keepdims=True)
        return z, centred * lax.rsqrt((centred**2).mean(-1, keepdims=True)), z.astype(first), y + y

    compiled = tb.jit(f)(x, y)
    with scope("platform_rules", False):
        plain = tb.jit(lambda *xs: f(*xs))(x, y)
    for a, b, tolerance in zip(compiled, plain, (1e-14, 4e-6, 2e-3, 0), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance
        )


def test_types_share_no_kernel() -> None:
    """Equal programs over equal shapes, of numbers of other types."""
    x = array(512, 100)
    names: list[set[str]] = []
    for dtype in (np.float32, np.float64):
        text = tb.jit(nn.softmax).lower(x.astype(dtype)).as_text()
        names.append({word.split("(")[0] for word in text.split() if KERNEL in word})
    assert names[0]
    assert names[0].isdisjoint(names[1])
    (text,) = texts_of(lambda x: nn.softmax(x), x)
    assert "float" not in text
    assert "double" in text


def test_batches_of_all_sizes_share_one() -> None:
    """The number of rows stands in the call."""
    texts = [texts_of(nn.softmax, array(n, 144)) for n in (512, 700)]
    assert texts[0] == texts[1]


def test_numbers_have_all_digits() -> None:
    """Those that stand in the program, whichever it is compiled for first."""
    x = array(512, 100)
    for number in (1 / 3, 1 / 7, 1e-300, 1e300):

        def f(x: Any, number: float = number) -> Any:
            return (x - x.max(-1, keepdims=True)) * number

        expected = (x - x.max(-1, keepdims=True)) * number
        np.testing.assert_array_equal(np.asarray(tb.jit(f)(x)), expected)


@pytest.mark.parametrize("size", [1e-302, 1e-200, 1.0, 1e200, 1e306])
def test_divisors_of_all_sizes(size: float) -> None:
    """Where an inverse has not all digits, or is none, elements are divided."""
    x = array(512, 100) * size

    def f(x: Any) -> Any:
        return x / tnp.abs(x).max(-1, keepdims=True)

    expected = x / np.abs(x).max(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(tb.jit(f)(x)), expected, rtol=4e-16)


def test_through_torch() -> None:
    """Tensors of float64, forward and backward."""
    x = torch.from_numpy(array(512, 96)).requires_grad_()
    scale, bias = (torch.from_numpy(array(96)).requires_grad_() for _ in range(2))
    ours = wrap(layer_norm)(x, scale, bias)
    theirs = torch.nn.functional.layer_norm(x, (96,), scale, bias)
    weights = torch.from_numpy(array(512, 96))
    found = torch.autograd.grad((ours * weights).sum(), (x, scale, bias))
    expected = torch.autograd.grad((theirs * weights).sum(), (x, scale, bias))
    for a, b in zip((ours, *found), (theirs, *expected), strict=True):
        assert a.dtype == torch.float64
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
