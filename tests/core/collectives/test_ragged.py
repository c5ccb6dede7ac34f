"""ragged_all_to_all beside loops of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge import lax
from tracebridge.errors import ShapeMismatchError, UnboundAxisNameError, UnsupportedDtypeError

Host = np.ndarray[Any, Any]


def plan(rng: np.random.Generator, devices: int, per: int, n: int) -> tuple[Host, ...]:
    """Parts of any lengths, packed by each sender and by each receiver; and the rows received."""
    k = devices * per
    sizes = rng.integers(0, 1 + n // k, (devices, k))
    starts = np.cumsum(sizes, 1) - sizes
    # by_receiver[d][s, i]: the length of part i from s to d
    by_receiver = sizes.reshape(devices, devices, per).transpose(1, 0, 2).reshape(devices, k)
    ends = np.cumsum(by_receiver, 1) - by_receiver
    at_sender = ends.reshape(devices, devices, per).transpose(1, 0, 2).reshape(devices, k)
    return tuple([a.astype("i4") for a in (starts, sizes, at_sender, by_receiver)])


def by_loops(x: Host, out: Host, numbers: tuple[Host, ...]) -> Host:
    """What the senders write, one after the other."""
    starts, sizes, ends, _ = numbers
    out = out.copy()
    per = starts.shape[1] // len(x)
    for sender in range(len(x)):
        for i, (a, size, b) in enumerate(
            zip(starts[sender], sizes[sender], ends[sender], strict=True)
        ):
            out[i // per, b : b + size] = x[sender, a : a + size]
    return out


def exchange(x: Any, out: Any, *numbers: Any) -> Any:
    return lax.ragged_all_to_all(x, out, *numbers, axis_name="i")


@pytest.mark.parametrize("per", [1, 3])
@pytest.mark.parametrize("devices", [1, 4])
def test_as_loops(devices: int, per: int) -> None:
    """Each part arrives where its sender says, all else stays what it was."""
    rng = np.random.default_rng(devices + per)
    numbers = plan(rng, devices, per, 24)
    x = rng.standard_normal((devices, 24, 2))
    out = rng.standard_normal((devices, 30, 2))
    expected = by_loops(x, out, numbers)

    with tb.enable_x64(True):
        f = tb.vmap(exchange, axis_name="i")
        np.testing.assert_array_equal(expected, f(x, out, *numbers))
        np.testing.assert_array_equal(expected, tb.jit(f)(x, out, *numbers))
        check_grads(lambda x, out: f(tnp.sin(x), out, *numbers), (x, out), order=1)


def test_groups() -> None:
    """Each group exchanges on its own, in the order of its positions."""
    rng = np.random.default_rng(0)
    groups = [[2, 0], [1, 3]]
    numbers = plan(rng, 4, 1, 8)
    numbers = tuple([n[:, :2] for n in numbers])
    x = rng.integers(0, 100, (4, 8, 1)).astype("i4")
    out = np.zeros((4, 9, 1), "i4")
    expected = out.copy()
    for group in groups:
        expected[group] = by_loops(x[group], out[group], tuple([n[group] for n in numbers]))

    f = tb.vmap(
        lambda *a: lax.ragged_all_to_all(*a, axis_name="i", axis_index_groups=groups),
        axis_name="i",
    )
    np.testing.assert_array_equal(expected, f(x, out, *numbers))


def test_outside_of_arrays() -> None:
    """Rows that do not exist are neither sent nor written."""
    x, out = np.array([[1, 2, 3]], "i4"), np.array([[7, 7]], "i4")

    def found(start: int, size: int, end: int) -> Any:
        numbers = [np.array([[n]], "i4") for n in (start, size, end, size)]
        return tb.vmap(exchange, axis_name="i")(x, out, *numbers).tolist()

    assert [[3, 7]] == found(2, 2, 0)
    assert [[7, 1]] == found(-1, 2, 0)
    assert [[2, 3]] == found(0, 3, -1)
    assert [[7, 1]] == found(0, 3, 1)


def test_nothing() -> None:
    """Arrays without rows and no parts at all."""
    f = tb.vmap(exchange, axis_name="i")
    none = np.zeros((2, 0), "i4")
    one = np.ones((2, 2), "i4")

    assert [[7], [7]] == f(none, np.full((2, 1), 7, "i4"), one, one, one, one).tolist()
    assert (2, 0) == f(one, none, one, one, one, one).shape
    assert [[5], [5]] == f(one, np.full((2, 1), 5, "i4"), *[none] * 4).tolist()


def test_bad_arguments() -> None:
    """Shapes, dtypes and names are checked."""
    f = tb.vmap(exchange, axis_name="i")
    x, n = np.ones((2, 3), "f4"), np.ones((2, 2), "i4")

    with pytest.raises(ShapeMismatchError, match="same axes after the first"):
        f(x, np.ones((2, 3, 1), "f4"), n, n, n, n)
    with pytest.raises(UnsupportedDtypeError, match="dtype int32, expected float32"):
        f(x, n, n, n, n, n)
    with pytest.raises(UnsupportedDtypeError, match="send_sizes must be integers"):
        f(x, x, n, x[:, :2], n, n)
    odd = np.ones((2, 3), "i4")
    with pytest.raises(ShapeMismatchError, match="a multiple of 2"):
        f(x, x, odd, odd, odd, odd)
    with pytest.raises(UnboundAxisNameError):
        exchange(x[0], x[0], n[0], n[0], n[0], n[0])
