"""all_gather, psum_scatter, ppermute, pshuffle, all_to_all, pswapaxes and axis_index over vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge import lax
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import AxisSpecError, UnboundAxisNameError
from tracebridge.testing import assert_allclose

Host = np.ndarray[Any, Any]


def sample(*shape: int) -> Host:
    """Distinct numbers."""
    return np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape).astype("f4")


def every_way(f: Callable[[Any], Any], x: Host, expected: Host) -> None:
    """Mapped over the first and the last axis, compiled inside and outside, with derivatives."""
    assert_allclose(tb.vmap(f, axis_name="i")(x), expected)
    moved = np.ascontiguousarray(np.moveaxis(x, 0, -1))
    assert_allclose(tb.vmap(f, in_axes=-1, axis_name="i")(moved), expected)
    assert_allclose(tb.vmap(tb.jit(f), axis_name="i")(x), expected)
    # An axis that the collective does not name, inside and outside the one it names.
    pairs = np.stack([x, x + 100], axis=1)
    both = np.stack([expected, np.asarray(tb.vmap(f, axis_name="i")(x + 100))], axis=1)
    assert_allclose(tb.vmap(tb.vmap(f, axis_name="k"), axis_name="i")(pairs), both)
    swapped = tb.vmap(tb.vmap(f, axis_name="i"), axis_name="k")(np.moveaxis(pairs, 1, 0))
    assert_allclose(swapped, np.moveaxis(both, 1, 0))
    check_grads(lambda x: tb.vmap(f, axis_name="i")(lax.sin(x)), (x.astype(np.float64),), order=1)
    # The transpose inside the map is the transpose of the map.
    ct = np.random.default_rng(1).normal(size=expected.shape).astype("f4")
    inside = tb.vmap(lambda x, ct: tb.vjp(f, x)[1](ct)[0], axis_name="i")(x, ct)
    outside = tb.vjp(tb.vmap(f, axis_name="i"), x)[1](ct)[0]
    assert_allclose(inside, outside, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_all_gather_stacks(axis: int) -> None:
    """Every element gets the whole mapped array."""
    x = sample(3, 4)
    whole = np.moveaxis(x, 0, axis)
    expected = np.broadcast_to(whole, (3, *whole.shape))

    every_way(lambda x: lax.all_gather(x, "i", axis=axis), x, expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_all_gather_concatenates(axis: int) -> None:
    """With tiled the elements are joined along an existing axis."""
    x = sample(3, 4, 2)
    whole = np.concatenate(list(x), axis=axis)

    every_way(
        lambda x: lax.all_gather(x, "i", axis=axis, tiled=True),
        x,
        np.broadcast_to(whole, (3, *whole.shape)),
    )


def test_all_gather_takes_what_types_would_say() -> None:
    """Without effect; what is no such word is named."""
    x = np.arange(3.0, dtype=np.float32)
    gather = tb.vmap(lambda x: lax.all_gather(x, "i", to="invarying"), axis_name="i")
    np.testing.assert_array_equal(np.tile(x, (3, 1)), gather(x))

    with pytest.raises(ArgumentValueError, match=r"all_gather: to is 'all'\n.*'invarying'"):
        lax.all_gather(x, "i", to="all")


@pytest.mark.parametrize("axis", [0, 1])
def test_psum_scatter(axis: int) -> None:
    """Element i keeps row i of the sum."""
    x = sample(3, 3, 3)

    every_way(
        lambda x: lax.psum_scatter(x, "i", scatter_dimension=axis),
        x,
        np.moveaxis(x.sum(0), axis, 0),
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_psum_scatter_in_tiles(axis: int) -> None:
    """Element i keeps part i of the axis of the sum."""
    x = sample(3, 6, 6)

    every_way(
        lambda x: lax.psum_scatter(x, "i", scatter_dimension=axis, tiled=True),
        x,
        np.stack(np.split(x.sum(0), 3, axis=axis)),
    )


def test_ppermute() -> None:
    """Values go from sources to destinations; who receives nothing gets zeros."""
    x = sample(4, 2)
    expected = np.zeros_like(x)
    expected[2], expected[0], expected[1] = x[0], x[2], x[1]

    every_way(lambda x: lax.ppermute(x, "i", [(0, 2), (2, 0), (1, 1)]), x, expected)


def test_pshuffle() -> None:
    """Element i gets the value of element perm[i]."""
    x = sample(3, 2)

    every_way(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), x, x[[2, 0, 1]])


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0), (1, 1), (0, -1)])
def test_all_to_all(split: int, concat: int) -> None:
    """The mapped axis and the split axis change places; the former lies at concat_axis."""
    x = sample(3, 3, 3, 2)
    parts = np.moveaxis(x, split + 1, 0)
    expected = np.moveaxis(parts, 1, concat % 3 + 1)

    every_way(lambda x: lax.all_to_all(x, "i", split, concat), x, expected)


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0)])
def test_all_to_all_in_tiles(split: int, concat: int) -> None:
    """Parts of the split axis are joined along the axis concat_axis."""
    x = sample(3, 6, 6)
    parts = [np.split(element, 3, axis=split) for element in x]
    expected = np.stack([np.concatenate([p[i] for p in parts], axis=concat) for i in range(3)])

    every_way(lambda x: lax.all_to_all(x, "i", split, concat, tiled=True), x, expected)


def test_pswapaxes() -> None:
    """The mapped axis changes places with an array axis."""
    x = sample(3, 2, 3)

    every_way(lambda x: lax.pswapaxes(x, "i", 1), x, np.swapaxes(x, 0, 2))


def test_exchanges_of_values_that_do_not_depend_on_the_element() -> None:
    """Constants are repeated along the axis first."""
    c = sample(3, 3)

    def f(x: Any) -> Any:
        return (
            lax.all_gather(c, "i"),
            lax.psum_scatter(c, "i"),
            lax.ppermute(c, "i", [(0, 1)]),
            lax.all_to_all(c, "i", 0, 0),
        )

    gathered, scattered, permuted, exchanged = tb.vmap(f, axis_name="i")(np.zeros(3, np.float32))

    assert_allclose(gathered, np.broadcast_to(c, (3, 3, 3, 3)))
    assert_allclose(scattered, 3 * c)
    assert_allclose(permuted, np.stack([0 * c, c, 0 * c]))
    assert_allclose(exchanged, np.broadcast_to(c[:, None], (3, 3, 3)))


def test_axis_index() -> None:
    """Positions along one axis, and along several of which the last runs fastest."""
    x = np.zeros((2, 3), np.float32)

    def f(x: Any) -> Any:
        return lax.axis_index("i"), lax.axis_index("j"), lax.axis_index(("i", "j"))

    i, j, both = tb.vmap(tb.jit(tb.vmap(f, axis_name="j")), axis_name="i")(x)

    assert [[0, 0, 0], [1, 1, 1]] == i.tolist()
    assert [[0, 1, 2], [0, 1, 2]] == j.tolist()
    assert [[0, 1, 2], [3, 4, 5]] == both.tolist()
    assert np.int32 == both.dtype


def test_axis_index_under_other_transformations() -> None:
    """Differentiation, inside or outside, does not hide the axis."""

    def f(x: Any) -> Any:
        return x * lax.convert_element_type(lax.axis_index("i"), np.float32)

    x = np.ones(3, np.float32)

    assert [0.0, 1.0, 2.0] == tb.vmap(tb.grad(f), axis_name="i")(x).tolist()
    total = tb.grad(lambda x: tb.vmap(f, axis_name="i")(x).sum())
    assert [0.0, 1.0, 2.0] == total(x).tolist()


def test_errors() -> None:
    """What is refused, and why."""
    x = np.zeros((3, 4), np.float32)

    def mapped(f: Callable[[Any], Any]) -> None:
        tb.vmap(f, axis_name="i")(x)

    for call in (
        lambda: lax.all_gather(x, "i"),
        lambda: lax.psum_scatter(x, "i"),
        lambda: lax.ppermute(x, "i", []),
        lambda: lax.pshuffle(x, "i", []),
        lambda: lax.all_to_all(x, "i", 0, 0),
        lambda: lax.axis_index("i"),
    ):
        with pytest.raises(UnboundAxisNameError, match="unbound axis name: i"):
            call()
    with pytest.raises(AxisError, match="all_gather: axis 2 is out of bounds"):
        mapped(lambda x: lax.all_gather(x, "i", axis=2))
    with pytest.raises(ShapeMismatchError, match=r"psum_scatter: axis 0 of f32\[4\] must be equal"):
        mapped(lambda x: lax.psum_scatter(x, "i"))
    with pytest.raises(UnsupportedDtypeError, match="psum_scatter works on numbers, got bool"):
        mapped(lambda x: lax.psum_scatter(x[:3] > 0, "i"))
    with pytest.raises(ShapeMismatchError, match="must be a multiple of the size 3"):
        mapped(lambda x: lax.psum_scatter(x, "i", tiled=True))
    with pytest.raises(ShapeMismatchError, match=r"all_to_all: axis 0 of f32\[4\] must have the"):
        mapped(lambda x: lax.all_to_all(x, "i", 0, 0))
    with pytest.raises(ShapeMismatchError, match=r"all_to_all: axis 0 .* must be a multiple of"):
        mapped(lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True))
    with pytest.raises(AxisSpecError, match="must name each destination once"):
        mapped(lambda x: lax.ppermute(x, "i", [(0, 1), (2, 1)]))
    with pytest.raises(AxisSpecError, match="is not a permutation of range"):
        mapped(lambda x: lax.pshuffle(x, "i", [0, 0, 1]))
    with pytest.raises(AxisSpecError, match="do not split the axis 'i' of size 3"):
        mapped(lambda x: lax.all_gather(x, "i", axis_index_groups=[[0, 1]]))
    with pytest.raises(AxisSpecError, match="got no axis name"):
        mapped(lambda x: lax.all_gather(x, ()))


def test_psend_and_precv_are_ppermute() -> None:
    """Of trees, through a barrier and a loop, with zeros where nothing arrives."""
    x, pairs = sample(3, 4), [(0, 1), (1, 2)]

    def exchange(x: Any) -> Any:
        sent = lax.optimization_barrier(lax.psend({"a": x}, "i", pairs))
        sent = lax.fori_loop(0, 2, lambda _, s: s, sent)
        return lax.precv(sent, {"a": tb.ShapeDtypeStruct((4,), x.dtype)}, "i", pairs[::-1])["a"]

    every_way(exchange, x, np.stack([0 * x[0], x[0], x[1]]))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"token": lax.create_token()}, TypeError, "precv: the token is of type Array: nothing"),
        ({"perm": [(1, 0)]}, ValueError, r"\(\(1, 0\),\)\) for <sent over 'i' along \[\(0, 1\)\]>"),
        ({"axis_name": "j"}, ValueError, r"\('j',\)"),
        ({"out_shape": tb.ShapeDtypeStruct((2,), "f4")}, ShapeMismatchError, r"\['float32\[\]'\]"),
        ({"out_shape": tb.ShapeDtypeStruct((), "i4")}, ShapeMismatchError, "int32"),
    ],
)
def test_precv_takes_what_was_sent(change: Any, error: Any, text: str) -> None:
    """The message says what is on its way."""

    def exchange(x: Any) -> Any:
        kept = {"token": lax.psend(x, "i", [(0, 1)]), "out_shape": x, "axis_name": "i"}
        return lax.precv(**{**kept, "perm": [(0, 1)], **change})

    with pytest.raises(error, match=text):
        tb.vmap(exchange, axis_name="i")(np.zeros(2, np.float32))


def test_pcast_computes_nothing() -> None:
    """Values and derivatives stay, over any axes, and the axis must be there."""
    every_way(lambda x: lax.pcast(x, "i", to="varying"), sample(3, 4), sample(3, 4))
    with pytest.raises(UnboundAxisNameError, match="pcast"):
        lax.pcast(1.0, "i", to="varying")
    with pytest.raises(ArgumentValueError, match="to='wide', expected one of 'varying'"):
        tb.vmap(lambda x: lax.pcast(x, "i", to="wide"), axis_name="i")(np.zeros(2))
