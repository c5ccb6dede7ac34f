"""Large results that fill lines of the cache are written past it: they are the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import nn

pytestmark = needs_kernels

PIECES = 8  # of the first axis: so few elements stay in a cache


def _rotated(x: Any) -> Any:
    a, b = tnp.split(x, 2, -1)
    turn = tnp.arange(b.shape[-1], dtype=np.float32)
    return tnp.concatenate([a * turn - b, b * turn + a], -1)


def _gradient(x: Any) -> Any:
    return tb.vjp(nn.glu, x)[1](x[..., : x.shape[-1] // 2])


def _with_numbers(x: Any) -> Any:
    """A result of each kind: of the frame, of rows, sums over rows, flags."""
    share = nn.softmax(x)
    return share, share.max(-1), (share * x).sum(0), share > 0.001


CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "rows": (nn.softmax, (4096, 1024)),
    "rows that end within a line": (nn.softmax, (4096, 1001)),
    "a tail that overlaps": (nn.softmax, (4096, 1040)),
    "across rows": (lambda x: nn.softmax(x, axis=1), (8, 64, 96, 64)),
    "across rows, with lines between them": (lambda x: nn.softmax(x, axis=1), (8, 64, 65, 65)),
    "functions": (nn.silu, (4096, 1000)),
    "halves": (_gradient, (4096, 1024)),
    "joined": (_rotated, (64, 1024, 64)),
}


@pytest.mark.parametrize("name", CASES)
def test_large_results_are_those_of_their_pieces(name: str) -> None:
    """Bit for bit, whichever thread has written them; and the plain form has them too."""
    f, shape = CASES[name]
    x = array(*shape)
    compiled = tb.jit(f)
    pieces = [compiled(part) for part in np.split(x, PIECES)]

    assert kernels_in(f, x) == 1
    for whole, *parts in zip(*map(tb.tree.leaves, [compiled(x), *pieces]), strict=True):
        np.testing.assert_array_equal(whole, np.concatenate(parts))
    is_as_plain(f, x, tolerance=3e-6)


def test_results_of_all_kinds_together() -> None:
    x = array(4096, 1024)

    assert kernels_in(_with_numbers, x) == 1
    is_as_plain(_with_numbers, x, tolerance=1e-5)


def test_what_is_read_at_once_is_there() -> None:
    """By the next kernel, by a product, and by NumPy, many times."""
    x, w = array(2048, 2048), array(2048, 8)
    program = tb.jit(lambda x: (nn.softmax(nn.softmax(x) * x), nn.silu(x) @ w))
    first = [np.array(y) for y in program(x)]
    for _ in range(20):
        for y, wanted in zip(program(x), first, strict=True):
            np.testing.assert_array_equal(y, wanted)
