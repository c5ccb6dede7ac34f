"""psum, pmean, pmax, pmin and pbroadcast over vmap axes are reductions of the stacked array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge import lax
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError
from tracebridge.core.errors.transform_errors import AxisSpecError, UnboundAxisNameError
from tracebridge.testing import assert_allclose

Host = np.ndarray[Any, Any]
REDUCTIONS = {
    "psum": (lax.psum, np.sum),
    "pmean": (lax.pmean, np.mean),
    "pmax": (lax.pmax, np.max),
    "pmin": (lax.pmin, np.min),
}


def sample(*shape: int, dtype: Any = np.float32) -> Host:
    """Distinct numbers."""
    return np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape).astype(dtype)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduces_the_mapped_axis(name: str, axis: int) -> None:
    """Every element gets the reduction over the mapped axis; jit inside or outside agrees."""
    ours, numpys = REDUCTIONS[name]
    x = sample(3, 4)
    expected = np.broadcast_to(numpys(x, axis=axis), (x.shape[axis], x.shape[1 - axis % 2]))

    def f(x: Any) -> Any:
        return ours(x, "i")

    assert_allclose(tb.vmap(f, in_axes=axis, axis_name="i")(x), expected)
    assert_allclose(tb.vmap(tb.jit(f), in_axes=axis, axis_name="i")(x), expected)
    assert_allclose(tb.jit(tb.vmap(f, in_axes=axis, axis_name="i"))(x), expected)


@pytest.mark.parametrize("names", ["i", "j", ("i", "j"), ("j", "i")], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_nested_axes(name: str, names: Any) -> None:
    """A collective reduces the axes it names and maps over the others."""
    ours, numpys = REDUCTIONS[name]
    x = sample(2, 3, 4)
    axes = {"i": (0,), "j": (1,)}.get(names, (0, 1))

    inner = tb.vmap(lambda x: ours(x, names), axis_name="j")
    result = tb.vmap(inner, axis_name="i")(x)

    assert_allclose(result, np.broadcast_to(numpys(x, axis=axes, keepdims=True), x.shape))


@pytest.mark.parametrize(
    ("name", "expected"), [("psum", 15.0), ("pmean", 5.0), ("pmax", 5.0), ("pmin", 5.0)]
)
def test_values_that_do_not_depend_on_the_element(name: str, expected: float) -> None:
    """A constant counts once per element."""
    result = tb.vmap(
        lambda x: REDUCTIONS[name][0](np.full(2, 5, np.float32), "i") + 0 * x, axis_name="i"
    )(np.zeros(3, np.float32))

    assert [[expected] * 2] * 3 == result.tolist()


def test_sum_of_a_python_number_is_a_python_number() -> None:
    """psum(1, name) is the size of the axis, known while tracing."""
    seen: list[Any] = []
    tb.vmap(lambda x: (seen.append(lax.psum(1, "i")), x)[1], axis_name="i")(np.zeros(3, np.float32))
    tb.vmap(lambda x: seen.append(lax.psum((x, 1), "i")[1]), axis_name="i")(np.zeros(3, np.float32))

    assert [3, 3] == seen
    assert [int, int] == [type(n) for n in seen]


def test_axis_size() -> None:
    """The size of one axis, or of several together."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append((lax.axis_size("i"), lax.axis_size("j"), lax.axis_size(("i", "j"))))
        return x

    tb.vmap(tb.vmap(f, axis_name="j"), axis_name="i")(np.zeros((2, 3), np.float32))

    assert [(2, 3, 6)] == seen


def test_inner_axis_shadows_an_outer_one_of_the_same_name() -> None:
    """A name means the innermost axis that has it."""
    x = sample(2, 3)

    result = tb.vmap(tb.vmap(lambda x: lax.psum(x, "i"), axis_name="i"), axis_name="i")(x)

    assert_allclose(result, np.broadcast_to(x.sum(1, keepdims=True), x.shape))


def test_trees_and_array_axes() -> None:
    """Leaves are reduced one by one; ints among the names are axes of the arrays."""
    x = sample(2, 3, 4)

    result = tb.vmap(lambda x: lax.psum({"a": x, "b": (x, 2 * x)}, ("i", 1)), axis_name="i")(x)

    expected = np.broadcast_to(x.sum((0, 2)), (2, 3))
    assert_allclose(result, {"a": expected, "b": (expected, 2 * expected)})


def test_dtypes() -> None:
    """Booleans are counted, means of integers are floats, integers stay."""
    x = np.array([1, 2, 4], np.int32)

    def f(x: Any) -> Any:
        return lax.psum(x > 1, "i"), lax.pmean(x, "i"), lax.psum(x, "i"), lax.pmean(x > 1, "i")

    count, mean, total, share = tb.vmap(f, axis_name="i")(x)

    assert [(2, "int32"), (7, "int32")] == [(int(v[0]), str(v.dtype)) for v in (count, total)]
    assert_allclose(mean, np.full(3, 7 / 3, np.float32), check_dtype=True)
    assert_allclose(share, np.full(3, 2 / 3, np.float32), check_dtype=True)


def test_extremes_of_booleans_are_booleans() -> None:
    """pmax is "any", pmin is "all"."""
    x = np.array([True, False, True])

    largest, smallest = tb.vmap(lambda x: (lax.pmax(x, "i"), lax.pmin(x, "i")), axis_name="i")(x)

    assert [True] * 3 == largest.tolist()
    assert [False] * 3 == smallest.tolist()
    assert "bool" == str(largest.dtype)


@pytest.mark.parametrize("name", ["psum", "pmean", "pmax"])
def test_groups(name: str) -> None:
    """Groups of elements are reduced on their own."""
    ours, numpys = REDUCTIONS[name]
    x = sample(4, 3)
    groups = [[0, 2], [3, 1]]
    expected = np.empty_like(x)
    for group in groups:
        expected[group] = numpys(x[group], axis=0)

    result = tb.vmap(lambda x: ours(x, "i", axis_index_groups=groups), axis_name="i")(x)

    assert_allclose(result, expected)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_derivatives_through_the_mapped_function(name: str) -> None:
    """Differentiating outside vmap gives the derivative of the reduction."""
    ours = REDUCTIONS[name][0]

    def f(x: Any) -> Any:
        return tb.vmap(lambda x: lax.sin(ours(x, "i")) * x, axis_name="i")(x)

    check_grads(f, (sample(3, 2).astype(np.float64) / 3,), order=2)


def test_gradient_of_one_element_sums_over_all_outputs() -> None:
    """Differentiating inside vmap: the transpose of a sum over the axis is such a sum."""
    x = sample(3)

    assert [3.0] * 3 == tb.vmap(tb.grad(lambda x: lax.psum(x, "i")), axis_name="i")(x).tolist()
    assert [1.0] * 3 == tb.vmap(tb.grad(lambda x: lax.pmean(x, "i")), axis_name="i")(x).tolist()
    squares = tb.vmap(tb.grad(lambda x: lax.psum(x * x, "i")), axis_name="i")(x)
    assert_allclose(squares, 3 * 2 * x)


def test_ties_share_the_derivative() -> None:
    """Elements that are equally large get equal parts."""
    x = np.array([1.0, 4.0, 4.0], np.float32)

    gradient = tb.grad(lambda x: tb.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(x)[0])(x)

    assert [0.0, 0.5, 0.5] == gradient.tolist()


def test_pbroadcast_gives_all_the_value_of_one() -> None:
    """Also booleans, and negative positions."""
    x = sample(3, 2)

    def f(x: Any) -> Any:
        return lax.pbroadcast(x, "i", 1), lax.pbroadcast(x > 2, "i", -1)

    values, flags = tb.vmap(f, axis_name="i")(x)

    assert_allclose(values, np.broadcast_to(x[1], x.shape))
    assert np.broadcast_to(x[2] > 2, x.shape).tolist() == flags.tolist()


def test_errors() -> None:
    """Unbound names are named, with those that are bound."""
    x = np.zeros(3, np.float32)
    with pytest.raises(UnboundAxisNameError, match=r"psum: unbound axis name: i.*here: none"):
        lax.psum(x, "i")
    with pytest.raises(UnboundAxisNameError, match=r"pmax: unbound axis name: j.*here: 'i'"):
        tb.vmap(lambda x: lax.pmax(x, ("i", "j")), axis_name="i")(x)
    with pytest.raises(UnboundAxisNameError, match="axis_size: unbound axis name: k"):
        lax.axis_size("k")
    for repeated in (lax.psum, lax.pmean, lax.pmax, lax.all_gather):
        with pytest.raises(AxisSpecError, match=r"names \('i', 'i'\) contain one twice"):
            tb.vmap(lambda x, f=repeated: f(x, ("i", "i")), axis_name="i")(x)
    with pytest.raises(AxisSpecError, match="do not split the axis 'i' of size 3"):
        tb.vmap(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1]]), axis_name="i")(x)
    with pytest.raises(AxisError, match="source 3 is not a position of axis 'i'"):
        tb.vmap(lambda x: lax.pbroadcast(x, "i", 3), axis_name="i")(x)
    with pytest.raises(UnsupportedDtypeError, match="pmax does not work on complex64"):
        tb.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(x.astype(np.complex64))


def test_a_program_may_not_leave_its_axis() -> None:
    """A jitted function traced under an axis is traced again without it, and then refused."""
    f = tb.jit(lambda x: lax.psum(x, "i"))
    x = np.ones(2, np.float32)

    assert [2.0, 2.0] == tb.vmap(f, axis_name="i")(x).tolist()
    with pytest.raises(UnboundAxisNameError):
        f(x)
    assert [3.0] * 3 == tb.vmap(f, axis_name="i")(np.ones(3, np.float32)).tolist()
