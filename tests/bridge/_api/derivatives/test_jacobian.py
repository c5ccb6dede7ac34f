"""jacfwd, jacrev, hessian: values, structures, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentSpecError, GradientTypeError

X = np.array([0.5, -1.0, 2.0], np.float32)
BOTH = pytest.mark.parametrize("jac", [tb.jacfwd, tb.jacrev], ids=["jacfwd", "jacrev"])


@BOTH
def test_jacobian_of_an_elementwise_function(jac: Any) -> None:
    """It is diagonal, eagerly and compiled."""
    expected = np.diag(np.cos(X))

    np.testing.assert_allclose(jac(tnp.sin)(X), expected, rtol=1e-6)
    np.testing.assert_allclose(tb.jit(jac(tnp.sin))(X), expected, rtol=1e-6)


@BOTH
def test_jacobian_of_a_matrix_product(jac: Any) -> None:
    """Shape of the result, then shape of the argument."""
    a = np.arange(6, dtype=np.float32).reshape(2, 3)

    jacobian = jac(lambda m: m @ X)(a)

    expected = np.einsum("ik,j->ikj", np.eye(2), X)
    np.testing.assert_allclose(jacobian, expected)
    assert (2, 2, 3) == jacobian.shape


@BOTH
def test_trees(jac: Any) -> None:
    """Structure of the result, with the structure of the argument at each leaf."""
    p = {"x": X, "y": np.float32(2)}

    def f(p: Any) -> Any:
        return {"a": tnp.sin(p["x"]) * p["y"], "b": tnp.sum(p["x"])}

    jacobian = jac(f)(p)

    np.testing.assert_allclose(jacobian["a"]["x"], np.diag(2 * np.cos(X)), rtol=1e-6)
    np.testing.assert_allclose(jacobian["a"]["y"], np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(jacobian["b"]["x"], np.ones(3))
    assert 0.0 == float(jacobian["b"]["y"])
    assert () == jacobian["b"]["y"].shape


@BOTH
def test_several_arguments_and_aux(jac: Any) -> None:
    """A tuple of argnums gives a tuple; auxiliary data follow."""
    jacobian, aux = jac(lambda x, k, y: (x * y, {"k": k, "y": y}), argnums=(0, 2), has_aux=True)(
        X, "text", 2 * X
    )

    assert isinstance(jacobian, tuple)
    np.testing.assert_allclose(jacobian[0], np.diag(2 * X))
    np.testing.assert_allclose(jacobian[1], np.diag(X))
    assert "text" == aux["k"]
    np.testing.assert_array_equal(aux["y"], 2 * X)


@BOTH
def test_scalars_and_empty_arrays(jac: Any) -> None:
    """Sizes 1 and 0 are no special cases."""
    assert 6.0 == float(jac(lambda x: x * x)(3.0))
    assert (0, 0) == jac(lambda x: 2 * x)(np.zeros(0, np.float32)).shape
    assert (0,) == jac(tnp.sum)(np.zeros(0, np.float32)).shape


@BOTH
def test_holomorphic(jac: Any) -> None:
    """Complex derivatives of complex-differentiable functions."""
    z = np.array([1 + 2j, 3j], np.complex64)

    np.testing.assert_allclose(jac(lambda z: z * z, holomorphic=True)(z), np.diag(2 * z))


def test_integers() -> None:
    """Forward mode gives float0 for integer results, reverse mode for integer arguments."""
    forward = tb.jacfwd(lambda x: x.astype(int))(X)
    reverse = tb.jacrev(lambda n, x: x * n, argnums=(0, 1), allow_int=True)(np.arange(3), X)

    assert (tb.float0, (3, 3)) == (forward.dtype, forward.shape)
    assert (tb.float0, (3, 3)) == (reverse[0].dtype, reverse[0].shape)
    np.testing.assert_allclose(reverse[1], np.diag([0.0, 1.0, 2.0]))


def test_hessian_is_symmetric_and_right() -> None:
    """Of x^T A x / 2 it is the symmetric part of A; trees give trees of trees."""
    a = np.arange(9, dtype=np.float32).reshape(3, 3)

    of_form = tb.hessian(lambda x: x @ (a @ x) / 2)(X)
    of_tree = tb.hessian(lambda p: p["x"] ** 2 * p["y"])({"x": 2.0, "y": 3.0})

    np.testing.assert_allclose(of_form, (a + a.T) / 2, rtol=1e-6)
    assert {"x": {"x": 6.0, "y": 4.0}, "y": {"x": 4.0, "y": 0.0}} == tb.tree.map(float, of_tree)


def test_hessian_with_aux_and_vmap() -> None:
    """Auxiliary data pass both derivatives; a batch of Hessians under jit and vmap."""
    hessian, aux = tb.hessian(lambda x: (x**3, x), has_aux=True)(2.0)
    batch = tb.jit(tb.vmap(tb.hessian(lambda x: tnp.sum(x**3))))(np.stack([X, X + 1]))

    assert (12.0, 2.0) == (float(hessian), float(aux))
    np.testing.assert_allclose(batch, [np.diag(6 * X), np.diag(6 * (X + 1))], rtol=1e-6)


# --- errors ----------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("f", "x", "options", "words"),
    [
        (lambda x: x, 3, {}, "argument x is i32[]"),
        (lambda x: x, 1.0, {"holomorphic": True}, "argument x is f32[]"),
        (lambda z: z.real, 1j, {"holomorphic": True}, "the result is f32[]"),
    ],
)
def test_wrong_dtypes(jac: Any, f: Any, x: Any, options: Any, words: str) -> None:
    """Both modes check arguments and results."""
    with pytest.raises(GradientTypeError) as caught:
        jac(f, **options)(x)

    assert f"{jac.__name__}(<lambda>)" in str(caught.value)
    assert words in str(caught.value)


def test_complex_numbers_without_holomorphic() -> None:
    """Forward mode refuses complex arguments, reverse mode complex results."""
    with pytest.raises(GradientTypeError, match=r"argument z is c64\[\](.|\n)*holomorphic=True"):
        tb.jacfwd(lambda z: z)(1j)
    with pytest.raises(GradientTypeError, match=r"at \['a'\]: the result is c64\[\]"):
        tb.jacrev(lambda x: {"a": x * 1j})(1.0)


def test_reverse_mode_needs_floats() -> None:
    """Integer results have no cotangents."""
    with pytest.raises(GradientTypeError, match=r"the result is i32\[3\]"):
        tb.jacrev(lambda x: x.astype(int))(X)


@BOTH
def test_too_few_arguments(jac: Any) -> None:
    """As in grad."""
    with pytest.raises(ArgumentSpecError, match=f"{jac.__name__}.*needs at least 2"):
        jac(lambda x, y: x, argnums=1)(1.0)


@BOTH
@pytest.mark.parametrize("x", [1.0, (1.0,)])
def test_weak_types_are_kept(jac: Any, x: Any) -> None:
    """The derivative by a Python number is as weakly typed as the number."""
    found = tb.tree.leaves(jac(lambda y: y)(x))

    assert all(leaf.weak_type for leaf in found)


@BOTH
def test_numbers_of_several_arguments_stay_weakly_typed(jac: Any) -> None:
    """A derivative has the weak type of the result's tangent, as for one argument."""

    def product(x: Any, y: Any) -> Any:
        return x * y

    numbers = jac(product, (0, 1))(2.0, 3.0)
    with_array = jac(product, (0, 1))(tnp.float32(2), 3.0)

    assert [(3.0, True), (2.0, True)] == [(float(g), g.weak_type) for g in numbers]
    assert "float16" == (tnp.float16(1) * numbers[0]).dtype
    assert not with_array[0].weak_type
