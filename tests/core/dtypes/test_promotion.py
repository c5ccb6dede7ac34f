"""Promotion: the table, the laws of the lattice, weak types, strict mode, the 64-bit rule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracebridge.core.config import option_scopes
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes import promotion
from tracebridge.core.errors.dtype_errors import TypePromotionError

# Rows and columns are operands; i*, f* and c* are Python scalars. 64-bit dtypes are on.
TABLE = """
     b1   u8   u16  u32  u64  i8   i16  i32  i64  bf16 f16  f32  f64  c64  c128 i*   f*   c*
b1   b1   u8   u16  u32  u64  i8   i16  i32  i64  bf16 f16  f32  f64  c64  c128 i*   f*   c*
u8   u8   u8   u16  u32  u64  i16  i16  i32  i64  bf16 f16  f32  f64  c64  c128 u8   f*   c*
u16  u16  u16  u16  u32  u64  i32  i32  i32  i64  bf16 f16  f32  f64  c64  c128 u16  f*   c*
u32  u32  u32  u32  u32  u64  i64  i64  i64  i64  bf16 f16  f32  f64  c64  c128 u32  f*   c*
u64  u64  u64  u64  u64  u64  f*   f*   f*   f*   bf16 f16  f32  f64  c64  c128 u64  f*   c*
i8   i8   i16  i32  i64  f*   i8   i16  i32  i64  bf16 f16  f32  f64  c64  c128 i8   f*   c*
i16  i16  i16  i32  i64  f*   i16  i16  i32  i64  bf16 f16  f32  f64  c64  c128 i16  f*   c*
i32  i32  i32  i32  i64  f*   i32  i32  i32  i64  bf16 f16  f32  f64  c64  c128 i32  f*   c*
i64  i64  i64  i64  i64  f*   i64  i64  i64  i64  bf16 f16  f32  f64  c64  c128 i64  f*   c*
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  f32  f64  c64  c128 bf16 bf16 c64
f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f16  f32  f64  c64  c128 f16  f16  c64
f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  c64  c128 f32  f32  c64
f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128 f64  f64  c128
c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c128 c64  c128 c64  c64  c64
c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
i*   i*   u8   u16  u32  u64  i8   i16  i32  i64  bf16 f16  f32  f64  c64  c128 i*   f*   c*
f*   f*   f*   f*   f*   f*   f*   f*   f*   f*   bf16 f16  f32  f64  c64  c128 f*   f*   c*
c*   c*   c*   c*   c*   c*   c*   c*   c*   c*   c64  c64  c64  c128 c64  c128 c*   c*   c*
"""
BY_SHORT_NAME = {d.short_name(dtype): dtype for dtype in d.all_dtypes} | {"b1": d.bool_}
SCALARS = {"i*": int, "f*": float, "c*": complex}
NARROW = sorted(d.narrow_floats | d.narrow_integers, key=str)

strong_pairs = st.sampled_from(sorted(d.all_dtypes, key=str)).map(lambda dtype: (dtype, False))
weak_pairs = st.sampled_from([d.int64, d.float64, d.complex128]).map(lambda dtype: (dtype, True))
pairs = strong_pairs | weak_pairs


def entries():
    """The rows of the table as (left, right, result)."""
    header, *rows = TABLE.strip("\n").split("\n")
    names = header.split()
    for row in rows:
        left, *results = row.split()
        assert len(names) == len(results)
        yield from ((left, right, result) for right, result in zip(names, results, strict=True))


def operand(name):
    """The (dtype, weak) pair of a name of the table."""
    return promotion._argument_pair(SCALARS.get(name) or BY_SHORT_NAME[name])


def join_or_error(*operands):
    """The promoted pair, or "error"."""
    try:
        return promotion.promote(operands)
    except TypePromotionError:
        return "error"


@pytest.mark.parametrize(("left", "right", "result"), list(entries()))
def test_table(left, right, result):
    """Two operands give what the table says, weak results the default dtype of their kind."""
    with option_scopes.enable_x64(True):
        assert operand(result) == promotion.promote((operand(left), operand(right)))


def test_table_is_complete():
    """Every dtype takes part: it is in the table, or it is narrow and mixes with scalars only."""
    assert set(BY_SHORT_NAME.values()) == {
        *(BY_SHORT_NAME[name] for name, _, _ in entries() if name not in SCALARS),
        *NARROW,
    }


@pytest.mark.parametrize("narrow", NARROW, ids=str)
def test_narrow_dtypes_do_not_promote(narrow):
    """A narrow dtype mixes with itself, with bool and with scalars that it can hold."""
    strong_int_result = "error" if narrow in d.integers else (narrow, False)

    assert (narrow, False) == join_or_error((narrow, False), (narrow, False))
    assert (narrow, False) == join_or_error((narrow, False), (d.bool_, False))
    assert (narrow, False) == join_or_error((narrow, False), (d.int32, True))
    assert strong_int_result == join_or_error((narrow, False), (d.int32, False))
    assert join_or_error((narrow, False), (d.bfloat16, False)) == "error"
    assert join_or_error((narrow, False), (d.float32, False)) == "error"
    assert join_or_error((narrow, False), (d.complex64, False)) == "error"
    for other in NARROW:
        expected = (narrow, False) if other == narrow else "error"
        if (other in d.integers) == (narrow in d.integers):
            assert expected == join_or_error((narrow, False), (other, False))


@given(pairs, pairs)
def test_commutative(a, b):
    """The order of two operands does not matter."""
    assert join_or_error(a, b) == join_or_error(b, a)


@given(pairs)
def test_idempotent(a):
    """An operand mixed with itself is itself."""
    assert a == join_or_error(a, a)


@given(strong_pairs, strong_pairs, strong_pairs)
def test_associative(a, b, c):
    """Joins of strong operands can be grouped in any way, where no step is an error or weak."""
    with option_scopes.enable_x64(True):
        left, right = join_or_error(a, b), join_or_error(b, c)
        if "error" in (left, right) or left[1] or right[1]:
            return
        grouped = {join_or_error(left, c), join_or_error(a, right), join_or_error(a, b, c)}

    assert len(grouped) == 1


@given(strong_pairs)
def test_scalars_of_the_same_kind_change_nothing(a):
    """A Python scalar never changes the width of an array of its kind."""
    kind = {d.integers: int, d.floats: float, d.complexes: complex}
    for group, scalar in kind.items():
        if a[0] in group:
            assert a == promotion.promote((a, operand_of(scalar)))


def operand_of(scalar):
    """The pair of a Python scalar class."""
    return promotion._argument_pair(scalar)


def test_join_of_nodes():
    """Weak kinds are nodes of the lattice like dtypes."""
    assert promotion.lattice_join([promotion.INT, promotion.FLOAT]) == promotion.FLOAT
    assert promotion.lattice_join([d.uint64, d.int8]) == promotion.FLOAT
    assert d.complex64 == promotion.lattice_join([promotion.COMPLEX, d.bfloat16])
    assert promotion.lattice_join([d.int8, d.int16], "strict") is None
    assert promotion.lattice_join([d.int4, d.int8]) is None


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        # What exists keeps its width ...
        ([d.float64, d.float32], (d.float64, False)),
        ([d.int64, d.int32], (d.int64, False)),
        ([d.int64, int], (d.int64, False)),
        ([d.float64, float], (d.float64, False)),
        ([d.float64, complex], (d.complex128, False)),
        ([d.complex128, d.float32], (d.complex128, False)),
        ([d.uint32, d.int64], (d.int64, False)),
        # ... and what does not exist is not made.
        ([d.uint32, d.int32], (d.int32, False)),
        ([d.uint32, d.int8], (d.int32, False)),
        ([d.int64, float], (d.float32, True)),
        ([d.uint64, d.int64], (d.float32, True)),
        ([d.int32, complex], (d.complex64, True)),
    ],
    ids=str,
)
def test_64_bits_while_they_are_off(operands, expected):
    """Promotion neither narrows 64-bit operands nor makes 64-bit results of narrower ones."""
    with option_scopes.enable_x64(False):
        assert expected == promotion.result_type(*operands, return_weak_type=True)


def test_options_are_part_of_the_memo():
    """The same operands give another result after the option changed."""
    operands = ((d.uint32, False), (d.int32, False))

    with option_scopes.enable_x64(True):
        assert (d.int64, False) == promotion.promote(operands)
    with option_scopes.enable_x64(False):
        assert (d.int32, False) == promotion.promote(operands)
    with option_scopes.numpy_dtype_promotion("strict"), pytest.raises(TypePromotionError):
        promotion.promote(operands)


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ([d.float32, float], (d.float32, False)),
        ([d.int8, int], (d.int8, False)),
        ([d.complex64, 1.5], (d.complex64, False)),
        ([d.float8_e5m2, 1], (d.float8_e5m2, False)),
        ([1, 2.5], (d.float32, True)),
        ([d.int8, 1.5], "error"),
        ([d.int8, d.int16], "error"),
        ([d.bool_, d.int8], "error"),
        ([d.float16, d.float32], "error"),
    ],
    ids=str,
)
def test_strict_mode(operands, expected):
    """Dtypes never mix; scalars take the dtype of an array of their kind or a higher one."""
    with option_scopes.numpy_dtype_promotion("strict"), option_scopes.enable_x64(False):
        pairs = tuple(promotion._argument_pair(operand) for operand in operands)
        assert expected == join_or_error(*pairs)


@given(st.lists(pairs, min_size=2, max_size=3))
def test_strict_mode_agrees_with_the_standard_mode(operands):
    """Where strict mode has an answer and an operand is strong, standard mode has the same."""
    with option_scopes.numpy_dtype_promotion("strict"):
        strict = join_or_error(*operands)
    if strict != "error" and not all(weak for _, weak in operands):
        assert strict == join_or_error(*operands)


def test_weak_operands_keep_their_width_among_themselves():
    """Weak values compare by their own widths, and the result stays weak."""
    assert (d.int16, True) == promotion.promote(((d.int8, True), (d.int16, True)))
    assert (d.bfloat16, True) == promotion.promote(((d.int8, True), (d.bfloat16, True)))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([1, 2.5], d.float32),
        ([np.ones(2), 1], d.float32),
        ([np.float64(1), d.float16], d.float32),
        ([True, d.int8], d.int8),
        ([True, 1], d.int32),
        (["int8", int], d.int8),
        ([(d.int8, True)], d.int32),
        ([(d.uint8, True)], d.uint32),
        ([d.float64], d.float64),
        ([np.dtype(">f4")], d.float32),
    ],
    ids=str,
)
def test_result_type(arguments, expected):
    """Values follow the 64-bit rule, dtypes are as they are, weak results become defaults."""
    with option_scopes.enable_x64(False):
        assert expected == promotion.result_type(*arguments)


def test_promote_types():
    """A Python scalar class counts as a scalar."""
    assert d.bfloat16 == promotion.promote_types("bfloat16", float)
    assert d.float32 == promotion.promote_types("bfloat16", np.float16)


@pytest.mark.parametrize("x64", [False, True])
def test_types_promote_alike_with_and_without_64_bits(x64):
    """What is asked about are dtypes, not arrays; NumPy's answer for pairs of integers."""
    with option_scopes.enable_x64(x64):
        for a, b in (("uint64", "int8"), ("int64", "uint64"), ("uint32", "int32"), ("int8", float)):
            assert np.promote_types(a, b) == promotion.promote_types(a, b)


def test_one_operand_is_returned():
    """A single operand is not changed, whatever it is."""
    for pair in [(d.float0, False), (d.int4, True), (d.bool_, False)]:
        assert pair == promotion.promote((pair,))


def test_float0_mixes_with_itself_only():
    """Tangents of integers take no part in arithmetic with numbers."""
    assert (d.float0, False) == promotion.promote(((d.float0, False), (d.float0, False)))
    with pytest.raises(TypePromotionError, match=r"float0.*mix with nothing"):
        promotion.promote(((d.float0, False), (d.float32, False)))


@pytest.mark.parametrize(
    ("mode", "operands", "words"),
    [
        ("standard", [d.float8_e4m3fn, d.float32], "float8_e4m3fn, float32.*8 bits.*astype"),
        ("strict", [d.int8, 1.5], r"int8, float32 \(weak\).*'strict'.*'standard'"),
    ],
)
def test_errors_name_the_dtypes_and_the_way_out(mode, operands, words):
    """The message has the operands, the reason and what to do."""
    with (
        option_scopes.numpy_dtype_promotion(mode),
        option_scopes.enable_x64(False),
        pytest.raises(TypePromotionError, match=f"(?s){words}"),
    ):
        promotion.result_type(*operands)


def test_no_operands():
    """Nothing has no dtype."""
    with pytest.raises(ValueError, match="no operands"):
        promotion.result_type()


def test_all_pairs_have_an_answer_or_a_clear_error():
    """No pair of dtypes makes promotion fail in another way."""
    operands = [(dtype, weak) for dtype in d.all_dtypes for weak in (False, True)]
    results = [join_or_error(a, b) for a, b in itertools.product(operands, repeat=2)]

    assert all(result == "error" or result[0] in d.all_dtypes for result in results)
