"""jvp and linearize: values, tangents, structures, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    DtypeMismatchError,
    GradientTypeError,
    ShapeMismatchError,
    TreeMismatchError,
    UnsupportedDtypeError,
)

ONES = np.ones(2, np.float32)
FLOAT0 = np.zeros((), tb.float0)


def product(x: Any, y: Any) -> Any:
    """A function of two arguments."""
    return tnp.sin(x) * y


def test_directional_derivative() -> None:
    """J v by the product rule."""
    x, y, dx, dy = (np.float32(v) for v in (0.5, 2.0, 3.0, 4.0))

    value, tangent = tb.jvp(product, (x, y), (dx, dy))

    assert float(value) == pytest.approx(np.sin(x) * y)
    assert float(tangent) == pytest.approx(np.cos(x) * y * dx + np.sin(x) * dy, rel=1e-6)


def test_linearize_agrees_with_jvp_for_any_tangent() -> None:
    """One linearization, many directions."""
    value, f_jvp = tb.linearize(product, 0.5, 2.0)

    for dx, dy in ((1.0, 0.0), (0.0, 1.0), (2.0, -3.0)):
        expected = tb.jvp(product, (0.5, 2.0), (dx, dy))
        assert float(expected[0]) == float(value)
        assert float(expected[1]) == pytest.approx(float(f_jvp(dx, dy)))


def test_linearized_function_runs_once() -> None:
    """Calling the linear function does not call the original again."""
    calls: list[int] = []

    def f(x: Any) -> Any:
        calls.append(1)
        return x * x

    _, f_jvp = tb.linearize(f, 3.0)

    assert (6.0, 12.0) == (float(f_jvp(1.0)), float(f_jvp(2.0)))
    assert [1] == calls


def test_trees_of_arguments_and_results() -> None:
    """Tangents have the structure of primals, those of results that of results."""
    x = {"a": np.ones(2, np.float32), "b": (1.0, None)}

    def f(t: Any) -> Any:
        return [t["a"] * t["b"][0], {"c": t["b"][0]}]

    value, tangent = tb.jvp(f, (x,), (x,))
    value2, f_jvp = tb.linearize(f, x)

    assert tb.tree.structure(value) == tb.tree.structure(tangent)
    assert [2.0, 2.0] == tangent[0].tolist() == f_jvp(x)[0].tolist()
    assert tb.tree.structure(value2) == tb.tree.structure(f_jvp(x))


def test_integers_have_float0_tangents() -> None:
    """Integer arguments take float0 tangents; integer results give them."""

    def f(i: Any, x: Any) -> Any:
        return i + 1, i * x

    value, tangent = tb.jvp(f, (np.arange(3), 2.0), (np.zeros(3, tb.float0), 1.0))
    _, f_jvp = tb.linearize(f, np.arange(3), 2.0)

    assert [1, 2, 3] == value[0].tolist()
    assert tb.float0 == tangent[0].dtype
    assert (3,) == tangent[0].shape
    assert [0.0, 1.0, 2.0] == tangent[1].tolist()
    assert [0.0, 1.0, 2.0] == f_jvp(np.zeros(3, tb.float0), 1.0)[1].tolist()


def test_results_that_do_not_depend_on_arguments() -> None:
    """Their tangents are zeros of the result's shape and dtype."""
    value, tangent = tb.jvp(lambda x: (x, tnp.ones(3)), (1.0,), (1.0,))

    assert [0.0, 0.0, 0.0] == tangent[1].tolist()
    assert np.float32 == tangent[1].dtype
    assert 1.0 == float(value[0])


def test_auxiliary_data() -> None:
    """They follow the two results and hold no tracers."""

    def f(x: Any) -> Any:
        return x**2, (3 * x, "text")

    value, tangent, aux = tb.jvp(f, (2.0,), (1.0,), has_aux=True)
    value2, f_jvp, aux2 = tb.linearize(f, 2.0, has_aux=True)

    assert (4.0, 4.0, 6.0, "text") == (float(value), float(tangent), float(aux[0]), aux[1])
    assert (4.0, 4.0, 6.0, "text") == (float(value2), float(f_jvp(1.0)), float(aux2[0]), aux2[1])


def test_linear_function_is_a_pytree() -> None:
    """It can be an argument of a jitted function, which is compiled once for equal functions."""
    traces: list[int] = []

    @tb.jit
    def apply(f_jvp: Any, t: Any) -> Any:
        traces.append(1)
        return f_jvp(t)

    for x in (1.0, 2.0):
        _, f_jvp = tb.linearize(tnp.sin, np.float32(x))
        assert float(apply(f_jvp, np.float32(2))) == pytest.approx(2 * np.cos(x))

    assert [1] == traces


def test_jvp_of_jvp() -> None:
    """Forward over forward: the second derivative of x^3 is 6x."""

    def first(x: Any) -> Any:
        return tb.jvp(lambda y: y**3, (x,), (1.0,))[1]

    assert 12.0 == float(tb.jvp(first, (2.0,), (1.0,))[1])


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("primals", "tangents", "error", "words"),
    [
        (1.0, (1.0,), TreeMismatchError, "primals is a value of type float"),
        ((1.0,), np.ones(1), TreeMismatchError, "tangents is a value of type ndarray"),
        (
            (1.0, 2.0),
            (1.0,),
            TreeMismatchError,
            "a tuple of 1, primals is a tuple of 2",
        ),
        (([1.0],), ((1.0,),), TreeMismatchError, "different types: tangents\\[0\\]"),
        ((1.0,), (np.float16(1),), DtypeMismatchError, "tangents\\[0\\] has dtype float16"),
        ((1,), (1,), DtypeMismatchError, "int32, whose tangents have dtype float0"),
        ((1.0,), (FLOAT0,), DtypeMismatchError, "has dtype float0"),
        (
            (1.0,),
            (np.ones(2, np.float32),),
            ShapeMismatchError,
            r"tangents\[0\] has shape \(2,\)",
        ),
        (("a",), (1.0,), UnsupportedDtypeError, "primals\\[0\\] is 'a'"),
        ((1.0,), ("a",), UnsupportedDtypeError, "tangents\\[0\\] is 'a'"),
    ],
)
def test_wrong_tangents(primals: Any, tangents: Any, error: type[Exception], words: str) -> None:
    """The message names the leaf and both sides."""
    with pytest.raises(error, match=words) as caught:
        tb.jvp(lambda *x: x[0], primals, tangents)

    assert str(caught.value).startswith("jvp(<lambda>)")


def test_wrong_tangents_of_a_linearization() -> None:
    """The linear function checks its arguments like jvp."""
    _, f_jvp = tb.linearize(lambda x: x["a"], {"a": np.ones(2, np.float32)})

    with pytest.raises(TreeMismatchError, match=r"the linearization of <lambda>.*tangents\[0\]"):
        f_jvp({"b": np.ones(2, np.float32)})
    with pytest.raises(ShapeMismatchError, match=r"tangents\[0\]\['a'\] has shape \(3,\)"):
        f_jvp({"a": np.ones(3, np.float32)})
    with pytest.raises(TreeMismatchError):
        f_jvp()


def test_python_floats_fit_any_float_dtype() -> None:
    """A Python number as a tangent takes the dtype that is needed."""
    _, tangent = tb.jvp(lambda x: x * 2, (np.float16(1),), (1.0,))

    assert np.float16 == tangent.dtype


def test_has_aux_needs_a_pair() -> None:
    """As in grad."""
    with pytest.raises(GradientTypeError, match="needs a pair"):
        tb.jvp(lambda x: x, (1.0,), (1.0,), has_aux=True)


def test_function_must_be_callable() -> None:
    """Both functions check it first."""
    with pytest.raises(TypeError, match=r"^jvp: got 3"):
        tb.jvp(3, (1.0,), (1.0,))  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match=r"^linearize: got 3"):
        tb.linearize(3, 1.0)  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize("around", [lambda f: f, tb.jit], ids=["", "jit"])
def test_arguments_without_tangents_are_arrays(around: Any) -> None:
    """A function gets its integers as arrays of theirs."""
    seen: list[Any] = []

    def f(x: Any, n: Any) -> Any:
        seen.append(n)
        return x * n

    zero = np.zeros((), tb.float0)
    assert (6.0, 2.0) == around(lambda x: tb.jvp(f, (x, 2), (1.0, zero)))(3.0)
    assert isinstance(seen[0], tb.Array)


@pytest.mark.parametrize(("primals", "tangents"), [((1.0,), [1.0]), ([1.0], (1.0,))])
def test_primals_and_tangents_are_both_tuples_or_both_lists(primals: Any, tangents: Any) -> None:
    """They are trees of one structure."""
    with pytest.raises(TypeError, match="expected: two tuples or two lists"):
        tb.jvp(tnp.sin, primals, tangents)
