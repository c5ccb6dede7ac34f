"""Indexing against NumPy: random indices, reads and updates, eager and traced."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lax.symbolic import run_symbolic
from tests.quick_compiles import check_grads
from tracebridge.errors import IndexingError
from tracebridge.testing import assert_allclose

SHAPES = [(4,), (3, 2), (2, 3, 2)]


@st.composite
def slices(draw, size):
    """Any slice, also with bounds outside."""
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = draw(st.none() | st.integers(-3, 3).filter(bool))
    return slice(draw(bound), draw(bound), step)


@st.composite
def index_arrays(draw, size, shape):
    """Positions inside an axis, negative ones too."""
    seed = draw(st.integers(0, 2**16))
    return np.random.default_rng(seed).integers(-size, size, shape).astype(np.int32)


@st.composite
def indices(draw, shape, arrays=True):
    """A tuple of slices, integers, arrays, masks, None and Ellipsis that fits ``shape``."""
    common = draw(st.sampled_from([(), (2,), (2, 2)]))
    entries, axis = [], 0
    used = draw(st.integers(0, len(shape)))
    while axis < used:
        size = shape[axis]
        kinds = ["slice", "int"] + (["array", "mask"] if arrays else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "slice":
            entries.append(draw(slices(size)))
        elif kind == "int":
            entries.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            entries.append(draw(index_arrays(size, common)))
        else:
            mask = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 2, size)
            # The number of true elements must be broadcast with the arrays: one, or all alone.
            alone = not any(isinstance(e, np.ndarray) for e in entries) and common == ()
            entries.append(mask.astype(bool) if alone else np.arange(size) == 0)
        axis += 1
        if draw(st.booleans()) and draw(st.booleans()):
            entries.append(None)
    if draw(st.booleans()):
        entries.append(Ellipsis)
    return tuple(entries)


def usable(x, index):
    """What NumPy reads, or None where it refuses the index."""
    try:
        return x[index]
    except (IndexError, ValueError):
        return None


@settings(max_examples=40)
@given(st.data())
def test_reads_are_numpy_s(data):
    """x[index], eagerly, under jit, and with the arrays traced."""
    shape = data.draw(st.sampled_from(SHAPES))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    index = data.draw(indices(shape))
    expected = usable(x, index)
    if expected is None:
        return
    arrays = [e for e in index if isinstance(e, np.ndarray) and e.dtype != bool]

    def read(x, arrays):
        given = iter(arrays)
        return x[
            tuple(
                next(given) if isinstance(e, np.ndarray) and e.dtype != bool else e for e in index
            )
        ]

    np.testing.assert_array_equal(expected, tnp.array(x)[index])
    np.testing.assert_array_equal(expected, tb.jit(read)(x, arrays))


@settings(max_examples=40)
@given(st.data())
def test_reads_map_and_differentiate(data):
    """vmap adds an axis in front; the gradient counts how often an element was read."""
    shape = data.draw(st.sampled_from(SHAPES))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    index = data.draw(indices(shape))
    expected = usable(x, index)
    if expected is None:
        return
    counts = np.zeros(shape, np.float32)
    np.add.at(counts, index, 1)
    pair = np.stack([x, -x])

    found = tb.jit(lambda p: (tb.vmap(lambda v: v[index])(p), tb.grad(lambda v: v[index].sum())(x)))
    mapped, gradient = found(pair)

    np.testing.assert_array_equal(np.stack([x[index], -x[index]]), mapped)
    np.testing.assert_array_equal(counts, gradient)


def put(x, index, values):
    x[index] = values


UPDATES = {
    "set": (lambda r, v: r.set(v), put),
    "add": (lambda r, v: r.add(v), np.add.at),
    "subtract": (lambda r, v: r.subtract(v), np.subtract.at),
    "multiply": (lambda r, v: r.multiply(v), np.multiply.at),
    "mul": (lambda r, v: r.mul(v), np.multiply.at),
    "divide": (lambda r, v: r.divide(v), np.divide.at),
    "power": (lambda r, v: r.power(v), np.power.at),
    "min": (lambda r, v: r.min(v), np.minimum.at),
    "max": (lambda r, v: r.max(v), np.maximum.at),
    "apply": (lambda r, v: r.apply(lambda e: 2 * e + 1), None),
}


@settings(max_examples=40)
@given(st.data(), st.sampled_from(sorted(UPDATES)))
def test_updates_are_numpy_s(data, name):
    """x.at[index].<update>(values), eagerly and traced; repeated positions count."""
    shape = data.draw(st.sampled_from(SHAPES))
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape) / 4
    index = data.draw(indices(shape))
    chosen = usable(x, index)
    if chosen is None:
        return
    update, reference = UPDATES[name]
    scalar = data.draw(st.booleans())
    # Equal values for "set", where the order of repeated positions is open.
    values = np.float32(2.0) if scalar or name == "set" else 1 + np.arange(
        chosen.size, dtype=np.float32).reshape(chosen.shape) / 8  # fmt: skip
    expected = x.copy()
    if reference is None:
        for _ in range(1):
            np.add.at(counts := np.zeros(shape, int), index, 1)
        while counts.any():
            expected = np.where(counts > 0, 2 * expected + 1, expected)
            counts = np.maximum(counts - 1, 0)
    else:
        reference(expected, index, values)

    arrays = [e for e in index if isinstance(e, np.ndarray) and e.dtype != bool]

    def traced(x, arrays, values):
        given = iter(arrays)
        full = tuple(
            next(given) if isinstance(e, np.ndarray) and e.dtype != bool else e for e in index
        )
        return update(x.at[full], values)

    assert_allclose(update(tnp.array(x).at[index], values), expected, rtol=1e-4)
    assert_allclose(tb.jit(traced)(x, arrays, values), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(None, [9, 1, 2]), ("drop", [9, 1, 2]), ("fill", [9, 1, 2]), ("clip", [9, 1, 9])],
)
def test_modes_of_updates(mode, expected):
    """Positions outside are dropped, or moved to the end."""
    x, places = tnp.arange(3), tnp.array([0, 7])

    assert expected == x.at[places].set(9, mode=mode).tolist()
    assert expected == tb.jit(lambda x, i: x.at[i].set(9, mode=mode))(x, places).tolist()
    doubled = [2 * v if e == 9 else v for v, e in zip([5, 6, 7], expected, strict=True)]
    once = tnp.array([5, 6, 7]).at[places].apply(lambda v: 2 * v, mode=mode)
    assert doubled == once.tolist()


WITH_OPTIONS = {
    "set": lambda ref, **options: ref.set(9.0, **options),
    "add": lambda ref, **options: ref.add(9.0, **options),
    "divide": lambda ref, **options: ref.divide(9.0, **options),
    "min": lambda ref, **options: ref.min(-9.0, **options),
    "apply": lambda ref, **options: ref.apply(lambda v: v + 9.0, **options),
}


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("mode", [None, "drop", "fill", "clip"])
@pytest.mark.parametrize("place", [-9, -4, -1, 0, 2, 3, 8, 2**40])
def test_integers_mean_what_arrays_mean(place, mode, wrap):
    """Known integers outside an axis are treated as those in an array of integers are."""
    x = tnp.arange(6.0).reshape(2, 3)
    options = {"mode": mode, "wrap_negative_indices": wrap}
    other = tnp.array([min(place, 2**31 - 1)])

    assert_allclose(x.at[1, other].get(**options)[0], x.at[1, place].get(**options))
    for update in WITH_OPTIONS.values():
        expected = update(x.at[1, other], **options).tolist()
        assert expected == update(x.at[1, place], **options).tolist()
        assert expected == tb.jit(lambda x, f=update: f(x.at[1, place], **options))(x).tolist()


def test_positions_outside_by_value():
    """Reads are clamped or filled, updates dropped or clamped; without wrapping -1 is outside."""
    x = tnp.arange(3.0)
    fill = {"mode": "fill", "fill_value": -5.0}

    assert [2.0, -5.0] == [float(x.at[7].get()), float(x.at[7].get(**fill))]
    assert np.isnan(x.at[7].get(mode="fill"))
    assert [2.0, -5.0] == [float(x.at[-1].get(wrap_negative_indices=w, **fill)) for w in (1, 0)]
    assert 0.0 == float(x.at[-1].get(mode="clip", wrap_negative_indices=False))
    assert [0.0, 1.0, 2.0] == x.at[7].set(9.0).tolist() == x.at[-7].set(9.0).tolist()
    assert [0.0, 1.0, 9.0] == x.at[7].set(9.0, mode="clip").tolist()
    assert [0.0, 0.0, 0.0] == tb.grad(lambda x: x.at[7].get(**fill))(x).tolist()
    assert [9.0, 1.0, 9.0] == tnp.put(x, tnp.array([-1, 5]), 9.0, "clip", inplace=False).tolist()
    assert [2.0, 0.0] == tnp.take(x, tnp.array([5, -1]), mode="clip").tolist()
    assert (0, 2) == tnp.zeros((0, 2)).at[tnp.array([0])].set(1.0).shape


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), [0, 2]),
        ([0, 1], [2, -1]),
        ((1, 0),),
        ([[0], [1]], [[1, 1]]),
        (slice(None), [True, False, True]),
        (0, []),
        (Ellipsis, [1, 1], None),
    ],
)
def test_sequences_inside_tuples_are_arrays(index):
    """As in NumPy; alone a list is an error, since it could be meant as a tuple."""
    x = np.arange(6.0).reshape(2, 3)

    assert_allclose(tnp.array(x)[index], x[index])
    expected = x.copy()
    np.add.at(expected, index, 2.0)
    assert_allclose(tnp.array(x).at[index].add(2.0), expected)
    assert_allclose(tnp.array(x).at[index].apply(lambda v: v + 2.0), expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 2]),
        ({"mode": "clip"}, [0, 2]),
        ({"mode": "fill", "fill_value": -1}, [0, -1]),
        ({"mode": "fill"}, [0, np.iinfo(np.int32).min]),
    ],
)
def test_modes_of_reads(options, expected):
    """Positions outside read the last element, or the fill value."""
    assert expected == tnp.arange(3).at[tnp.array([0, 7])].get(**options).tolist()


def test_apply_counts_repetitions():
    """As NumPy's ufunc.at: once for each time that a position comes."""
    x, twice = tnp.array([1.0, 2.0, 3.0]), tnp.array([0, 0])

    assert [3.0, 2.0, 3.0] == x.at[twice].apply(lambda v: v + 1).tolist()
    assert [3.0, 2.0, 3.0] == tb.jit(lambda x, i: x.at[i].apply(lambda v: v + 1))(x, twice).tolist()
    assert [4.0, 8.0, 3.0] == x.at[tnp.array([[0, 0], [1, 1]])].apply(lambda v: 2 * v).tolist()
    mapped = tb.vmap(lambda i: x.at[i].apply(lambda v: -v))(tnp.array([[0, 0], [1, 2]]))
    assert [[1.0, 2.0, 3.0], [1.0, -2.0, -3.0]] == mapped.tolist()
    check_grads(lambda x: x.at[twice].apply(lambda v: v * v), (np.array([1.5, 2.0]),), order=1)
    assert [1.0, 2.0, 3.0] == x.at[tnp.array([], "int32")].apply(lambda v: -v).tolist()


def test_apply_of_a_traced_mask():
    """A mask of the shape of the array needs no positions."""
    double = tb.jit(lambda x: x.at[x > 1].apply(lambda v: 2 * v))

    assert [1.0, 4.0, 6.0] == double(tnp.array([1.0, 2.0, 3.0])).tolist()


SYMBOLIC = [
    slice(None, None, 2), slice(1, None, 2), slice(None, None, -2), slice(None, 5), slice(9, None),
    slice(-3, None), slice(2, -2), slice(1, -1, 3), slice(5, 2), slice(None, None, -1),
    slice(-2, None, -1), slice(None, -1, 2), slice(3, 0, -2),
]  # fmt: skip


@pytest.mark.parametrize("part", SYMBOLIC, ids=str)
def test_slices_of_symbolic_axes(part):
    """One program for all sizes reads what NumPy reads, also where bounds are outside."""
    for size in (1, 2, 7):
        x = np.arange(2 * size, dtype=np.float32).reshape(size, 2)

        (found,) = run_symbolic(lambda v: v[part], "n, 2", x)
        np.testing.assert_array_equal(x[part], found)


def test_empty_slices_with_steps():
    """An empty slice is empty, wherever its bounds are."""
    for size in (1, 3):
        x = np.arange(size)
        for part in (slice(3, 0, -2), slice(9, 12, 3), slice(-9, -12, -2)):
            assert x[part].tolist() == tnp.array(x)[part].tolist()


def test_updates_of_symbolic_axes():
    """A strided slice of a symbolic axis is updated."""
    x = np.arange(7, dtype=np.float32)
    expected = x.copy()
    expected[::2] += 1

    (found,) = run_symbolic(lambda v: v.at[::2].add(1.0), "n", x)
    np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        ((0, 0, 0), IndexingError, r"too many indices: f32\[2,3\] has 2 axes, the index has 3"),
        ((..., ...), IndexingError, "at most one Ellipsis"),
        ("a", TypeError, "strings, got 'a'"),
        (1.5, TypeError, "integer or boolean"),
        ([0, 1], TypeError, r"non-tuple sequence such as \[0, 1\]"),
        (np.ones(5, bool), IndexError, "mask|boolean"),
        (np.ones(2, np.float32), TypeError, r"integer or boolean type, got f32\[2\]"),
        ((np.zeros(2, int), np.zeros(3, int)), ValueError, r"\(2,\), \(3,\)"),
        (slice(None, None, 0), ValueError, "step cannot be zero"),
    ],
    ids=str,
)
def test_bad_indices(index, error, text):
    """The message says what was got."""
    x = tnp.ones((2, 3))
    with pytest.raises(error, match=text):
        x[index]
    with pytest.raises(error, match=text):
        x.at[index].set(1.0)


def test_bad_modes_and_values():
    """An unknown mode is listed with those that exist; values must fit."""
    x = tnp.ones((2, 3))
    with pytest.raises(ValueError, match=r"mode must be one of .*'clip'.*got 'wrong'"):
        x.at[tnp.array([0])].set(1.0, mode="wrong")
    with pytest.raises(ValueError, match=r"\(4,\).*\(3,\)"):
        x.at[0].set(np.ones(4))


SCALAR_MASK_PARTS = [True, False, None, Ellipsis, 1, slice(None), np.array([0, 1])]


@pytest.mark.parametrize("first", SCALAR_MASK_PARTS[:2])
def test_scalar_masks_are_positions_of_a_new_axis(first: bool) -> None:
    """Booleans beside other entries act as in NumPy: as arrays of one position, or of none."""
    x = np.arange(12.0, dtype=np.float32).reshape(2, 3, 2)
    ours = tnp.array(x)
    for rest in [(), *itertools.permutations(SCALAR_MASK_PARTS, 2)]:
        for index in ((first, *rest), (*rest, first)):
            kinds = [type(e) for e in index]
            if np.ndarray in kinds and any(e is False for e in index):
                continue  # no position beside two: shapes that do not fit
            updated, added = x.copy(), x.copy()
            updated[index] = 7.0
            np.add.at(added, index, 1.0)

            assert_allclose(ours[index], x[index])
            assert x[index].shape == tb.eval_shape(lambda x, i=index: x[i], ours).shape
            assert_allclose(ours.at[index].set(7.0), updated)
            assert_allclose(ours.at[index].add(1.0), added)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit])
def test_apply_to_arrays_without_elements(wrap):
    """Arrays of indices choose nothing, integers are out of bounds."""
    assert (0, 2) == wrap(lambda x: x.at[tnp.array([0, 2])].apply(tnp.sin))(tnp.ones((0, 2))).shape
    with pytest.raises(IndexError):
        wrap(lambda x: x.at[0].apply(tnp.sin))(tnp.ones((0, 2)))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("other", ["int8", "uint8", "uint32", "int64", "uint64"])
def test_index_arrays_of_any_dtype_stand_beside_others(other: str, wide: bool) -> None:
    """Beside integers, slices, masks and arrays of another dtype; what is outside stays outside."""
    x = np.arange(60.0, dtype=np.float32).reshape(4, 5, 3)
    rows, columns = np.array([3, 1], other), np.array([0, -2], np.int32)
    indices = [
        (slice(None), rows, 1), (0, slice(None), rows // 2), (slice(1, 3), None, rows),
        (rows, columns), (np.arange(4) == 2, slice(None), rows[:1] // 2), (rows, slice(None), -1),
    ]  # fmt: skip
    # Without 64 bits the largest number of int64 would be -1 before it is an index.
    outside = np.array([100 if other == "int64" else np.iinfo(other).max, 2], other)

    with tb.enable_x64(wide):
        ours = tnp.asarray(x)
        for index in indices:
            written = x.copy()
            np.add.at(written, index, 2)
            np.testing.assert_array_equal(x[index], ours[index])
            np.testing.assert_array_equal(x[index], tb.jit(lambda y, i=index: y[i])(ours))
            np.testing.assert_array_equal(written, ours.at[index].add(2))
        found = ours.at[tnp.asarray(outside), columns, 0].get(mode="fill", fill_value=-1)
    np.testing.assert_array_equal([-1, x[2, 3, 0]], found)


def test_rows_by_arange_and_one_position_in_each() -> None:
    """Gradients without a scatter, values of NumPy; with windows, slices, two axes of rows."""
    x = np.random.default_rng(0).standard_normal((4, 3, 5, 2)).astype(np.float32)
    four, three = np.arange(4), np.arange(3)
    i, j = np.array([2, 0, -1, 1]), np.random.default_rng(1).integers(-5, 5, (4, 3))
    forms = [
        (lambda x, i, j: x[four, :, i], False),
        (lambda x, i, j: x[four, i], False),
        (lambda x, i, j: x[:, 1, :, 0][four, i], True),
        (lambda x, i, j: x[..., 0][four[:, None], three, j], True),
        (lambda x, i, j: x[four[:, None], three[None], j, 1], False),
        (lambda x, i, j: x[four, i, ::2], False),
        (lambda x, i, j: x[i, three[[1, 2, 0, 1]], four], False),
        (lambda x, i, j: x[i[:3], three], False),
        (lambda x, i, j: x[four, four % 3, i], False),
        (lambda x, i, j: x[four], False),
        (lambda x, i, j: x[four[:3], i[:3]], False),
        (lambda x, i, j: x[three, three, three], False),
        (lambda x, i, j: x[four, None, i], False),
    ]  # fmt: skip

    def everything(x, i, j):
        return [form(x, i, j) for form, _ in forms]

    for (form, _), found in zip(forms, tb.jit(everything)(x, i, j), strict=True):
        np.testing.assert_array_equal(found, form(x, i, j))

    def gradients(x, i, j):
        return [tb.grad(lambda x, f=f: (f(x, i, j) ** 2).sum())(x) for f, _ in forms]

    for (form, scatters_not), found in zip(forms, tb.jit(gradients)(x, i, j), strict=True):
        expected = np.zeros_like(x)
        places = np.arange(x.size).reshape(x.shape)
        picked = np.asarray(form(places, i, j)).ravel()
        np.add.at(expected.ravel(), picked, 2 * x.ravel()[picked])
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        f = tb.grad(lambda x, i, j, form=form: form(x, i, j).sum())
        text = str(tb.make_jaxpr(f)(x, i, j))
        assert ("scatter" not in text) is scatters_not
