"""grad and value_and_grad: values, structures, dtypes, errors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ArgumentSpecError,
    GradientTypeError,
    UnboundAxisNameError,
    UnsupportedDtypeError,
)


def test_gradient_of_a_product_with_a_sine() -> None:
    """d(x sin x) = sin x + x cos x."""
    x = np.linspace(-2, 2, 7, dtype=np.float32)

    value, gradient = tb.value_and_grad(lambda x: tnp.sum(x * tnp.sin(x)))(x)

    np.testing.assert_allclose(value, np.sum(x * np.sin(x)), rtol=1e-6)
    np.testing.assert_allclose(gradient, np.sin(x) + x * np.cos(x), rtol=1e-6)
    assert isinstance(gradient, tb.Array)


def test_gradient_has_the_structure_of_the_argument() -> None:
    """Dicts, tuples and None come back as they were."""
    params = {"w": np.float32(2.0), "list": [np.ones(2, np.float32), None], "pair": (1.0,)}

    def f(p: Any) -> Any:
        return p["w"] * tnp.sum(p["list"][0]) + p["pair"][0] ** 2

    gradient = tb.grad(f)(params)

    assert tb.tree.structure(params) == tb.tree.structure(gradient)
    assert 2.0 == float(gradient["w"])
    assert [2.0, 2.0] == gradient["list"][0].tolist()
    assert 2.0 == float(gradient["pair"][0])


def test_unused_arguments_have_zero_gradients() -> None:
    """A leaf that the result does not depend on gets zeros of its own shape and dtype."""
    gradient = tb.grad(lambda p: p["a"])({"a": 1.0, "b": np.ones((2, 3), np.float16)})

    assert 1.0 == float(gradient["a"])
    assert (2, 3) == gradient["b"].shape
    assert np.float16 == gradient["b"].dtype
    assert not np.any(np.asarray(gradient["b"]))


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [(0, 12.0), (1, 4.0), (-1, 4.0), ((0, 1), (12.0, 4.0)), ([1], (4.0,)), (np.int64(1), 4.0)],
)
def test_argnums_choose_arguments(argnums: Any, expected: Any) -> None:
    """An int gives a bare gradient, a sequence gives a tuple in its order."""
    gradient = tb.grad(lambda x, y: x * x * y, argnums=argnums)(2.0, 3.0)

    assert expected == tb.tree.map(float, gradient)
    assert isinstance(gradient, tuple) is isinstance(argnums, tuple | list)


def test_keywords_are_passed_on() -> None:
    """Keyword arguments are constants of the derivative."""
    assert 6.0 == float(tb.grad(lambda x, *, k: x * k)(1.0, k=6.0))


def test_auxiliary_data_are_passed_on() -> None:
    """Arrays lose their tracers, other objects stay as they are."""

    def f(x: Any) -> Any:
        return x**2, {"double": 2 * x, "name": "f", "none": None}

    gradient, aux = tb.grad(f, has_aux=True)(3.0)
    (value, same), again = tb.value_and_grad(f, has_aux=True)(3.0)

    assert 6.0 == float(gradient) == float(again)
    assert 9.0 == float(value)
    assert {"double": 6.0, "name": "f", "none": None} == aux == same
    assert isinstance(aux["double"], tb.Array)


def test_auxiliary_data_of_an_outer_trace() -> None:
    """Auxiliary data may depend on values of an enclosing transformation."""

    def outer(y: Any) -> Any:
        gradient, aux = tb.grad(lambda x: (x * y, x + y), has_aux=True)(2.0)
        return gradient * aux

    assert 2.0 + 2 * 3.0 == float(tb.grad(outer)(3.0))
    assert 15.0 == float(tb.jit(outer)(3.0))


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: tb.grad(f, has_aux=True)(1.0)[1],
        lambda f: tb.vjp(f, 1.0, has_aux=True)[2],
        lambda f: tb.jvp(f, (1.0,), (1.0,), has_aux=True)[2],
        lambda f: tb.linearize(f, 1.0, has_aux=True)[2],
        lambda f: tb.jacfwd(f, has_aux=True)(1.0)[1],
    ],
)
def test_numbers_of_loops_are_arrays_in_auxiliary_data(transform: Any) -> None:
    """A loop over plain numbers inside of the function: what it gives leaves as arrays."""
    aux = transform(lambda x: (x, [tb.lax.fori_loop(0, 0, lambda _, c: c, 2.0), "text", 3]))

    assert isinstance(aux[0], tb.Array)
    assert [2.0, "text", 3] == aux


def test_holomorphic_gradient() -> None:
    """d(z^2) = 2z, of a complex-differentiable function."""
    z = np.complex64(1 + 2j)

    assert 2 * z == complex(tb.grad(lambda z: z * z, holomorphic=True)(z))


def test_real_function_of_a_complex_argument() -> None:
    """The gradient of |z|^2 is the conjugate of 2z."""
    z = np.complex64(1 + 2j)

    gradient = tb.grad(lambda z: tnp.real(z * tnp.conj(z)))(z)

    assert 2 * np.conj(z) == complex(gradient)


def test_integers_may_have_float0_gradients() -> None:
    """With allow_int the gradient of an integer has dtype float0 and the argument's shape."""
    f = tb.grad(lambda i, x: x * i.sum(), argnums=(0, 1), allow_int=True)

    of_ints, of_float = f(np.arange(3), 2.0)

    assert tb.float0 == of_ints.dtype
    assert (3,) == of_ints.shape
    assert 3.0 == float(of_float)


def test_gradient_of_the_identity_is_an_array() -> None:
    """Constants of the derivative leave the engine as arrays of their own, weakly typed."""
    first, second = tb.grad(lambda x: x)(2.0), tb.grad(lambda x: x)(2.0)

    assert isinstance(first, tb.Array)
    assert first.weak_type
    first.delete()
    assert 1.0 == float(second)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, tb.dtypes.bfloat16])
def test_gradient_dtype_is_the_arguments(dtype: Any) -> None:
    """A gradient has the dtype of its argument."""
    gradient = tb.grad(lambda x: tnp.sum(x * x).astype(np.float32))(np.ones(2, dtype))

    assert np.dtype(dtype) == gradient.dtype


def test_second_derivative() -> None:
    """d2(x^4) = 12 x^2, eagerly and compiled."""
    second = tb.grad(tb.grad(lambda x: x**4))

    assert 48.0 == float(second(2.0)) == float(tb.jit(second)(2.0))


def test_perturbations_are_not_confused() -> None:
    """The derivative of an inner derivative sees the outer variable as a constant."""
    assert 1.0 == float(tb.grad(lambda x: x * tb.grad(lambda y: x + y)(1.0))(1.0))

    def through_jvp(x: Any) -> Any:
        return tb.jvp(lambda y: y * x, (3.0,), (10.0,))[1]

    assert 10.0 == float(tb.grad(through_jvp)(1.0))
    assert 10.0 == float(tb.jit(tb.grad(through_jvp))(1.0))


def test_name_and_signature_are_kept() -> None:
    """The gradient is called like its function and has no attributes of a compiled one."""

    @tb.jit
    def loss(x: Any) -> Any:
        """Documented."""
        return x

    gradient = tb.grad(loss)

    assert "loss" == gradient.__name__
    assert gradient.__doc__.startswith("Gradient of loss by its positional argument(s) 0.")
    assert gradient.__doc__.endswith("Documented.")
    assert not hasattr(gradient, "lower")


@pytest.mark.parametrize("transform", [tb.value_and_grad, tb.jacfwd, tb.jacrev, tb.hessian])
def test_documentation_says_what_became_of_the_function(transform: Any) -> None:
    """It names the function and the arguments, before what the function's own says."""

    def energy(x: Any) -> Any:
        """Documented {fun}."""
        return x

    documentation = transform(energy, argnums=(0,)).__doc__

    assert "of energy by its positional argument(s) (0,)" in documentation
    assert documentation.endswith("Documented {fun}.")


def test_methods_partials_and_callables() -> None:
    """Anything callable can be differentiated."""

    class Cube:
        def __call__(self, x: Any) -> Any:
            return x**3

        def method(self, x: Any) -> Any:
            return x**3

    assert 12.0 == float(tb.grad(Cube())(2.0))
    assert 12.0 == float(tb.grad(Cube().method)(2.0))
    assert 12.0 == float(tb.grad(functools.partial(lambda n, x: x**n, 3))(2.0))


def test_state_is_restored_after_an_error() -> None:
    """An exception in the function leaves no trace behind."""

    def fails(x: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tb.grad(fails)(1.0)

    assert isinstance(tnp.sin(1.0), tb.Array)
    assert float(tnp.sin(1.0) * 1) == pytest.approx(np.sin(1.0))


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "x", "words"),
    [
        (lambda x: x, 3, ("argument x is i32[]", "real or complex dtype", "allow_int=True")),
        (lambda x: x, True, ("argument x is bool[]",)),
        (lambda x: x, 1j, ("the result is c64[]", "holomorphic=True")),
        (lambda x: x.astype(int), 1.0, ("the result is i32[]", "vjp")),
        (lambda x: x * np.ones(2), 1.0, ("f32[2]", "scalar-output functions", "jacrev")),
        (lambda x: (x, x), 1.0, ("returned a tree", "has_aux=True")),
        (lambda x: None, 1.0, ("returned a tree", "None")),
        (lambda x: "text", 1.0, ("returned 'text' of type str", "has_aux=True")),
    ],
)
def test_wrong_functions_and_arguments(f: Any, x: Any, words: tuple[str, ...]) -> None:
    """Messages name the place, what was there, and the way out."""
    with pytest.raises(GradientTypeError) as caught:
        tb.grad(f)(x)

    assert [] == [word for word in ("<lambda>", *words) if word not in str(caught.value)]


def test_holomorphic_needs_complex_numbers() -> None:
    """Both arguments and results are checked."""
    with pytest.raises(GradientTypeError, match=r"argument x is f32\[\](.|\n)*holomorphic"):
        tb.grad(lambda x: x, holomorphic=True)(1.0)
    with pytest.raises(GradientTypeError, match=r"the result is f32\[\](.|\n)*holomorphic"):
        tb.grad(tnp.real, holomorphic=True)(1j)


def test_leaf_is_named() -> None:
    """The message has the key path of the leaf that cannot be differentiated."""
    with pytest.raises(GradientTypeError, match=r"argument p\['n'\]\[1\] is i32\[\]"):
        tb.grad(lambda p: p["x"])({"x": 1.0, "n": (1.0, 2)})
    with pytest.raises(UnsupportedDtypeError, match=r"argument p\['n'\] is 'a' of type str"):
        tb.grad(lambda p: p["x"])({"x": 1.0, "n": "a"})


def test_has_aux_needs_a_pair() -> None:
    """The message says what came instead."""
    with pytest.raises(GradientTypeError, match="a tuple of 3, but has_aux=True needs a pair"):
        tb.grad(lambda x: (x, x, x), has_aux=True)(1.0)
    with pytest.raises(GradientTypeError, match=r"returned an array f32\[\], but has_aux"):
        tb.grad(lambda x: x, has_aux=True)(1.0)


def test_too_few_positional_arguments() -> None:
    """Differentiated arguments cannot come by keyword."""
    with pytest.raises(ArgumentSpecError, match=r"argnums=1 needs at least 2 .*, got 1"):
        tb.grad(lambda x, y: x, argnums=1)(1.0, y=2.0)


@pytest.mark.parametrize("argnums", [(0, 0), [1, 1], (0, -2), (-1, 1), (0, 1, 0)])
@pytest.mark.parametrize("derive", [tb.grad, tb.value_and_grad, tb.jacfwd, tb.jacrev, tb.hessian])
def test_argnums_name_no_argument_twice(derive: Any, argnums: Any) -> None:
    """One of two places would get zeros."""
    with pytest.raises(ArgumentSpecError, match="names one argument twice"):
        derive(lambda x, y: x * y, argnums)(1.0, 2.0)


@pytest.mark.parametrize("argnums", ["0", 1.0, (0, "1")])
def test_argnums_are_ints(argnums: Any) -> None:
    """Anything else is refused when the gradient is made."""
    with pytest.raises(TypeError, match=r"argnums is .*, expected an int or a sequence of ints"):
        tb.grad(lambda x: x, argnums=argnums)


@pytest.mark.parametrize("fun", [3, staticmethod(abs), (i for i in ())])
def test_function_must_be_callable(fun: Any) -> None:
    """Objects that are no functions are refused at once."""
    with pytest.raises(TypeError, match=r"^grad: "):
        tb.grad(fun)


def test_generator_functions_are_refused() -> None:
    """Also inside partials and methods."""

    def generate(x: Any) -> Any:
        yield x

    for fun in (generate, functools.partial(generate)):
        with pytest.raises(TypeError, match="generate is a generator function"):
            tb.value_and_grad(fun)


# --- reduce_axes: gradients of what the elements of a mapped axis share ----------------------

W = np.array([1.0, -2.0, 0.5], np.float32)
XS = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def loss(w: Any, x: Any) -> Any:
    return tnp.sum(tnp.sin(w * x)) + tnp.sum(w * w)


def summed_gradient() -> Any:
    return tb.grad(lambda w: tnp.sum(tb.vmap(loss, (None, 0))(w, XS)))(W)


@pytest.mark.parametrize("jitted", [False, True])
def test_shared_arguments_get_the_gradient_of_the_sum(jitted: bool) -> None:
    """With reduce_axes it is summed over the axis, for arguments without a mapped axis only."""
    gradient = tb.grad(loss, (0, 1), reduce_axes=("batch",))
    inner = tb.jit(gradient) if jitted else gradient
    mapped = tb.vmap(inner, (None, 0), out_axes=(None, 0), axis_name="batch")

    dw, dx = (tb.jit(mapped) if jitted else mapped)(W, XS)

    np.testing.assert_allclose(dw, summed_gradient(), rtol=1e-5)
    np.testing.assert_allclose(dx, tb.vmap(tb.grad(loss, 1), (None, 0))(W, XS), rtol=1e-6)
    both = tb.vmap(inner, axis_name="batch")(np.stack([W] * 4), XS)[0]
    np.testing.assert_allclose(both, tb.vmap(tb.grad(loss))(np.stack([W] * 4), XS), rtol=1e-6)


def test_without_reduce_axes_gradients_are_those_of_elements() -> None:
    """Each element has its own, and their sum is the gradient of the sum."""
    each = tb.vmap(tb.grad(loss), (None, 0), axis_name="batch")(W, XS)

    assert (4, 3) == each.shape
    np.testing.assert_allclose(each.sum(0), summed_gradient(), rtol=1e-5)


def test_reduced_gradients_in_all_forms() -> None:
    """value_and_grad with auxiliary data and trees, an unused argument, a gradient of zero."""

    def f(params: Any, x: Any) -> Any:
        return loss(params["w"], x), x[0]

    def step(params: Any, x: Any) -> Any:
        return tb.value_and_grad(f, has_aux=True, reduce_axes=["batch"])(params, x)

    params = {"w": W, "unused": np.float32(3)}
    out_axes = ((0, 0), None)
    (value, aux), found = tb.vmap(step, (None, 0), out_axes, axis_name="batch")(params, XS)

    np.testing.assert_allclose(value, tb.vmap(loss, (None, 0))(W, XS), rtol=1e-6)
    np.testing.assert_array_equal(aux, XS[:, 0])
    np.testing.assert_allclose(found["w"], summed_gradient(), rtol=1e-5)
    assert 0.0 == float(found["unused"])


def test_reduced_gradients_over_nested_axes() -> None:
    """Only over the axes that are named, and each of them once."""
    xs = np.stack([XS, -XS])

    def over(names: Any, out_axes: tuple[Any, Any]) -> Any:
        inner = tb.vmap(
            tb.grad(loss, reduce_axes=names), (None, 0), out_axes=out_axes[0], axis_name="i"
        )
        return tb.vmap(inner, (None, 0), out_axes=out_axes[1], axis_name="o")(W, xs)

    each = over((), (0, 0))
    np.testing.assert_allclose(over("i", (None, 0)), each.sum(1), rtol=1e-5)
    np.testing.assert_allclose(over(("o",), (0, None)), each.sum(0), rtol=1e-5)
    np.testing.assert_allclose(over(("i", "o"), (None, None)), each.sum((0, 1)), rtol=1e-5)


def test_second_derivatives_of_reduced_gradients() -> None:
    """The outer derivative of what the map gives is that of the summed gradient."""

    def total(w: Any) -> Any:
        f = tb.grad(loss, reduce_axes=("batch",))
        return tb.vmap(f, (None, 0), out_axes=None, axis_name="batch")(w, XS)

    def expected(w: Any) -> Any:
        return tb.grad(lambda w: tnp.sum(tb.vmap(loss, (None, 0))(w, XS)))(w)

    for jacobian in (tb.jacfwd, tb.jacrev):
        np.testing.assert_allclose(jacobian(total)(W), jacobian(expected)(W), rtol=1e-5, atol=1e-5)


def test_reduce_axes_must_be_bound() -> None:
    """A name that no surrounding vmap has is an error, as in collectives."""
    with pytest.raises(UnboundAxisNameError, match="unbound axis name: i"):
        tb.grad(lambda x: x, reduce_axes=("i",))(1.0)


# powers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "n"),
    [(x, n) for x in (-1.0, 0.0, 2.0) for n in range(-2 if x else 0, 5)],
)
def test_orders_of_integer_powers(x: float, n: int) -> None:
    """To third order, at 0 too; the exponent is a Python int, an array, or a traced int."""
    expected = []
    factor, power = 1.0, n
    for _ in range(3):
        factor, power = factor * power, power - 1
        expected.append(factor * x**power if factor else 0.0)

    def orders(f: Any) -> list[float]:
        first = tb.grad(f)
        second = tb.grad(first)
        return [float(g(x)) for g in (first, second, tb.grad(second))]

    assert expected == pytest.approx(orders(lambda v: v**n), rel=1e-5)
    assert expected[0] == pytest.approx(float(tb.grad(lambda v: v ** tnp.int32(n))(x)))
    assert expected[0] == pytest.approx(float(tb.jit(tb.grad(lambda v, k: v**k))(x, n)))
    assert expected[0] == pytest.approx(float(tb.grad(lambda v: (v ** tnp.array([n]))[0])(x)))
