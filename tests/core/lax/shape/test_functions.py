"""Public functions that make and change shapes: arguments, results, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import tracebridge as tb
from tests.equations import equations_of
from tracebridge import lax
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import (
    AxisError,
    BroadcastError,
    RankError,
    ShapeMismatchError,
)
from tracebridge.core.interpreters.staging import stage

X = np.ones((2, 3), np.float32)

WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "reshape of another size": (
        lambda: lax.reshape(X, (4,)),
        ShapeMismatchError,
        r"cannot reshape array of shape \(2, 3\) \(size 6\) into shape \(4,\)",
    ),
    "reshape to a negative size": (
        lambda: lax.reshape(X, (-1,)),
        ShapeMismatchError,
        r"reshape: shape \(-1,\) has a negative size",
    ),
    "broadcast_in_dim of a size": (
        lambda: lax.broadcast_in_dim(X, (2, 4), (0, 1)),
        BroadcastError,
        r"cannot repeat shape \(2, 3\) to \(2, 4\)",
    ),
    "broadcast_in_dim to one axis twice": (
        lambda: lax.broadcast_in_dim(X, (3, 2), (1, 1)),
        BroadcastError,
        r"broadcast_dimensions \(1, 1\) must be 2 increasing axes",
    ),
    "broadcast to a negative size": (
        lambda: lax.broadcast(X, (2, -1)),
        ShapeMismatchError,
        "negative size",
    ),
    "broadcast_to_rank below the rank": (
        lambda: lax.broadcast_to_rank(X, 1),
        RankError,
        "has more than 1 axes",
    ),
    "broadcast_shapes": (
        lambda: lax.broadcast_shapes((2, 1), (3,), (4,)),
        BroadcastError,
        "sizes 3 and 4 differ",
    ),
    "transpose": (
        lambda: lax.transpose(X, (0, 0)),
        RankError,
        r"\(0, 0\) is not a permutation of the 2 axes of f32\[2,3\]",
    ),
    "squeeze of a longer axis": (
        lambda: lax.squeeze(X, (1,)),
        ShapeMismatchError,
        r"axis 1 of shape \(2, 3\) has size 3, expected 1",
    ),
    "squeeze out of range": (lambda: lax.squeeze(X, (2,)), AxisError, "squeeze: axis 2 is out"),
    "squeeze twice": (lambda: lax.squeeze(X[:1], (0, -2)), AxisError, "name an axis twice"),
    "expand_dims twice": (lambda: lax.expand_dims(X, (0, 0)), AxisError, "name an axis twice"),
    "expand_dims out of range": (lambda: lax.expand_dims(X, (5,)), AxisError, "axis 5 is out of"),
    "collapse of nothing": (lambda: lax.collapse(X, 1, 1), AxisError, "axes 1 to 1"),
    "roll out of range": (lambda: lax.roll(X, 1, 2), AxisError, "roll: axis 2 is out of bounds"),
    "rev out of range": (lambda: lax.rev(X, (2,)), AxisError, "rev: axis 2 is out of bounds"),
    "concatenate of nothing": (lambda: lax.concatenate([], 0), ShapeMismatchError, "no arrays"),
    "concatenate of dtypes": (
        lambda: lax.concatenate([X, X.astype(np.int32)], 0),
        DtypeMismatchError,
        r"same dtype, got f32\[2,3\], i32\[2,3\]",
    ),
    "concatenate of ranks": (
        lambda: lax.concatenate([X, X[0]], 0),
        RankError,
        "same number of axes",
    ),
    "concatenate of sizes": (
        lambda: lax.concatenate([X, X[:, :2]], 0),
        ShapeMismatchError,
        "sizes may differ along axis 0 alone",
    ),
    "concatenate along no axis": (
        lambda: lax.concatenate([X, X], 2),
        AxisError,
        "dimension 2 is out of bounds",
    ),
    "pad of another dtype": (
        lambda: lax.pad(X, np.int32(0), ((0, 0, 0), (0, 0, 0))),
        DtypeMismatchError,
        r"got f32\[2,3\] and i32\[\]",
    ),
    "pad with an array": (
        lambda: lax.pad(X, X[0], ((0, 0, 0), (0, 0, 0))),
        RankError,
        "padding_value must be a scalar",
    ),
    "pad of too few axes": (
        lambda: lax.pad(X, 0.0, ((0, 0, 0),)),
        RankError,
        "padding_config has 1 entries",
    ),
    "pad by pairs": (
        lambda: lax.pad(X, 0.0, ((0, 0), (0, 0))),
        ShapeMismatchError,
        r"needs \(low, high, interior\)",
    ),
    "pad with negative interior": (
        lambda: lax.pad(X, 0.0, ((0, 0, -1), (0, 0, 0))),
        ShapeMismatchError,
        "interior padding in padding_config must be nonnegative, got -1",
    ),
    "split": (
        lambda: lax.split(X, (1, 1), 1),
        ShapeMismatchError,
        r"sizes \(1, 1\) add up to 2, expected 3",
    ),
    "tile": (lambda: lax.tile(X, (2,)), RankError, "one count for each axis"),
    "iota of bool": (lambda: lax.iota(bool, 3), UnsupportedDtypeError, "got bool"),
    "iota of a negative size": (lambda: lax.iota("int32", -1), ShapeMismatchError, "negative"),
    "iota along no axis": (
        lambda: lax.broadcasted_iota("int32", (2,), 1),
        AxisError,
        "dimension 1 is out of bounds",
    ),
    "stack of nothing": (lambda: lax.stack([]), ShapeMismatchError, "got none"),
    "stack of ranks": (
        lambda: lax.stack([X, X[0]]),
        ShapeMismatchError,
        r"stack: .* got f32\[2,3\], f32\[3\]",
    ),
    "broadcast_like of more axes": (
        lambda: lax.broadcast_like(X, X[0]),
        BroadcastError,
        r"f32\[2,3\] has more axes than the shape \(3,\)",
    ),
    "full of an array": (lambda: lax.full((2,), X), RankError, "fill_value must be a scalar"),
    "full_like of an array": (lambda: lax.full_like(X, X), RankError, "must be a scalar"),
}


@pytest.mark.parametrize("name", WRONG)
def test_messages(name: str) -> None:
    """An error says what was called, what was got and what was expected."""
    call, error, message = WRONG[name]

    with pytest.raises(error, match=message):
        call()


@given(mutually_broadcastable_shapes(num_shapes=3, max_dims=3))
def test_broadcast_shapes_is_numpys(shapes: Any) -> None:
    """Shapes are aligned at the end."""
    assert shapes.result_shape == lax.broadcast_shapes(*shapes.input_shapes)


def test_broadcast_shapes_of_nothing() -> None:
    """No shapes, and equal ones."""
    assert lax.broadcast_shapes() == ()
    assert lax.broadcast_shapes((2, 3), [2, 3]) == (2, 3)
    assert lax.broadcast_shapes((0,), (1,)) == (0,)


@given(st.data())
def test_expand_dims_is_numpys(data: st.DataObject) -> None:
    """Positions are those of the result."""
    ndim = data.draw(st.integers(0, 2))
    count = data.draw(st.integers(0, 3))
    total = ndim + count
    axes = data.draw(st.permutations(range(total)))[:count]
    axes = tuple([a - total if data.draw(st.booleans()) else a for a in axes])
    x = np.zeros((2, 3)[:ndim], np.float32)

    assert np.expand_dims(x, axes).shape == lax.expand_dims(x, axes).shape


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float32", "bfloat16", "complex64"])
def test_iota_of_dtypes(dtype: str) -> None:
    """Positions are whole numbers of any numeric dtype."""
    found = lax.broadcasted_iota(dtype, (2, 4), 1)

    assert dtype == found.dtype.name
    np.testing.assert_array_equal(
        np.broadcast_to(np.arange(4), (2, 4)).astype(found.dtype), np.asarray(found)
    )


def test_full_takes_dtypes() -> None:
    """The dtype is that of the value, or the one given; Python scalars make weak types."""
    assert lax.full((2,), 1).dtype == np.int32
    assert tb.typeof(lax.full((2,), 1)).weak_type
    assert lax.full((2,), 1.5, "int8").tolist() == [1, 1]
    assert not tb.typeof(lax.full((2,), 1, "int8")).weak_type
    assert lax.full((), np.float32(2)).shape == ()
    assert lax.full(3, True).tolist() == [True, True, True]


def test_full_like_keeps_shape_and_dtype() -> None:
    """Only what is given differs from the model."""
    model = lax.full((2,), 3, "uint8")

    assert lax.full_like(model, 1.5).dtype == np.uint8
    assert lax.full_like(model, 1.5, "float32").tolist() == [1.5, 1.5]
    assert lax.full_like(model, 7, shape=(3, 1)).shape == (3, 1)
    assert tb.typeof(lax.full_like(2.0, 1)).weak_type
    assert not tb.typeof(lax.full_like(model, 1)).weak_type
    assert lax.zeros_like(model).tolist() == [0, 0]
    struct = tb.ShapeDtypeStruct((2,), np.float32)
    assert lax.full_like(struct, 1).tolist() == [1.0, 1.0]


def test_nothing_to_do_gives_the_array_itself() -> None:
    """Operations that change nothing cost nothing."""
    x = tb.device_put(X)

    assert lax.reshape(x, (2, 3)) is x
    assert lax.transpose(x, (0, 1)) is x
    assert lax.broadcast_in_dim(x, (2, 3), (0, 1)) is x
    assert lax.squeeze(x, ()) is x
    assert lax.slice(x, (0, 0), (2, 3)) is x


def test_numbers_become_arrays() -> None:
    """A Python number is an array of rank 0 to every function."""
    for result in (
        lax.reshape(2.0, ()),
        lax.broadcast_in_dim(2.0, (), ()),
        lax.transpose(2.0, ()),
        lax.squeeze(2.0, ()),
        lax.slice(2.0, (), ()),
    ):
        assert isinstance(result, tb.Array)
        assert float(result) == 2.0


@pytest.mark.parametrize("axis", [-2, -1, 0, 1])
def test_concatenate_counts_axes_from_the_end(axis: int) -> None:
    """As NumPy does; an axis further away is refused."""
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(np.concatenate([x, x], axis), lax.concatenate([x, x], axis))
    with pytest.raises(AxisError, match="dimension -3 is out of bounds"):
        lax.concatenate([x, x], -3)


def test_concatenate_of_an_array_joins_its_slices() -> None:
    """One array instead of a sequence."""
    x = tb.device_put(np.arange(6).reshape(3, 2))

    assert lax.concatenate(x, 0).tolist() == [0, 1, 2, 3, 4, 5]


def test_dims_may_be_numpy_integers() -> None:
    """Sizes and axes are normalised, so that they make no new programs."""
    program = stage(lambda x: [lax.reshape(x, np.array([3, 2]))], [tb.typeof(X)])
    (app,) = equations_of(program, "reshape")

    assert [int, int] == [type(n) for n in app.params["new_sizes"]]


def test_stack_and_unstack_are_numpys() -> None:
    """Slices along a new axis, there and back."""
    arrays = [np.full((2, 3), k, np.float32) for k in range(4)]

    for axis in (0, 1, -1):
        stacked = lax.stack(arrays, axis)
        np.testing.assert_array_equal(np.stack(arrays, axis), np.asarray(stacked))
        for want, found in zip(arrays, lax.unstack(stacked, axis), strict=True):
            np.testing.assert_array_equal(want, np.asarray(found))
    assert lax.unstack(np.zeros((0, 2), np.float32)) == ()


def test_broadcast_like_is_numpys() -> None:
    """Axes are aligned at the end, and the dtype stays."""
    found = lax.broadcast_like(np.array([[1], [2]], np.int8), np.zeros((3, 2, 4), np.float32))

    np.testing.assert_array_equal(
        np.broadcast_to(np.array([[1], [2]], np.int8), (3, 2, 4)), np.asarray(found)
    )
    assert found.dtype == np.int8


def test_empty_has_shape_and_dtype() -> None:
    """What the elements are does not matter."""
    found = lax.empty((2, 0), "bfloat16")

    assert (found.shape, found.dtype.name) == ((2, 0), "bfloat16")


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit, tb.vmap])
def test_scalars_have_no_axes_to_pad(wrap: Any) -> None:
    """Padding leaves a scalar as it is."""
    x = np.ones(2, np.float32) if wrap is tb.vmap else np.float32(1.0)
    same = wrap(lambda x: tb.lax.pad(x, 0.0, []))(x)

    np.testing.assert_array_equal(x, same)


@pytest.mark.parametrize(
    ("operand", "shape", "dims"), [((2, 3), (3, 2), (1, 0)), ((3, 1), (2, 3, 4), (1, 0)),
                                   ((2, 3, 4), (4, 2, 5, 3), (1, 3, 0))],
)  # fmt: skip
def test_broadcast_dimensions_in_any_order(
    operand: tuple[int, ...], shape: tuple[int, ...], dims: tuple[int, ...]
) -> None:
    """Axis i of the operand becomes axis dims[i] of the result; derivatives follow."""
    x = np.arange(np.prod(operand), dtype=np.float32).reshape(operand)
    order = sorted(range(len(dims)), key=dims.__getitem__)
    placed = x.transpose(order).reshape([x.shape[dims.index(k)] if k in dims else 1
                                         for k in range(len(shape))])  # fmt: skip
    f = lambda v: lax.broadcast_in_dim(v, shape, dims)

    np.testing.assert_array_equal(np.broadcast_to(placed, shape), f(x))
    repeats = np.prod(shape) / x.size
    np.testing.assert_allclose(2 * repeats * x, tb.grad(lambda v: (f(v) ** 2).sum())(x))


@pytest.mark.parametrize(("shift", "axis"), [(512, 0), (300, 0), (1, 0), (256, 1)])
def test_rolls_of_large_arrays(shift: int, axis: int) -> None:
    """By two blocks or by writing the shorter part, alone and fused with what reads them."""
    x = np.random.default_rng(0).standard_normal((1024, 512)).astype(np.float32)

    alone, fused = tb.jit(lambda x: (lax.roll(x, shift, axis), lax.roll(x, shift, axis) * x))(x)

    assert np.array_equal(alone, np.roll(x, shift, axis))
    assert np.array_equal(fused, np.roll(x, shift, axis) * x)


@pytest.mark.parametrize(("size", "shift"), [(20000, 1), (20000, 2000), (300000, 1), (8, 3)])
def test_rolls_of_vectors(size: int, shift: int) -> None:
    """Alone, minus the vector, and as rows of a matrix."""
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)

    def rolled(x: tb.Array) -> tuple[tb.Array, ...]:
        found = lax.roll(x, shift, 0)
        return found, found - x, lax.roll(x, shift, 0).reshape(-1, 4) * 2.0

    expected = np.roll(x, shift)
    wanted = expected, expected - x, expected.reshape(-1, 4) * 2
    for want, got in zip(wanted, tb.jit(rolled)(x), strict=True):
        assert np.array_equal(want, got)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_padding_of_keys(impl: str) -> None:
    """Around keys, between them and less of them, by one key or by one for each of a batch."""
    keys = tb.random.split(tb.random.key(0, impl=impl), 3)
    others = tb.random.split(tb.random.key(1, impl=impl), 2)
    words, more = (np.asarray(tb.random.key_data(k)) for k in (keys, others))

    def padded(value: Any) -> Any:
        return lax.pad(keys, value, [(2, -1, 1)])

    expected = [np.stack([w, w, words[0], w, words[1], w]) for w in more]
    np.testing.assert_array_equal(expected[0], tb.random.key_data(padded(others[0])))
    np.testing.assert_array_equal(expected, tb.random.key_data(tb.vmap(padded)(others)))
