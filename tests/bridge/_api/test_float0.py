"""float0 arrays, the tangents of integers, pass through all transformations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

N = np.arange(3)
X = np.ones(3, np.float32)
ZEROS = np.zeros(3, tb.float0)


def f(n: Any, x: Any) -> Any:
    """A function of integers and floats."""
    return tnp.sum(n * x)


def is_zero(x: Any, *shape: int) -> bool:
    """Whether ``x`` is a float0 array of this shape."""
    return x.dtype == tb.float0 and x.shape == shape


GRAD = tb.grad(f, argnums=(0, 1), allow_int=True)


@pytest.mark.parametrize("wrap", [lambda g: g, tb.jit, lambda g: tb.jit(tb.jit(g))])
def test_results_of_compiled_functions(wrap: Any) -> None:
    """A compiled gradient gives float0 arrays, at every call."""
    g = wrap(GRAD)

    for _ in range(2):
        of_n, of_x = g(N, X)
        assert is_zero(of_n, 3)
        assert [0.0, 1.0, 2.0] == of_x.tolist()


@pytest.mark.parametrize(("axis", "shape"), [(0, (2, 3)), (1, (3, 2)), (-1, (3, 2))])
def test_results_of_mapped_functions(axis: int, shape: tuple[int, ...]) -> None:
    """They get the mapped axis, where out_axes wants it."""
    g = tb.vmap(GRAD, out_axes=(axis, 0))
    for h in (g, tb.jit(g)):
        of_n, of_x = h(np.stack([N, N]), np.stack([X, X]))
        assert is_zero(of_n, *shape)
        assert (2, 3) == of_x.shape


def test_unmapped_results() -> None:
    """With out_axes None they stay as they are."""
    result = tb.vmap(lambda x: (x, ZEROS), out_axes=(0, None))(X)

    assert is_zero(result[1], 3)


def test_arguments_of_compiled_functions() -> None:
    """Tangents and cotangents of integers can be passed to them."""

    @tb.jit
    def push(dn: Any, dx: Any) -> Any:
        return tb.jvp(lambda n, x: (n, n * x), (N, X), (dn, dx))[1]

    for _ in range(2):
        of_n, of_product = push(ZEROS, X)
        assert is_zero(of_n, 3)
        assert [0.0, 1.0, 2.0] == of_product.tolist()


def test_donation_beside_float0() -> None:
    """Positions of donated arguments take the missing leaf into account."""
    g = tb.jit(lambda dn, x, y: (x + y, dn), donate_argnums=(0, 2))
    x, y = tnp.ones(2), tnp.ones(2)

    assert is_zero(g(ZEROS, x, y)[1], 3)
    assert [False, True] == [x.is_deleted(), y.is_deleted()]


def test_derivatives_of_functions_that_return_float0() -> None:
    """Tangents of float0 results are float0."""

    def g(x: Any) -> Any:
        return GRAD(N, x)

    value, tangent = tb.jvp(g, (X,), (X,))
    _, pullback = tb.vjp(g, X)
    jacobian = tb.jacfwd(g)(X)

    assert is_zero(value[0], 3)
    assert is_zero(tangent[0], 3)
    assert [0.0, 0.0, 0.0] == pullback((ZEROS, X))[0].tolist()
    assert is_zero(jacobian[0], 3)
    assert (3, 3) == jacobian[1].shape


def test_shapes() -> None:
    """eval_shape keeps them beside the stand-ins."""
    of_n, of_x = tb.eval_shape(GRAD, N, X)

    assert is_zero(of_n, 3)
    assert tb.ShapeDtypeStruct((3,), np.float32) == of_x


@pytest.mark.parametrize(("axis", "per_element"), [(0, (2,)), (-1, (3,)), (None, (3, 2))])
def test_arguments_of_mapped_functions(axis: int | None, per_element: tuple[int, ...]) -> None:
    """Each element gets a float0 array without the mapped axis, and gives one."""
    shapes = []
    matrix, zeros = np.ones((3, 2), np.int32), np.zeros((3, 2), tb.float0)

    def g(n: Any, t: Any) -> Any:
        shapes.append(t.shape)
        return tb.jvp(lambda m: (m, m * 1.5), (n,), (t,))[1]

    n = 2 if axis == -1 else 3
    of_int, of_float = tb.vmap(g, in_axes=(axis, axis), axis_size=n)(matrix, zeros)

    assert [per_element] == shapes
    assert is_zero(of_int, n, *per_element)
    assert np.zeros((n, *per_element)).tolist() == of_float.tolist()


def test_sizes_of_mapped_float0_arrays_count() -> None:
    """A float0 array of another size is named like any other argument."""
    with pytest.raises(tb.errors.AxisSizeError, match=r"argument t has size 2 at axis 0"):
        tb.vmap(lambda n, t: n)(N, np.zeros(2, tb.float0))


@pytest.mark.parametrize("zeros_like", [tnp.zeros_like, tb.lax.zeros_like, tb.lax.full_like])
def test_arrays_like_them(zeros_like: Any) -> None:
    """Zeros like a float0 array are one, so that optimizer states of all leaves can be made."""
    fill = (7,) if zeros_like is tb.lax.full_like else ()

    assert is_zero(zeros_like(ZEROS, *fill), 3)
    assert is_zero(zeros_like(ZEROS, *fill, shape=(2,)), 2)
    assert [0, 0, 0] == tnp.zeros_like(ZEROS, dtype="int32").tolist()


def test_they_take_no_part_in_computations() -> None:
    """The message says what they are."""
    with pytest.raises(tb.errors.UnsupportedDtypeError, match="the tangents of integers and bool"):
        tb.lax.add(ZEROS, tnp.ones(3))
