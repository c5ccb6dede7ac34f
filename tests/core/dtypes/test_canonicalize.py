"""The 64-bit rule, for values that enter and for dtypes that a user requests."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge.numpy as tnp
from tracebridge.core.config import option_scopes
from tracebridge.core.dtypes import canonicalize as c
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.errors.dtype_errors import ExplicitX64Warning, UnsupportedDtypeError

WIDE = [
    (d.int64, d.int32),
    (d.uint64, d.uint32),
    (d.float64, d.float32),
    (d.complex128, d.complex64),
]


@pytest.mark.parametrize(("wide", "narrow"), WIDE, ids=str)
def test_canonicalize(wide, narrow):
    """64 bits stay exactly where they are enabled."""
    with option_scopes.enable_x64(False):
        assert narrow == c.canonicalize(wide)
        assert narrow == c.canonicalize(wide.name)
        assert narrow == c.canonicalize(wide.newbyteorder(">"))
    with option_scopes.enable_x64(True):
        assert wide == c.canonicalize(wide)


def test_other_dtypes_are_their_own():
    """The rule is about the four wide dtypes only."""
    with option_scopes.enable_x64(False):
        for dtype in d.all_dtypes - {wide for wide, _ in WIDE}:
            assert dtype == c.canonicalize(dtype)
            assert not c.is_wide(dtype)


@pytest.mark.parametrize("x64", [False, True])
def test_python_classes_are_the_defaults(x64):
    """Python scalar classes ask for the default dtypes."""
    with option_scopes.enable_x64(x64):
        assert c.default_int() == c.canonicalize(int)
        assert c.default_float() == c.canonicalize(float)
        assert c.default_complex() == c.canonicalize(complex)
        assert d.bool_ == c.canonicalize(bool)
        assert (64 if x64 else 32) == d.itemsize_bits(c.default_uint())


@pytest.mark.parametrize("dtype", [object, "S3", "M8[s]", np.longdouble, [("a", "i4")]], ids=str)
def test_dtypes_without_device_form(dtype):
    """The error says what exists and what to do."""
    with pytest.raises(UnsupportedDtypeError, match=r"(?s)does not exist.*NumPy"):
        c.canonicalize(dtype)


def test_explicit_requests_warn():
    """By default a 64-bit request is narrowed and says so, at the caller's line."""

    def public_function(dtype):
        return c.canonicalize_explicit(dtype, "zeros")

    with option_scopes.enable_x64(False):
        with pytest.warns(
            ExplicitX64Warning, match=r"^Explicitly requested dtype float64 .* zeros and"
        ) as record:
            assert d.float32 == public_function("float64")
        assert record[0].filename == __file__


@pytest.mark.parametrize(("wide", "narrow"), WIDE, ids=str)
def test_every_spelling_is_a_request(wide, narrow):
    """Dtype objects, scalar classes of NumPy and names ask for 64 bits alike."""
    for spelling in (wide, wide.type, wide.name, wide.newbyteorder(">")):
        with option_scopes.enable_x64(False), pytest.warns(ExplicitX64Warning, match=wide.name):
            assert narrow == c.canonicalize_explicit(spelling, "zeros")


def test_explicit_requests_allowed():
    """With 'allow' a request is honoured while 64 bits are off."""
    with option_scopes.enable_x64(False), option_scopes.explicit_x64_dtypes("allow"):
        assert d.float64 == c.canonicalize_explicit(np.float64, "zeros")
        assert d.int64 == c.canonicalize_explicit(">i8", "zeros")


def test_explicit_requests_refused():
    """With 'error' a request raises and names the function, both dtypes and the ways out."""
    with (
        option_scopes.enable_x64(False),
        option_scopes.explicit_x64_dtypes("error"),
        pytest.raises(UnsupportedDtypeError, match=r"(?s)zeros: got.*float64.*float32.*enable_x64"),
    ):
        c.canonicalize_explicit("float64", "zeros")


@pytest.mark.parametrize("policy", ["allow", "warn", "error"])
def test_requests_that_need_no_policy(policy):
    """Python classes and narrow dtypes pass, and everything while 64 bits are on."""
    with option_scopes.explicit_x64_dtypes(policy), option_scopes.enable_x64(False):
        assert d.int32 == c.canonicalize_explicit(int, "zeros")
        assert d.float32 == c.canonicalize_explicit(float, "zeros")
        assert d.bfloat16 == c.canonicalize_explicit("bfloat16", "zeros")
    with option_scopes.explicit_x64_dtypes(policy), option_scopes.enable_x64(True):
        assert d.float64 == c.canonicalize_explicit("float64", "zeros")


@pytest.mark.parametrize(
    ("dtype", "x32", "x64"),
    [
        (d.int8, d.float32, d.float32),
        (d.uint32, d.float32, d.float32),
        (d.int64, d.float32, d.float64),
        (d.uint64, d.float32, d.float64),
        (d.bool_, d.float32, d.float32),
        (d.float64, d.float64, d.float64),
        (d.bfloat16, d.bfloat16, d.bfloat16),
        (d.complex64, d.complex64, d.complex64),
        ("int16", d.float32, d.float32),
    ],
    ids=str,
)
def test_to_inexact(dtype, x32, x64):
    """Integers get a floating dtype, what is inexact stays."""
    with option_scopes.enable_x64(False):
        assert x32 == c.to_inexact(dtype)
    with option_scopes.enable_x64(True):
        assert x64 == c.to_inexact(dtype)


def test_to_inexact_of_no_number():
    """Tangents of integers have no floating counterpart."""
    with pytest.raises(TypeError, match="no floating counterpart"):
        c.to_inexact(d.float0)


@pytest.mark.parametrize("dtype", [*[n for _, n in WIDE], d.bfloat16, d.bool_, d.int8], ids=str)
def test_one_object_for_each_dtype(dtype):
    """The object that NumPy has for the scalar class, also of copies and foreign byte orders."""
    expected = np.dtype(dtype.type)

    for spelling in (dtype, dtype.type, dtype.name, dtype.newbyteorder(">"), dtype.newbyteorder()):
        assert expected is c.canonicalize(spelling)
        assert expected is tnp.zeros(2, spelling).dtype
