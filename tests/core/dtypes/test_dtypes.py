"""Constants, groups, predicates and names of dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tracebridge.numpy as tnp
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.extended import ExtendedDType, extended, prng_key


class Key(ExtendedDType):
    """An extended dtype for the tests."""

    __slots__ = ()
    type = prng_key
    name = "key<test>"
    element_shape = (2,)
    element_dtype = d.uint32


@pytest.mark.parametrize(
    ("dtype", "short", "bits"),
    [
        (d.bool_, "bool", 8),
        (d.int1, "i1", 1),
        (d.int2, "i2", 2),
        (d.int4, "i4", 4),
        (d.int64, "i64", 64),
        (d.uint1, "u1", 1),
        (d.uint4, "u4", 4),
        (d.uint8, "u8", 8),
        (d.float4_e2m1fn, "f4_e2m1fn", 4),
        (d.float6_e3m2fn, "f6_e3m2fn", 6),
        (d.float8_e4m3b11fnuz, "f8_e4m3b11fnuz", 8),
        (d.float8_e5m2, "f8_e5m2", 8),
        (d.bfloat16, "bf16", 16),
        (d.float16, "f16", 16),
        (d.float32, "f32", 32),
        (d.complex64, "c64", 64),
        (d.complex128, "c128", 128),
        (d.float0, "float0", 0),
        (Key(), "key<test>", 64),
    ],
    ids=str,
)
def test_names_and_sizes(dtype, short, bits):
    """Short names are those of printed Jaxprs; sizes count bits, not the bytes of NumPy."""
    assert short == d.short_name(dtype)
    assert bits == d.itemsize_bits(dtype)


def test_short_names_are_distinct():
    """No two dtypes print alike."""
    assert len(d.all_dtypes) == len({d.short_name(dtype) for dtype in d.all_dtypes})


def test_every_float_and_integer_of_ml_dtypes_is_known():
    """A dtype that ml_dtypes has is in one of the groups; its complex ones have no device form."""
    classes = [getattr(ml_dtypes, name) for name in dir(ml_dtypes)]
    found = {np.dtype(c) for c in classes if isinstance(c, type) and issubclass(c, np.generic)}
    real = {dtype for dtype in found if "complex" not in dtype.name}

    assert real <= d.all_dtypes


def test_groups_are_disjoint():
    """Each dtype is in exactly one of bool, signed, unsigned, float, complex."""
    groups = [d.bools, d.signed, d.unsigned, d.floats, d.complexes]

    assert d.all_dtypes == frozenset().union(*groups)
    assert len(d.all_dtypes) == sum(map(len, groups))


@pytest.mark.parametrize(
    ("predicate", "true", "false"),
    [
        (d.is_bool, ["bool", bool, np.bool_], ["int8", float]),
        (d.is_integer, ["int32", int, ml_dtypes.int4, np.uint8], ["bool", "float32"]),
        (d.is_signed, ["int32", int, ml_dtypes.int2], ["uint8", "bool"]),
        (d.is_unsigned, ["uint32", ml_dtypes.uint4], ["int8"]),
        (d.is_float, ["float32", float, ml_dtypes.bfloat16], ["complex64", "int8"]),
        (d.is_complex, ["complex64", complex], ["float32"]),
        (d.is_inexact, ["complex64", "float16", ml_dtypes.float8_e5m2], ["int8", "bool"]),
        (d.is_extended, [Key()], ["int8"]),
    ],
)
def test_predicates_take_any_spelling(predicate, true, false):
    """Dtype objects, names and scalar classes are the same to a predicate."""
    for spelling in true:
        assert predicate(spelling)
        if predicate is not d.is_extended:
            assert predicate(d.as_dtype(spelling))
    for spelling in false:
        assert not predicate(spelling)
    if predicate is not d.is_extended:
        assert not predicate(Key())


ABSTRACT = {
    np.generic: {"bool", "i", "u", "f", "c"},
    np.number: {"i", "u", "f", "c"},
    np.integer: {"i", "u"},
    np.signedinteger: {"i"},
    np.unsignedinteger: {"u"},
    np.inexact: {"f", "c"},
    np.floating: {"f"},
    np.complexfloating: {"c"},
    np.bool_: {"bool"},
    extended: set(),
}


@pytest.mark.parametrize("abstract", list(ABSTRACT), ids=str)
def test_issubdtype_of_abstract_classes(abstract):
    """Dtypes of ml_dtypes lie in NumPy's hierarchy where their names say."""
    groups = {"bool": d.bools, "i": d.signed, "u": d.unsigned, "f": d.floats, "c": d.complexes}
    for name, group in groups.items():
        for dtype in group:
            expected = name in ABSTRACT[abstract]
            assert expected == d.issubdtype(dtype, abstract)
            assert expected == d.issubdtype(dtype.type, abstract)


def test_issubdtype_of_concrete_dtypes():
    """A concrete dtype lies below itself only."""
    assert d.issubdtype("float32", np.float32)
    assert d.issubdtype(float, "float64")
    assert d.issubdtype(ml_dtypes.bfloat16, d.bfloat16)
    assert not d.issubdtype("float32", "float64")
    assert not d.issubdtype(d.int4, d.int8)
    assert d.issubdtype(np.integer, np.number)
    assert not d.issubdtype(np.number, np.integer)


def test_issubdtype_of_extended_classes():
    """Classes of extended dtypes have no NumPy dtype and lie below ``generic`` only."""
    below = [d.issubdtype(prng_key, c) for c in (prng_key, extended, np.generic, np.number)]

    assert [True, True, True, False] == below
    assert not d.issubdtype(extended, prng_key)
    assert d.issubdtype(d.float0, d.float0)
    assert not d.issubdtype(np.dtype([("x", "i4")]), d.float0)


def test_issubdtype_of_extended_dtypes():
    """An extended dtype lies below its abstract classes and below no number."""
    assert d.issubdtype(Key(), extended)
    assert d.issubdtype(Key(), prng_key)
    assert d.issubdtype(Key(), np.generic)
    assert not d.issubdtype(Key(), np.number)
    assert not d.issubdtype("uint32", extended)


def test_real_complex_and_tangent_dtypes():
    """Derived dtypes of a dtype."""
    assert d.float32 == d.real_of(d.complex64)
    assert d.float64 == d.real_of(d.complex128)
    assert d.bfloat16 == d.real_of(d.bfloat16)
    assert d.complex128 == d.complex_of(d.float64)
    assert d.complex64 == d.complex_of(d.float16)
    assert d.complex64 == d.complex_of(d.complex64)
    assert d.float8_e5m2 == d.tangent_dtype(d.float8_e5m2)
    assert d.complex64 == d.tangent_dtype(d.complex64)
    for dtype in (d.int32, d.uint4, d.bool_, d.float0, Key()):
        assert d.float0 == d.tangent_dtype(dtype)
    with pytest.raises(TypeError, match="int32 has no complex counterpart"):
        d.complex_of(d.int32)


def test_as_dtype():
    """None is refused because NumPy would make float64 of it; Python classes are widest."""
    assert d.int64 == d.as_dtype(int)
    assert d.complex128 == d.as_dtype(complex)
    assert d.bfloat16 == d.as_dtype("bfloat16")
    assert d.float16 == d.as_dtype(np.ones(2, np.float16))
    with pytest.raises(TypeError, match="got None"):
        d.as_dtype(None)
    with pytest.raises(TypeError):
        d.as_dtype("no such dtype")


def test_float0_stores_nothing():
    """The dtype of absent tangents has no bytes and one name everywhere."""
    assert d.float0.itemsize == 0
    assert np.dtype([("float0", "V")]) == d.float0
    assert hash(np.dtype([("float0", "V")])) == hash(d.float0)


def test_extended_itemsize():
    """The bytes of an element are those of its block."""
    assert Key().itemsize == 8
    assert repr(Key()) == "key<test>"


def test_no_dtype_is_float64_in_the_hierarchy():
    """None asks about float64, as it does in NumPy, on either side."""
    for b in (np.floating, np.complexfloating, np.float32, np.float64, np.generic, None):
        assert np.issubdtype(None, b) == d.issubdtype(None, b) == tnp.issubdtype(None, b)
    assert d.issubdtype(np.float64, None)
    assert not d.issubdtype(np.int32, None)
