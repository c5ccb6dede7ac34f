"""argmax and argmin agree with NumPy, on both paths of the lowering."""

from __future__ import annotations

import importlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.testing import check_rules

PAIRS = {"argmax": (lax.argmax, np.argmax), "argmin": (lax.argmin, np.argmin)}
DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "float16",
    ml_dtypes.bfloat16,
    "float32",
    "float64",
]
# Short axes are reduced in one pass over pairs, long ones in two passes.
LENGTHS = [1, 2, 15, 16, 36, 100]


@pytest.mark.parametrize("length", [33, 100, 128])
@pytest.mark.parametrize("name", PAIRS)
def test_short_vectors_are_one_loop(name: str, length: int) -> None:
    """No parts of a vector that is short are reduced by themselves: that compiles for long."""
    ours, numpys = PAIRS[name]
    x = np.random.default_rng(length).integers(0, 5, (4, length)).astype(np.float32)
    x[1, [7, 40 % length]] = np.nan
    x[2] = np.inf if name == "argmin" else -np.inf
    x[3] = np.nan
    compiled = tb.jit(ours, static_argnums=(1, 2)).lower(x[0], 0, np.int32).compile()

    assert [numpys(row) for row in x] == [int(compiled(row)) for row in x]
    assert "reduce-window" not in compiled.as_text()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_first_extreme_wins(name: str, dtype: Any, length: int) -> None:
    """The position of the first extreme element, along the first and the last axis."""
    ours, numpys = PAIRS[name]
    x = np.random.default_rng(0).integers(0, 5, (3, length)).astype(dtype)

    for axis, array in ((1, x), (0, np.ascontiguousarray(x.T))):
        result = np.asarray(ours(array, axis, np.int32))

        assert numpys(array.astype(np.float64), axis=axis).tolist() == result.tolist()
        assert np.int32 == result.dtype


@pytest.mark.parametrize("length", [5, 50])
@pytest.mark.parametrize("dtype", ["float32", "float64", ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_first_nan_wins(name: str, dtype: Any, length: int) -> None:
    """NaNs count as extreme; rows of infinities of the losing sign have an answer too."""
    ours, numpys = PAIRS[name]
    x = np.random.default_rng(0).normal(size=(6, length)).astype(np.float32)
    x[0, 3] = np.nan
    x[1, [2, 4]] = np.nan
    x[2, :] = np.nan
    x[3, :] = -np.inf
    x[4, :] = np.inf
    x[5, [1, 2]] = [np.inf, -np.inf]

    assert numpys(x, axis=1).tolist() == ours(x.astype(dtype), 1, np.int32).tolist()


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16, "int32"], ids=str)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((200, 1000), 1), ((40_000,), 0), ((300, 128), 1), ((5, 1_000_003), 1), ((4100, 1030), 0)],
    ids=str,
)
@pytest.mark.parametrize("name", PAIRS)
def test_large_arrays(name: str, shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    """Blocks are searched first: ties go to the first block, NaNs win, odd lengths are padded."""
    ours, numpys = PAIRS[name]
    random = np.random.default_rng(0)
    x = random.integers(-100, 100, shape).astype(np.float32)
    if dtype != "int32":
        x.reshape(-1)[random.integers(0, x.size, 2)] = np.nan

    result = ours(x.astype(dtype), axis, np.int32)

    assert np.array_equal(numpys(x, axis=axis), np.asarray(result))


def test_blocks_of_a_few_elements_are_not_worth_it() -> None:
    """Nor are those with a remainder in arrays of moderate size."""

    def has_blocks(*shape: int) -> bool:
        x = np.zeros(shape, np.float32)
        text = tb.jit(lambda x: lax.argmax(x, len(shape) - 1, np.int32)).lower(x).as_text()
        return "stablehlo.gather" in text

    assert has_blocks(300, 128)
    assert has_blocks(200, 1000)
    assert not has_blocks(40, 1000)
    assert not has_blocks(4096, 64)


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.integers(1, 70)),
        elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]),
    ),
    st.sampled_from(sorted(PAIRS)),
)
def test_any_mixture_of_special_values(x: np.ndarray[Any, Any], name: str) -> None:
    """Signed zeros are equal, NaNs win, infinities are numbers like others."""
    ours, numpys = PAIRS[name]

    assert numpys(x, axis=1).tolist() == ours(x, 1, np.int32).tolist()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", PAIRS)
def test_all_rules_agree(name: str, axis: int) -> None:
    """Staging, jit and batching; positions have no derivative."""
    ours, numpys = PAIRS[name]
    x = np.random.default_rng(1).normal(size=(3, 4, 40)).astype(np.float32)

    check_rules(
        lambda x: ours(x, axis, np.int32), x, reference=lambda x: numpys(x, axis=axis), order=0
    )
    gradient = tb.grad(lambda x: lax.convert_element_type(ours(x, 0, np.int32), np.float32))(
        np.arange(3.0, dtype=np.float32)
    )
    assert [0.0, 0.0, 0.0] == gradient.tolist()


@pytest.mark.parametrize("index_dtype", ["int8", "uint16", "int32", "int64", "uint64"])
def test_index_dtype(index_dtype: str) -> None:
    """The result has the dtype that was asked for; positions wrap around in narrow ones."""
    x = np.zeros((2, 300), np.float32)
    x[:, 290] = 1

    with enable_x64():
        result = np.asarray(lax.argmax(x, 1, index_dtype))

    assert np.dtype(index_dtype) == result.dtype
    assert np.array([290, 290]).astype(index_dtype).tolist() == result.tolist()


def test_errors() -> None:
    """What is refused, and why."""
    with pytest.raises(ShapeMismatchError, match="argmax: axis 0 of f32\\[0,3\\] has no elements"):
        lax.argmax(np.zeros((0, 3), np.float32), 0, np.int32)
    with pytest.raises(AxisError, match="argmin: axis 1 is out of bounds"):
        lax.argmin(np.zeros(3, np.float32), 1, np.int32)
    with pytest.raises(UnsupportedDtypeError, match="index_dtype must be an integer type"):
        lax.argmin(np.zeros(3, np.float32), 0, np.float32)
    with pytest.raises(UnsupportedDtypeError, match="argmax works on real numbers"):
        lax.argmax(np.zeros(3, np.complex64), 0, np.int32)


@pytest.mark.parametrize("length", [5, 100, 4096])
@pytest.mark.parametrize("name", PAIRS)
def test_wide_positions(monkeypatch, name, length):
    """Positions of 64 bits are found in the same ways."""
    module = importlib.import_module("tracebridge.core.lax.reduce.argminmax")
    monkeypatch.setattr(module, "_is_long", lambda size: True)
    function, reference = PAIRS[name]
    x = np.random.default_rng(0).integers(-99, 99, (16, length)).astype(np.int16)
    with enable_x64():
        text = tb.jit(lambda x: function(x, 1, "int64")).lower(x).as_text()
        actual = tb.jit(lambda x: function(x, 1, "int64"))(x)

    assert "xi32>" not in text
    np.testing.assert_array_equal(reference(x, 1), actual)
