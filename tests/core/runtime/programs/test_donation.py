"""Donation: arguments that a call may consume."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.runtime_errors import DeletedArrayError, DonationError


def fresh(n: int = 1000):
    """An array of its own memory."""
    return tnp.arange(float(n)) + 0


def test_donated_memory_is_reused():
    """The result takes the memory of the donated argument."""
    f = tb.jit(lambda x: x + 1, donate_argnums=0)
    x = fresh()
    pointer = x.unsafe_buffer_pointer()
    y = f(x)

    assert pointer == y.unsafe_buffer_pointer()
    assert x.is_deleted()


def test_use_after_donation_names_the_function():
    """The error of a later use says which call consumed the array."""

    def consume(x):
        return x * 2

    f = tb.jit(consume, donate_argnums=(0,))
    x = fresh()
    f(x)
    with pytest.raises(DeletedArrayError, match="consume"):
        x + 1


def test_gone_arguments_of_donating_functions_are_named():
    """A cached donating function tells which argument was donated or deleted before."""
    add = tb.jit(lambda a, b: a + b, donate_argnums=0)
    add(tnp.ones(3), tnp.ones(3))
    x, y, z = tnp.ones(3), tnp.ones(3), tnp.ones(3)
    add(x, y)
    z.delete()

    for args, which in (((x, y), 0), ((y, x), 1), ((z, y), 0), ((y, z), 1)):
        with pytest.raises(DeletedArrayError, match=f"argument {which} of <lambda>"):
            add(*args)
    for _ in range(2):
        with pytest.raises(DeletedArrayError, match="was donated to <lambda>"):
            add(x, y)
    assert [1.0] * 3 == y.tolist()
    assert issubclass(DonationError, RuntimeError)


def test_donation_twice_is_refused():
    """One array cannot be both donated and another argument."""
    f = tb.jit(lambda x, y: x + y, donate_argnums=0)
    x = fresh()
    with pytest.raises(DonationError, match="donated"):
        f(x, x)


def test_donated_argument_without_a_fitting_result_is_gone_all_the_same():
    """Donation ends the array also where no result can use its memory."""
    f = tb.jit(lambda x: x.sum(), donate_argnums=0)
    x, y = fresh(), fresh()
    with pytest.warns(
        UserWarning, match=r"Some donated buffers were not usable: x \(f32\[1000\]\)"
    ):
        f(x)
    f(y)  # said once, when it is compiled

    assert x.is_deleted()
    assert y.is_deleted()


def test_donation_without_use_is_said_at_the_users_line():
    """The warning names each argument that no result can take over, and points at the call."""
    f = tb.jit(lambda x, n, y: (x + 1, n[1:] + 1.0, y[:1]), donate_argnums=(0, 1, 2))
    with pytest.warns(UserWarning, match="^Some donated buffers were not usable") as seen:
        f(fresh(), tnp.arange(3) + 0, fresh(5))

    (warning,) = seen
    assert __file__ == warning.filename
    assert "n (i32[3]), y (f32[5])" in str(warning.message)
    assert "x (" not in str(warning.message)


@pytest.mark.parametrize(
    "reuse",
    [
        lambda x: x.reshape(10, 100) + 1,
        lambda x: x.astype(np.int32),
        lambda x: tnp.concatenate([x, x]).astype(np.float16),
        lambda x: lax.complex(x[:500], x[500:]),
    ],
)
def test_a_result_of_as_many_bytes_takes_the_memory(reuse):
    """Shape and dtype may differ; nothing warns, and the result lies where the argument lay."""
    x = fresh()
    where = x.unsafe_buffer_pointer()
    expected = np.asarray(reuse(x)).copy()
    out = tb.jit(reuse, donate_argnums=0)(x)

    assert where == out.unsafe_buffer_pointer()
    np.testing.assert_array_equal(expected, out)
    assert x.is_deleted()


def test_an_equal_result_is_preferred():
    """An argument takes the memory of a result like itself, whatever the order of the others."""
    f = tb.jit(lambda x, n: (n + 1, x + 1), donate_argnums=(0, 1))
    x, n = fresh(), tnp.arange(1000) + 0
    places = n.unsafe_buffer_pointer(), x.unsafe_buffer_pointer()
    outs = f(x, n)

    assert places == tuple(out.unsafe_buffer_pointer() for out in outs)


def test_donation_by_name():
    """donate_argnames means the same argument."""
    f = tb.jit(lambda x, y: x + y, donate_argnames="y")
    x, y = fresh(), fresh()
    f(x, y=y)

    assert y.is_deleted()
    assert not x.is_deleted()


def test_shared_scalars_are_never_donated():
    """A cached device scalar survives the donation of an argument that uses it."""
    f = tb.jit(lambda x: x + 1, donate_argnums=0)
    f(3.0)
    f(3.0)

    np.testing.assert_allclose(4.0, np.asarray(f(3.0)))
