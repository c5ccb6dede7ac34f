"""Kernels write their results into parts of one array where a program joins them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import lax, nn

pytestmark = needs_kernels


def _joins_in(f: Any, *args: Any) -> int:
    """How many concatenations the compiled program makes."""
    text = tb.jit(f).lower(*args).compile().as_text()
    return sum(" concatenate(" in line for line in text.splitlines())


def _gradient(f: Any) -> Any:
    return lambda ct, *xs: tb.vjp(f, *xs)[1](ct)


def _is_one_kernel(f: Any, *args: Any, tolerance: float = 1e-6) -> None:
    assert kernels_in(f, *args) == 1
    assert _joins_in(f, *args) == 0
    is_as_plain(f, *args, tolerance=tolerance)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((300, 1024), -1), ((300, 514), -1), ((4, 32, 40, 50), 1), ((600, 300), 0), ((6, 8, 5000), 1)],
)
def test_gradient_of_gated_units(shape: tuple[int, ...], axis: int) -> None:
    """One kernel writes both halves of the gradient, whatever the axis."""
    x = array(*shape)
    f = lambda x: nn.glu(x, axis)

    _is_one_kernel(_gradient(f), array(*f(x).shape), x)


def test_gradients_of_slices() -> None:
    """Slices that are all of an array: their gradients, padded and added, are parts of one."""

    def cell(z: Any, c: Any) -> Any:
        i, f, g, o = [z[:, n * 256 : (n + 1) * 256] for n in range(4)]
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * tnp.tanh(g)
        return nn.sigmoid(o) * tnp.tanh(c)

    _is_one_kernel(_gradient(cell), array(300, 256), array(300, 1024), array(300, 256))


def test_softmax_of_three_parts() -> None:
    """Rows with reductions, whose parts are joined in another order, and one of them twice."""
    x, y = array(200, 400), array(200, 400)

    def program(x: Any, y: Any) -> Any:
        a = nn.softmax(x + y)
        b = x - x.mean(-1, keepdims=True) * a
        return tnp.concatenate([b, a, b], 1), a.max(1), tnp.concatenate([x * a, y * a], 0)

    _is_one_kernel(program, x, y, tolerance=3e-6)


def test_parts_of_other_shapes() -> None:
    """Results are reshaped before they are joined: heads beside each other, or a new axis."""
    x = array(4, 100, 8, 64)

    def program(x: Any) -> Any:
        a, b = nn.softmax(x), nn.softmax(2 * x) * x
        rows = tnp.concatenate([a.reshape(400, 512), b.reshape(400, 512)], 1)
        return rows, tnp.stack([a * x, b * x], 2)

    _is_one_kernel(program, x, tolerance=3e-6)


def test_parts_across_rows() -> None:
    """Channels of images, joined to more channels, with numbers of each row beside them."""
    x = array(3, 20, 30, 40)

    def program(x: Any) -> Any:
        a = nn.softmax(x, axis=1)
        return tnp.concatenate([x - a, a], 1), a.max(1)

    _is_one_kernel(program, x, tolerance=3e-6)


def test_flags_and_sixteen_bits() -> None:
    """Parts of arrays whose elements have one byte, or two."""
    x = array(150, 600)

    def program(x: Any) -> Any:
        a = nn.softmax(x)
        narrow = [y.astype(tnp.bfloat16) for y in (a, a * x)]
        return tnp.concatenate([a > 0.001, x > a], 0), tnp.concatenate(narrow, 1)

    _is_one_kernel(program, x, tolerance=1e-2)


def test_what_is_not_all_of_one_kernel_is_joined_outside() -> None:
    """Parts that others read or make, parts of few elements, and of another kernel."""
    x, y = array(200, 400), array(200, 400)

    def read_again(x: Any, y: Any) -> Any:
        a = nn.softmax(x)
        return tnp.concatenate([a, a * y], 1), a

    def with_others(x: Any, y: Any) -> Any:
        return tnp.concatenate([nn.softmax(x), y @ y.T, nn.softmax(y)[:, :100]], 1)

    def of_short_parts(x: Any, y: Any) -> Any:
        a, b = [nn.softmax(z).reshape(-1, 8) for z in (x, y)]
        return tnp.concatenate([a, b], 1)

    for f in (read_again, with_others, of_short_parts):
        is_as_plain(f, x, y, tolerance=3e-6)


def test_what_is_joined_is_read_again() -> None:
    """By the product of a layer, by elementwise equations, and by another kernel."""
    x, w = array(300, 512), array(1024, 64)

    def program(x: Any, w: Any) -> Any:
        a = nn.softmax(x)
        both = tnp.concatenate([a, x * a], 1)
        return both @ w, both + 1, nn.softmax(both)

    is_as_plain(program, x, w, tolerance=1e-5)
    is_as_plain(tb.grad(lambda x: tnp.sum(program(x, w)[2] ** 2)), x, tolerance=1e-4)


def test_special_numbers_stay_in_their_parts() -> None:
    x = array(200, 1024)
    x[3, 7], x[4, 700], x[5, 5], x[6, 900] = np.nan, np.inf, -np.inf, -0.0

    _is_one_kernel(_gradient(nn.glu), array(200, 512), x)


def test_batches_blocks_and_loops() -> None:
    """Under vmap, shared by threads, and in the steps of a loop."""
    x = array(5, 700, 512)
    ct = array(5, 700, 256)

    _is_one_kernel(tb.vmap(_gradient(nn.glu)), ct, x)
    is_as_plain(lambda ct, x: lax.map(lambda a: _gradient(nn.glu)(*a), (ct, x)), ct, x)
