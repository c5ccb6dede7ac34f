"""Functions that give dtypes, facts about dtypes, or Python numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors
from tracebridge.errors import BroadcastError


@pytest.mark.parametrize("x", [1.0, [1, 2], np.ones((2, 3)), np.ones((0, 2))])
def test_shape_ndim_and_size(x):
    """They are NumPy's, for arrays, tracers and array-likes."""
    assert np.shape(x) == tnp.shape(x)
    assert np.ndim(x) == tnp.ndim(x)
    assert np.size(x) == tnp.size(x)
    shapes = []
    tb.jit(lambda a: shapes.append((tnp.shape(a), tnp.ndim(a), tnp.size(a))))(np.asarray(x))
    assert [(np.shape(x), np.ndim(x), np.size(x))] == shapes


def test_nothing_is_one_object():
    """As in NumPy."""
    assert ((), 0, 1) == (tnp.shape(None), tnp.ndim(None), tnp.size(None))


@pytest.mark.parametrize("x", [np.ones(2, np.int8), tnp.ones(2, "int8")], ids=["numpy", "ours"])
def test_arrays_are_no_dtypes(x: Any) -> None:
    """A value in the place of a dtype is refused wherever it stands, also while tracing."""
    calls: dict[str, Callable[[Any], Any]] = {
        "ones": lambda x: tnp.ones(2, x),
        "zeros_like": lambda x: tnp.zeros_like(np.ones(2), x),
        "array": lambda x: tnp.array([1], x),
        "astype": lambda x: tnp.ones(2).astype(x),
        "convert_element_type": lambda x: tb.lax.convert_element_type(1.0, x),
        "uniform": lambda x: tb.random.uniform(tb.random.key(0), (2,), x),
        "sum": lambda x: tnp.sum(np.ones(2), dtype=x),
    }
    for name, call in calls.items():
        for run in (call, tb.jit(call)):
            with pytest.raises(errors.UnsupportedDtypeError, match=r"x\.dtype") as caught:
                run(x)
            assert name in str(caught.value) or name in ("sum", "zeros_like")


def test_size_along_axes():
    """An axis, or several."""
    assert 3 == tnp.size(np.ones((2, 3)), 1)
    assert 2 == tnp.size(np.ones((2, 3)), -2)


def test_broadcast_shapes():
    """NumPy's rule; the error says which axis."""
    assert (2, 4, 3) == tnp.broadcast_shapes((4, 1), (2, 1, 3), ())
    with pytest.raises(BroadcastError, match=r"broadcast_shapes.*\(2,\).*\(3,\)"):
        tnp.broadcast_shapes((2,), (3,))


@pytest.mark.parametrize(
    ("x", "is_scalar", "is_iterable"),
    [
        (1, True, False),
        (2.5, True, False),
        ([1], False, True),
        (np.float32(1), True, False),
        (np.array(1.0), True, False),
        (np.ones(1), False, True),
    ],
)
def test_isscalar_and_iterable(x, is_scalar, is_iterable):
    """Scalars of Python and NumPy are scalars."""
    assert is_scalar == tnp.isscalar(x)
    assert is_iterable == tnp.iterable(x)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_isscalar_of_what_stands_for_an_array(shape):
    """The array that an object stands for decides."""
    stand_in = type("StandIn", (), {"__jax_array__": lambda self: tnp.ones(shape)})()

    assert (shape == ()) == tnp.isscalar(stand_in)


@pytest.mark.parametrize(
    ("call", "args"),
    [
        (lambda x: tnp.iscomplexobj(x), [1j]),
        (lambda x: tnp.vander(x), [2.0, 3.0]),
        (lambda x: tnp.delete(tnp.arange(4), x), [0, 2]),
        (lambda x: tnp.insert(tnp.arange(4), x, 9), [0, 2]),
        (lambda x: tnp.piecewise(tnp.arange(2.0), [x], [tnp.exp]), [True, False]),
        (lambda x: tnp.polyfit(x, x, 0), [1.0, 2.0]),
    ],
)
def test_what_stands_for_an_array_is_not_shown_to_numpy(call, args):
    """Functions that look at the dtype, shape or elements of an argument look at the array."""
    x = tnp.array(args)
    stand_in = type("StandIn", (), {"__jax_array__": lambda self: x})()

    assert np.asarray(call(x)).tolist() == np.asarray(call(stand_in)).tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_finfo(dtype):
    """The limits are NumPy's and ml_dtypes'."""
    reference = ml_dtypes.finfo(dtype) if dtype == "bfloat16" else np.finfo(dtype)

    assert reference.bits == tnp.finfo(dtype).bits
    for name in ("eps", "max", "min", "tiny"):
        assert float(getattr(reference, name)) == float(getattr(tnp.finfo(dtype), name))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_iinfo(dtype):
    """The limits are NumPy's."""
    assert (np.iinfo(dtype).min, np.iinfo(dtype).max) == (
        tnp.iinfo(dtype).min, tnp.iinfo(dtype).max,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "kind", "expected"),
    [
        (np.float32, "real floating", True),
        (np.float32, "integral", False),
        (tnp.bfloat16, "numeric", True),
        (np.int8, ("signed integer", "bool"), True),
        (np.bool_, "bool", True),
        (np.uint8, "unsigned integer", True),
        (np.complex64, "complex floating", True),
    ],
)
def test_isdtype(dtype, kind, expected):
    """The kinds of the array API standard."""
    assert expected == tnp.isdtype(dtype, kind)


def test_issubdtype_knows_narrow_floats():
    """bfloat16 is a floating dtype; the hierarchy is NumPy's otherwise."""
    assert tnp.issubdtype(tnp.bfloat16, tnp.floating)
    assert tnp.issubdtype(np.int8, tnp.integer)
    assert not tnp.issubdtype(np.float32, tnp.integer)


def test_promotion_of_types():
    """Weak scalars count as such."""
    assert np.dtype("float16") == tnp.promote_types("float16", "int32")
    assert np.dtype("float32") == tnp.result_type(np.float32, 1.0)
    assert np.dtype("float16") == tnp.result_type(tnp.ones(2, "float16"), 2.0)
    assert np.dtype("float32") == tnp.result_type(np.ones(2))


def test_can_cast():
    """Safe casts are NumPy's."""
    assert tnp.can_cast("int32", "float64")
    assert not tnp.can_cast("float32", "int32")
    assert tnp.can_cast("float32", "float16", "same_kind")


def test_complex_objects():
    """Facts about dtypes, also for tracers."""
    assert tnp.iscomplexobj(1j)
    assert not tnp.iscomplexobj(tnp.ones(2))
    assert tnp.isrealobj(tnp.ones(2))
    found = []
    tb.jit(lambda x: found.append(tnp.iscomplexobj(x)))(np.complex64(1))
    assert [True] == found


OUT_OF_RANGE: dict[str, Callable[[], Any]] = {
    "scalar class": lambda: tnp.uint8(256),
    "narrow": lambda: tnp.int4(9),
    "array": lambda: tnp.array(-1, dtype="uint8"),
    "list": lambda: tnp.array([1, 300], dtype="int8"),
    "default": lambda: tnp.array([1, 2**40]),
    "very large": lambda: tnp.array([[1, 2], [3, 2**70]], dtype="int32"),
    "number": lambda: tnp.array(2**40),
    "operand": lambda: tnp.ones(3, "int32") + 2**40,
    "under jit": lambda: tb.jit(lambda x: x + 2**40)(tnp.ones(3, "int32")),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_python_integers_never_wrap_around(name: str) -> None:
    """An integer that does not fit its dtype is an error; ``astype`` wraps around on request."""
    with pytest.raises(OverflowError, match="not fit") as caught:
        OUT_OF_RANGE[name]()

    assert isinstance(caught.value, errors.IntegerRangeError)
    assert 44 == int(tnp.array(300).astype("int8"))
    assert 2**31 == int(tnp.array(2**31, dtype="uint32"))


def test_none_is_no_number() -> None:
    """Neither alone nor in a list."""
    for value in (None, [1.0, None], [[1], [None]]):
        with pytest.raises(errors.UnsupportedDtypeError, match="None"):
            tnp.array(value)


def test_warnings_point_at_the_line_of_the_caller() -> None:
    """The file of a warning is not ours."""
    with pytest.warns(errors.ExplicitX64Warning) as caught:
        tnp.zeros(2, dtype="float64")

    assert __file__ == caught[0].filename


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "int32"])
@pytest.mark.parametrize("weight", ["aweights", "fweights"])
def test_weights_of_a_covariance_take_part_in_its_dtype(kind: str, weight: str) -> None:
    """As operands of a product would: counts are integers and widen no float."""
    m = tnp.asarray([[0, 1, 2, 3], [1, 0, 1, 1]], kind)
    counts = [1, 2, 1, 1]
    w = tnp.asarray(counts, "int32" if weight == "fweights" else "float32")
    expected = np.cov(np.asarray(m, np.float64), **{weight: counts})

    actual = tnp.cov(m, **{weight: w})

    assert tnp.result_type(m, w, *(["float32"] if kind == "int32" else [])) == actual.dtype
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=2e-2)
    assert np.dtype(np.float16) == tnp.cov(m, **{weight: w}, dtype="float16").dtype


def test_counts_have_the_default_dtype() -> None:
    """int64 with 64 bits, for any number of bins; weights bring their own."""
    with tb.enable_x64():
        x = tnp.array([0, 2], "int32")

        assert [np.dtype(np.int64)] * 2 == [tnp.bincount(x, length=n).dtype for n in (0, 3)]
        assert np.dtype(np.int8) == tnp.bincount(x, tnp.ones(2, "int8")).dtype
    assert np.dtype(np.int32) == tnp.bincount(x).dtype


def test_bins_have_the_dtype_of_searchsorted() -> None:
    """int32, with 64 bits too."""
    with tb.enable_x64():
        x = tnp.array([0.5, 2.0])

        assert tnp.searchsorted(x, x).dtype == tnp.digitize(x, x).dtype == np.dtype(np.int32)
        assert np.dtype(np.int32) == tnp.digitize(x, x[:0]).dtype
