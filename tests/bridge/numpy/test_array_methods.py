"""Methods and properties of arrays: those of NumPy's arrays, on arrays and on tracers."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.numpy import _array_methods
from tracebridge.testing import assert_allclose

X = np.array([[3.0, -1.5, 2.0], [0.5, 4.0, -2.5]], np.float32)
# name -> arguments (of our method and of NumPy's)
METHODS = [
    ("all", (), {}),
    ("any", (0,), {}),
    ("argmax", (), {"axis": 1}),
    ("argmin", (), {}),
    ("argpartition", (1,), {}),
    ("argsort", (), {"axis": 0}),
    ("astype", (np.int32,), {}),
    ("byteswap", (), {}),
    ("choose", ([X, X * 2],), {"mode": "clip"}),
    ("clip", (-1.0, 2.0), {}),
    ("clip", (), {"max": 2.0}),
    ("compress", (np.array([True, False, True]),), {"axis": 1}),
    ("conj", (), {}),
    ("conjugate", (), {}),
    ("copy", (), {}),
    ("cumprod", (), {"axis": 1}),
    ("cumsum", (), {}),
    ("diagonal", (), {"offset": 1}),
    ("dot", (X.T,), {}),
    ("flatten", (), {}),
    ("flatten", ("F",), {}),
    ("max", (), {"axis": 0, "keepdims": True}),
    ("mean", (1,), {}),
    ("min", (), {}),
    ("prod", (), {"axis": (0, 1)}),
    ("ptp", (), {"axis": 1}),
    ("ravel", (), {}),
    ("repeat", (2,), {"axis": 1}),
    ("reshape", (3, 2), {}),
    ("reshape", ((-1,),), {"order": "F"}),
    ("round", (1,), {}),
    ("sort", (), {"axis": 0}),
    ("squeeze", (), {}),
    ("std", (), {"axis": 1, "ddof": 1}),
    ("sum", (), {"axis": -1}),
    ("swapaxes", (0, 1), {}),
    ("take", (np.array([0, 2]),), {"axis": 1}),
    ("trace", (), {}),
    ("transpose", (), {}),
    ("transpose", (1, 0), {}),
    ("transpose", ((1, 0),), {}),
    ("var", (), {}),
    ("view", (np.int32,), {}),
]
NAMED = _array_methods.METHODS
PROPERTIES = ["T", "mT", "real", "imag", "shape", "ndim", "size", "nbytes", "itemsize", "dtype"]


@pytest.mark.parametrize(("name", "args", "kwargs"), METHODS, ids=lambda v: str(v)[:12])
def test_methods(name, args, kwargs):
    """Values are NumPy's, eagerly and under jit and vmap."""
    host = X.astype(np.int32) if name == "choose" else X
    # NumPy's method sorts in place, and its arrays have no ptp.
    functions = {"sort": np.sort, "ptp": np.ptp}
    reference = (
        functools.partial(functions[name], host) if name in functions else getattr(host, name)
    )
    expected = reference(*args, **kwargs)

    for actual in (
        getattr(tnp.array(host), name)(*args, **kwargs),
        tb.jit(lambda x: getattr(x, name)(*args, **kwargs))(host),
    ):
        assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        assert isinstance(actual, tb.Array)


def test_searchsorted_nonzero_and_ptp():
    """Methods whose counterpart is a function of NumPy, or has another form."""
    x = tnp.array([1.0, 2.0, 4.0])

    assert [0, 3] == x.searchsorted(tnp.array([0.5, 9.0])).tolist()
    assert [[0, 2]] == [p.tolist() for p in tnp.array([1, 0, 2]).nonzero()]
    assert 3.0 == float(x.ptp())
    assert [[4.0, 2.0, 1.0]] == x.sort(descending=True)[None].tolist()


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties(name):
    """They are NumPy's, also while tracing."""
    expected = getattr(X, name)
    found = []
    tb.jit(lambda x: found.append(np.shape(getattr(x, name))))(X)

    np.testing.assert_array_equal(expected, getattr(tnp.array(X), name))
    assert [np.shape(expected)] == found


def test_every_method_of_the_namespace_is_here():
    """A new method needs a line."""
    assert {"nonzero", "searchsorted", "to_device"} == set(NAMED) - {m[0] for m in METHODS}


def test_conversions_to_python():
    """item, tolist, tobytes-free ways out of an array."""
    x = tnp.array(X)

    assert X.tolist() == x.tolist()
    assert 4.0 == x.item(4)
    assert 2.5 == tnp.array(2.5).item()
    np.testing.assert_array_equal(X, np.asarray(x))
    np.testing.assert_array_equal(X, x.__array__())
    assert np.float64 == np.asarray(x, np.float64).dtype


def test_view_changes_widths():
    """Bytes of the last axis are regrouped."""
    x = tnp.array([[1.5, 2.5]])

    np.testing.assert_array_equal(np.asarray(x).view(np.int16), x.view("int16"))
    np.testing.assert_array_equal(x, x.view("int16").view("float32"))
    with pytest.raises(ValueError, match=r"view.*float32\[1,2\]|view.*f32\[1,2\].*|view.*i16"):
        tnp.ones((2, 3), "int16").view("float32")


VIEWS = ["?", "i1", "u2", "i4", "f2", "f4", "c8"]


@pytest.mark.parametrize("old", VIEWS)
@pytest.mark.parametrize("new", VIEWS)
def test_view_between_all_dtypes(old, new):
    """The bytes are those of NumPy's view; booleans are read as bytes that are not 0."""
    x = np.arange(16).reshape(2, 8).astype(old)
    seen = x.view("u1") != 0 if new == "?" else x.view(new)

    np.testing.assert_array_equal(seen, tnp.asarray(x).view(new))
    if np.dtype(old).itemsize == np.dtype(new).itemsize:
        scalar = x[0, 1]
        want = bool(scalar) if new == "?" else scalar.view(new)
        np.testing.assert_array_equal(want, tnp.asarray(scalar).view(new))


@pytest.mark.parametrize(
    ("shape", "old", "new"),
    [((), "f4", "c8"), ((2, 3), "f4", "c8"), ((), "c8", "f4"), ((3,), "?", "c8")],
)
def test_views_of_parts_of_elements_are_refused(shape, old, new):
    """Complex numbers take whole pairs of the last axis."""
    with pytest.raises(ValueError, match="view: the last axis"):
        tnp.ones(shape, old).view(new)


def test_compress_and_flatten_say_what_they_take():
    """Their options have names, as those of the functions."""
    x = tnp.array([[1, 2], [3, 4]])
    assert [1, 0, 0] == x.compress(np.array([True]), size=3, fill_value=0).tolist()
    assert [1, 3, 2, 4] == x.flatten("F", out_sharding=None).tolist()
    assert {"out", "size", "fill_value"} < set(inspect.signature(tb.Array.compress).parameters)
    with pytest.raises(TypeError, match="no_such"):
        x.compress(np.array([True]), no_such=1)


def test_methods_name_themselves_in_errors():
    """Wrong axes and shapes."""
    x = tnp.array(X)
    with pytest.raises(ValueError, match=r"sum.*5"):
        x.sum(axis=5)
    with pytest.raises((TypeError, ValueError), match=r"reshape.*4"):
        x.reshape(4, 2)
    with pytest.raises(AttributeError, match="nothing"):
        _ = x.nothing


def test_views_are_arrays_of_the_same_class() -> None:
    """A class of arrays may be named as None only."""
    assert [1 << 30] == tnp.array([2.0], "float32").view("int32", type=None).tolist()
    with pytest.raises(tb.errors.UnsupportedArgumentError, match=r"view: type is .*matrix"):
        tnp.ones(2).view("int32", type=np.matrix)
