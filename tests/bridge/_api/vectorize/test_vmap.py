"""vmap: axes, sizes, names, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    AxisSizeError,
    AxisSpecError,
    TreeMismatchError,
    UnboundAxisNameError,
    UnsupportedDtypeError,
)

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def stacked(f: Any, *args: Any, axis: int = 0) -> Any:
    """What vmap must give, by a loop."""
    return np.stack([np.asarray(f(*xs)) for xs in zip(*args, strict=True)], axis)


def test_mapping_is_stacking() -> None:
    """The elements' results, stacked."""

    def f(x: Any, y: Any) -> Any:
        return tnp.sum(tnp.sin(x) * y)

    np.testing.assert_allclose(tb.vmap(f)(A, A + 1), stacked(f, A, A + 1), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_axes_of_arguments(axis: int) -> None:
    """Negative axes count from the last."""
    actual = tb.vmap(tnp.cumsum, in_axes=axis)(A)

    np.testing.assert_allclose(actual, stacked(np.cumsum, np.moveaxis(A, axis, 0)))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_axes_of_results(axis: int) -> None:
    """out_axes says where the mapped axis goes."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    actual = tb.vmap(lambda x: 2 * x, out_axes=axis)(x)

    np.testing.assert_array_equal(actual, np.moveaxis(2 * x, 0, axis))


def test_none_is_not_mapped() -> None:
    """Arguments with None are the same for all elements."""
    actual = tb.vmap(lambda x, y: x * y, in_axes=(0, None))(A, A[0])

    np.testing.assert_array_equal(actual, A * A[0])


def test_unmapped_arguments_may_be_anything() -> None:
    """They reach the function as they are."""
    actual = tb.vmap(lambda x, name, t: x * t["k"] if name == "double" else x, (0, None, None))(
        A, "double", {"k": 2, "other": object()}
    )

    np.testing.assert_array_equal(actual, 2 * A)


def test_axes_for_parts_of_trees() -> None:
    """An entry of in_axes or out_axes is a prefix of the tree that it is for."""
    tree = {"x": A, "pair": (A.T, np.float32(2))}

    def f(t: Any, k: Any) -> Any:
        return {"sum": t["x"] + t["pair"][0], "rest": [t["x"] * t["pair"][1], k]}

    in_axes = ({"x": 0, "pair": (1, None)}, None)
    actual = tb.vmap(f, in_axes=in_axes, out_axes={"sum": 1, "rest": [0, None]})(tree, 5.0)

    np.testing.assert_array_equal(actual["sum"], 2 * A.T)
    np.testing.assert_array_equal(actual["rest"][0], 2 * A)
    assert 5.0 == float(actual["rest"][1])


def test_a_list_may_stand_for_the_tuple_of_axes() -> None:
    """Users write in_axes either way."""
    np.testing.assert_array_equal(tb.vmap(lambda x, y: x + y, in_axes=[0, 0])(A, A), 2 * A)


def test_keywords_are_mapped_over_their_first_axis() -> None:
    """They have no entry in in_axes."""
    actual = tb.vmap(lambda x, y: x * y, in_axes=(1,))(A, y=np.arange(3, dtype=np.float32))

    np.testing.assert_array_equal(actual, A.T * np.arange(3)[:, None])


def test_constant_results_are_repeated() -> None:
    """A result that does not depend on mapped arguments gets the axis all the same."""
    ones, scalar = tb.vmap(lambda x: (tnp.ones(2), 7))(A)

    np.testing.assert_array_equal(ones, np.ones((2, 2)))
    assert [7, 7] == scalar.tolist()
    assert np.int32 == scalar.dtype


def test_size_without_mapped_arguments() -> None:
    """axis_size makes a batch of constants; it must agree with mapped arguments."""
    actual = tb.vmap(lambda x: x + 1, in_axes=None, axis_size=3)(1.0)

    assert [2.0, 2.0, 2.0] == actual.tolist()
    np.testing.assert_array_equal(tb.vmap(lambda x: x, axis_size=2)(A), A)


def test_named_axes_in_collectives() -> None:
    """axis_name binds collectives; nested names are told apart."""
    mean = tb.vmap(lambda x: x - tb.lax.pmean(x, "batch"), axis_name="batch")(A[:, 0])
    both = tb.vmap(tb.vmap(lambda x: tb.lax.psum(x, ("i", "j")), axis_name="j"), axis_name="i")(A)

    assert [-1.5, 1.5] == mean.tolist()
    np.testing.assert_array_equal(both, np.full_like(A, A.sum()))


def test_nested_maps() -> None:
    """An outer product by two maps."""
    outer = tb.vmap(tb.vmap(lambda x, y: x * y, (None, 0)), (0, None))

    np.testing.assert_array_equal(outer(A[0], A[1]), np.outer(A[0], A[1]))


def test_compositions() -> None:
    """Per-example gradients, compiled and not, and the gradient of a mapped function."""
    w = np.array([1.0, -2.0, 0.5], np.float32)

    def loss(w: Any, x: Any) -> Any:
        return tnp.tanh(w @ x)

    per_example = tb.vmap(tb.grad(loss), in_axes=(None, 0))
    expected = stacked(lambda x: np.asarray(tb.grad(loss)(w, x)), A)
    total = tb.grad(lambda w: tnp.sum(tb.vmap(loss, in_axes=(None, 0))(w, A)))

    np.testing.assert_allclose(per_example(w, A), expected, rtol=1e-5)
    np.testing.assert_allclose(tb.jit(per_example)(w, A), expected, rtol=1e-5)
    np.testing.assert_allclose(total(w), expected.sum(0), rtol=1e-5)


def test_decorated_name_is_kept() -> None:
    """A mapped function is called like its function; its documentation says that it is mapped."""

    def norm(x: Any) -> Any:
        """Documented."""
        return x

    mapped = tb.vmap(norm)

    assert "norm" == mapped.__name__
    assert mapped.__doc__.startswith("norm, vectorized.")
    assert mapped.__doc__.endswith("Documented.")


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_axes", ["0", 1.5, True, {"x": 0}, (0, "1"), object()])
def test_axes_are_ints(in_axes: Any) -> None:
    """Anything else is refused when the mapped function is made."""
    with pytest.raises(AxisSpecError, match=r"^vmap in_axes must be an int, None, or"):
        tb.vmap(lambda x: x, in_axes=in_axes)
    if not isinstance(in_axes, dict):
        with pytest.raises(AxisSpecError, match=r"^vmap out_axes must be an int, None, or"):
            tb.vmap(lambda x: x, out_axes=in_axes)


def test_wrong_number_of_axes() -> None:
    """in_axes has one entry per positional argument."""
    with pytest.raises(
        AxisSpecError, match=r"vmap\(<lambda>\): in_axes has 1 entries, .* 2 positional"
    ):
        tb.vmap(lambda x, y: x, in_axes=(0,))(A, A)


def test_axes_must_fit_the_tree() -> None:
    """The message shows the place that differs."""
    with pytest.raises(TreeMismatchError, match=r"in_axes\[0\] .*args\[0\]"):
        tb.vmap(lambda t: t["a"], in_axes=({"b": 0},))({"a": A})
    with pytest.raises(TreeMismatchError, match=r"out_axes.*the result"):
        tb.vmap(lambda x: x, out_axes=(0, 0))(A)


def test_axis_out_of_range() -> None:
    """Names the argument, its type, and the axes that it has."""
    with pytest.raises(AxisSpecError) as caught:
        tb.vmap(lambda t: t, in_axes=2)({"a": A})
    assert "axis 2 of argument t['a'] is to be mapped, but it is f32[2,3]" in str(caught.value)
    assert "expected: an axis from -2 to 1" in str(caught.value)

    with pytest.raises(AxisSpecError, match=r"argument k is.*f32\[\](.|\n)*a scalar has no axis"):
        tb.vmap(lambda x, k: x)(A, k=1.0)


def test_sizes_differ() -> None:
    """All mapped arguments are listed with their sizes."""
    with pytest.raises(AxisSizeError) as caught:
        tb.vmap(lambda x, y, z: x, in_axes=(0, 1, None))(A, A, A)

    text = str(caught.value)
    assert "argument x has size 2 at axis 0 of f32[2,3]" in text
    assert "argument y has size 3 at axis 1 of f32[2,3]" in text
    assert "argument z" not in text

    with pytest.raises(AxisSizeError, match=r"axis_size=5\n.*argument x has size 2"):
        tb.vmap(lambda x: x, axis_size=5)(A)


def test_no_size() -> None:
    """Without a mapped argument axis_size is needed."""
    with pytest.raises(AxisSizeError, match="no argument is mapped"):
        tb.vmap(lambda x: x, in_axes=None)(A)
    with pytest.raises(AxisSizeError, match="no array argument"):
        tb.vmap(lambda: 1)()


def test_mapped_result_cannot_lose_its_axis() -> None:
    """out_axes=None is for results that are the same for all elements."""
    with pytest.raises(AxisSpecError, match=r"out_axes is None for the result\['a'\]"):
        tb.vmap(lambda x: {"a": x}, out_axes=None)(A)


def test_mapped_results_may_be_summed() -> None:
    """With sum_match a result without out_axes is the sum over the elements."""
    f = tb.vmap(lambda x, y: (x, {"y": y}), (1, None), (None, None), sum_match=True)
    x, rest = f(A, 2.0)

    np.testing.assert_array_equal(x, A.sum(1))
    assert 2.0 == rest["y"]
    gradient = tb.grad(lambda a: tnp.sum(f(a, 2.0)[0] ** 2))(A)
    np.testing.assert_array_equal(gradient, np.repeat(2 * A.sum(1)[:, None], 3, 1))


@pytest.mark.parametrize("name", ["x", ("x", "y"), 3])
def test_axes_of_a_mesh_change_nothing_on_one_device(name: Any) -> None:
    """spmd_axis_name is a name or a tuple of names."""
    np.testing.assert_array_equal(tb.vmap(lambda x: 2 * x, spmd_axis_name=name)(A), 2 * A)
    with pytest.raises(AxisSpecError, match="spmd_axis_name is"):
        tb.vmap(lambda x: x, spmd_axis_name=[name])


def test_axis_of_result_out_of_range() -> None:
    """The message shows the shape of one element's result."""
    with pytest.raises(
        AxisSpecError, match=r"out_axes is 2 for the result, .* is \(3,\)\n.*from -2 to 1"
    ):
        tb.vmap(lambda x: x, out_axes=2)(A)


def test_arguments_and_results_must_be_arrays() -> None:
    """The leaf is named."""
    with pytest.raises(UnsupportedDtypeError, match=r"'a' of type str"):
        tb.vmap(lambda x: x)("a")
    with pytest.raises(UnsupportedDtypeError, match=r"the result\[1\] is 'a' of type str"):
        tb.vmap(lambda x: (x, "a"))(A)


def test_unknown_axis_name() -> None:
    """A collective outside of the map that binds its axis."""
    with pytest.raises(UnboundAxisNameError, match="unbound axis name: j"):
        tb.vmap(lambda x: tb.lax.psum(x, "j"), axis_name="i")(A)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"axis_size": -1}, "axis_size is -1"),
        ({"axis_size": 2.0}, "axis_size is 2.0 of type float"),
        ({"axis_size": "two"}, "axis_size is 'two'"),
        ({"axis_size": True}, "axis_size is True"),
        ({"axis_name": ["i"]}, r"axis_name is \['i'\]"),
    ],
)
def test_wrong_sizes_and_names(options: Any, words: str) -> None:
    """Found before the call."""
    with pytest.raises(AxisSpecError, match=words):
        tb.vmap(lambda x: x, **options)


@pytest.mark.parametrize("size", [np.int64(2), np.array(2), tnp.int32(2)])
def test_sizes_that_are_no_python_ints(size: Any) -> None:
    """Any integer is a size."""
    np.testing.assert_array_equal(tb.vmap(lambda x: x, axis_size=size)(A), A)
    assert (2,) == tb.vmap(lambda: 1.0, axis_size=size)().shape


@pytest.mark.parametrize("axes", [{"in_axes": (tnp.arange(2),)}, {"out_axes": tnp.int32(0)}])
def test_arrays_are_no_axes(axes: Any) -> None:
    """Not even those that Python takes as an index."""
    with pytest.raises(AxisSpecError, match="of type Array"):
        tb.vmap(lambda x: x, **axes)(A)
