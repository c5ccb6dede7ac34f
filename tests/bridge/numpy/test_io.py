"""Reading, writing and printing arrays."""

from __future__ import annotations

import io

import numpy as np
import pytest

import tracebridge.numpy as tnp


def test_dtypes_that_files_do_not_know():
    """Two bytes are bfloat16; others stay with NumPy, to be viewed as what they are."""
    for dtype in ("bfloat16", "float8_e4m3fn"):
        x = tnp.array([1.0, -2.5], dtype)
        file = io.BytesIO()
        tnp.save(file, x)
        file.seek(0)
        loaded = tnp.load(file)
        if dtype != "bfloat16":
            assert isinstance(loaded, np.ndarray)
            loaded = loaded.view(x.dtype)
        assert x.dtype == loaded.dtype
        assert [1.0, -2.5] == np.asarray(loaded, np.float32).tolist()


def test_wide_integers_load_as_ever():
    """In the dtype that arrays have."""
    file = io.BytesIO()
    np.save(file, np.arange(3, dtype=np.int64))
    file.seek(0)
    assert tnp.asarray(np.arange(3, dtype=np.int64)).dtype == tnp.load(file).dtype


def test_saved_arrays_load(tmp_path):
    """save and load keep values and dtypes, savez keeps names; NumPy reads them too."""
    x = tnp.arange(6.0).reshape(2, 3)
    tnp.save(tmp_path / "x.npy", x)
    tnp.savez(tmp_path / "xs.npz", x, named=x + 1)

    np.testing.assert_array_equal(x, tnp.load(tmp_path / "x.npy"))
    np.testing.assert_array_equal(x, np.load(tmp_path / "x.npy"))
    loaded = tnp.load(tmp_path / "xs.npz")
    np.testing.assert_array_equal(x + 1, loaded["named"])
    np.testing.assert_array_equal(x, loaded["arr_0"])


def test_buffers_files_iterators_and_strings(tmp_path):
    """Each reads what NumPy reads."""
    host = np.arange(4, dtype=np.float32)
    host.tofile(tmp_path / "raw")

    np.testing.assert_array_equal(host, tnp.frombuffer(host.tobytes(), np.float32))
    np.testing.assert_array_equal(host[1:3], tnp.frombuffer(host.tobytes(), np.float32, 2, 4))
    np.testing.assert_array_equal(host, tnp.fromfile(tmp_path / "raw", np.float32))
    np.testing.assert_array_equal([1, 2], tnp.fromiter(iter([1, 2]), np.int32))
    np.testing.assert_array_equal([1.5, 2], tnp.fromstring("1.5,2", sep=","))


def test_from_dlpack_shares_numbers():
    """An array of another library with the protocol."""
    host = np.arange(3, dtype=np.float32)

    np.testing.assert_array_equal(host, tnp.from_dlpack(host))


def test_printing():
    """array_str is NumPy's; options of printing are honoured."""
    x = tnp.array([1.23456, 2.0])

    assert np.array_str(np.asarray(x)) == tnp.array_str(x)
    assert "dtype=float32" in tnp.array_repr(x)
    with tnp.printoptions(precision=2):
        assert "[1.23 2.  ]" == tnp.array_str(x)
        assert 2 == tnp.get_printoptions()["precision"]
    before = tnp.get_printoptions()["precision"]
    tnp.set_printoptions(precision=3)
    try:
        assert "[1.235 2.   ]" == str(x)
    finally:
        tnp.set_printoptions(precision=before)


def test_bad_files_are_refused():
    """A stream that holds no array."""
    with pytest.raises((ValueError, EOFError)):
        tnp.load(io.BytesIO(b"nothing"))


def test_extended_precision_has_no_place_in_dlpack():
    """The error is that of NumPy's own protocol."""
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("longdouble is float64 here")
    with pytest.raises(BufferError, match="no dtype"):
        tnp.from_dlpack(np.ones(3, np.longdouble))
