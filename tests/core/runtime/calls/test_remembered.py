"""Public functions that remember their calls give what they gave at first, and forget in time."""

from __future__ import annotations

import gc
import inspect
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.calls import remembered as module
from tracebridge.core.runtime.calls import staged_functions

X = np.array([[1.0, 4.0, -2.0], [0.5, 3.0, 2.25]], np.float32)
WITH_NAN = np.where(np.eye(2, 3) > 0, np.float32(np.nan), X)

# Pairs of a function of NumPy's name and of arguments that differ in one thing each.
CALLS: list[tuple[str, list[tuple[tuple[Any, ...], dict[str, Any]]]]] = [
    ("diff", [((X,), {}), ((X, 2), {}), ((X, 1, 0), {}), ((X,), {"axis": 0}), ((X,), {"n": 2})]),
    ("cumsum", [((X,), {}), ((X, 0), {}), ((X,), {"axis": 1}), ((X, 1), {"dtype": "int32"})]),
    ("ptp", [((X,), {}), ((X, 0), {}), ((X, 1), {"keepdims": True})]),
    ("trapezoid", [((X,), {}), ((X,), {"dx": 2.0}), ((X, X), {}), ((X, None, 3.0), {})]),
    ("clip", [((X, 0, 1), {}), ((X, 0.0, 1), {}), ((X, -0.0, 1), {}), ((X, None, 2), {})]),
    ("average", [((X,), {}), ((X, 0), {}), ((X, 1, X * X), {}), ((X,), {"returned": True})]),
    ("gradient", [((X,), {"axis": 0}), ((X, 2.0), {"axis": 1}), ((X[0],), {}), ((X,), {})]),
    ("roll", [((X, 1), {}), ((X, 2), {}), ((X, (1, 1)), {"axis": (0, 1)}), ((X, 1, 0), {})]),
    ("isclose", [((X, X + 1e-6), {}), ((X, X + 1), {}), ((X, X + 1), {"atol": 2.0}),
                 ((X, X), {"rtol": 0.0}), ((WITH_NAN, WITH_NAN, 1e-5, 1e-8, True), {})]),
    ("nansum", [((WITH_NAN,), {}), ((X, 1), {}), ((X, (0, 1)), {}), ((X,), {"keepdims": True})]),
    ("nanprod", [((WITH_NAN,), {}), ((X, 1), {}), ((X,), {"keepdims": True})]),
    ("nanmax", [((WITH_NAN,), {}), ((X, 1), {}), ((WITH_NAN, 0), {}), ((X,), {"keepdims": True})]),
    ("nanmin", [((WITH_NAN,), {}), ((X, 1), {}), ((WITH_NAN, 0), {}), ((X,), {"keepdims": True})]),
    ("nan_to_num", [((WITH_NAN,), {}), ((X,), {}), ((WITH_NAN,), {"nan": 2.0}),
                    ((WITH_NAN, True, 3.0), {})]),
    ("vander", [((X[0],), {}), ((X[0], 2), {}), ((X[0],), {"increasing": True})]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "calls"), CALLS, ids=[name for name, _ in CALLS])
def test_calls_one_after_the_other_are_those_of_numpy(
    name: str, calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    """Each call is remembered under all that decides its result."""
    function, reference = getattr(tnp, name), getattr(np, name)

    for _ in range(3):
        for args, kwargs in calls:
            given = [tnp.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
            out, expected = function(*given, **kwargs), reference(*args, **kwargs)
            for got, wanted in zip(_parts(out), _parts(expected), strict=True):
                np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5)


def _parts(x: Any) -> list[Any]:
    return list(x) if isinstance(x, list | tuple) else [x]


def test_a_remembered_call_runs_nothing_but_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call of a kind does not look at its arguments again."""
    x = tnp.asarray(X)
    first = tnp.diff(x, 1, axis=0)
    monkeypatch.setattr(module, "_remember", None)

    assert tnp.diff(x, 1, axis=0).tolist() == first.tolist()
    with pytest.raises(TypeError):
        tnp.diff(x, 1, axis=1)


def test_a_default_of_zero_is_no_reason_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that a function passes on of its own follow from its arguments."""
    x = tnp.asarray(WITH_NAN)
    first = tnp.nan_to_num(x)
    monkeypatch.setattr(module, "_remember", None)

    assert tnp.nan_to_num(x).tolist() == first.tolist() == np.nan_to_num(WITH_NAN).tolist()


@pytest.mark.parametrize(
    "call",
    [
        tnp.linalg.cond,
        tnp.linalg.matrix_rank,
        lambda x: tnp.linalg.matrix_power(x, 3),
        tb.nn.logmeanexp,
        tb.nn.glu,
    ],
    ids=["cond", "matrix_rank", "matrix_power", "logmeanexp", "glu"],
)
def test_functions_of_several_steps_are_one_program(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call looks at nothing, and gives what the first one gave."""
    x = tnp.asarray(np.array([[2.0, 1.0], [0.5, 3.0]], np.float32))
    first = call(x)
    monkeypatch.setattr(module, "_remember", None)

    assert call(x).tolist() == first.tolist()


def test_traces_and_options_see_the_function_itself() -> None:
    """What is remembered has no part in transformations, nor where an option is another one."""
    x = tnp.asarray(X)
    tnp.nansum(x)

    assert tb.grad(tnp.nansum)(x).tolist() == np.ones_like(X).tolist()
    assert tb.vmap(tnp.nansum)(x).tolist() == [3.0, 5.75]
    with tb.debug_nans(True), pytest.raises(tb.errors.NonFiniteError):
        tnp.cumsum(tnp.asarray(WITH_NAN))
    with tb.numpy_rank_promotion("raise"), pytest.raises(tb.errors.BroadcastError):
        tnp.isclose(x, x[0])


def test_what_is_remembered_can_be_forgotten() -> None:
    """clear_caches and a new value of an option empty the tables."""
    x = tnp.asarray(X)
    tnp.ptp(x)
    assert any(module._TABLES)

    tb.clear_caches()

    assert not any(module._TABLES)
    assert float(tnp.ptp(x)) == 6.0


def test_errors_name_the_function() -> None:
    """The boundary words errors as any other."""
    with pytest.raises(tb.errors.AxisError, match="diff"):
        tnp.diff(tnp.asarray(X), axis=5)
    x = tnp.asarray(X) + 0
    tnp.ptp(x)
    x.delete()
    with pytest.raises(tb.errors.DeletedArrayError, match="ptp"):
        tnp.ptp(x)


def test_signature_and_name_are_those_of_the_function() -> None:
    """Users and tools see the function with its parameters."""
    assert tnp.diff.__name__ == "diff"
    assert tnp.diff.__module__ == "tracebridge.numpy"
    assert list(inspect.signature(tnp.diff).parameters) == ["a", "n", "axis", "prepend", "append"]


def test_an_array_given_twice_stands_for_two_arguments() -> None:
    """The next call may have two arrays of that kind."""
    x, y = tnp.asarray(X), tnp.asarray(X + 1)
    for _ in range(2):
        assert bool(tnp.allclose(x, x))
        assert not bool(tnp.allclose(x, y))
        assert tnp.isclose(y, x).tolist() == np.isclose(X + 1, X).tolist()


def test_calls_that_warn_do_so_each_time() -> None:
    """A remembered call would say nothing; nor would a program that is staged once."""
    x = tnp.asarray(X)
    functions: list[Any] = [tnp.nanmean, tnp.trace, tnp.nansum]
    for f in functions:
        for _ in range(3):
            with pytest.warns(UserWarning, match="64-bit"):
                f(x, dtype="float64")
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tnp.trace(x, dtype="float32")


def test_tuples_are_told_apart_by_the_types_in_them() -> None:
    """(0, 1) is a tuple of axes, (0.0, 1.0) is none."""
    x = tnp.asarray(X)
    tnp.flip(x, (0, 1))
    tnp.roll(x, 1, axis=(0, 1))
    wrong: Any = (0.0, 1.0)

    with pytest.raises(TypeError):
        tnp.flip(x, wrong)
    with pytest.raises(TypeError):
        tnp.roll(x, 1, axis=wrong)


def test_arguments_that_raise_as_keys_are_refused_as_others_are() -> None:
    """What an object raises when it is hashed does not reach the user."""
    x = tnp.asarray(X)
    wrong: Any = memoryview(bytearray(4))
    for _ in range(2):
        with pytest.raises(tb.errors.UnsupportedDtypeError, match="isclose"):
            tnp.isclose(x, wrong)


def test_the_memory_keeps_no_arrays() -> None:
    """Arguments of the first call go with the caller's last name for them."""
    tb.clear_caches()
    given = [tnp.asarray(X[0]) + 0, tnp.asarray(X[1]) + 0]
    kept = [weakref.ref(a) for a in given]
    functions: list[Any] = [tnp.polyval, tnp.searchsorted, tnp.convolve, tnp.outer, tnp.kron]
    for f in functions:
        f(*given)
    tnp.clip(given[0], None, given[1])
    tnp.trapezoid(given[0], dx=2.0)
    assert any(module._TABLES)

    given.clear()
    gc.collect()

    assert [r() for r in kept] == [None, None]


def test_a_number_that_changes_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that runs as one program takes no float into the program."""
    x = tnp.asarray(X)
    expected = tb.nn.standardize(x, epsilon=0.5)
    monkeypatch.setattr(staged_functions, "compile_jaxpr", None)

    for n in range(1, 5):
        tb.nn.standardize(x, epsilon=n / 16)

    assert tb.nn.standardize(x, epsilon=0.5).tolist() == expected.tolist()


def test_one_array_twice_is_remembered_like_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which argument the program takes where is found with two objects; the next call uses it."""
    x, y = tnp.asarray(X), tnp.asarray(X + 1.0)
    first = tnp.cross(x, x)
    monkeypatch.setattr(staged_functions.StagedFunction, "__call__", None)

    np.testing.assert_allclose(first, np.cross(X, X), atol=1e-6)
    np.testing.assert_allclose(tnp.cross(x, x), np.cross(X, X), atol=1e-6)
    np.testing.assert_allclose(tnp.cross(y, x), np.cross(X + 1, X), rtol=1e-5)
    np.testing.assert_allclose(tnp.cross(x, y), np.cross(X, X + 1), rtol=1e-5)


def test_arrays_by_keyword_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call with an array by keyword takes its arrays from the same places again."""
    x, w = tnp.asarray(X), tnp.asarray(np.abs(X) + 1.0)
    tnp.average(x, axis=1, weights=w)
    tnp.average(a=x, weights=w)
    monkeypatch.setattr(staged_functions.StagedFunction, "__call__", None)
    weights = np.abs(X) + 2.0

    wanted = np.average(X, axis=1, weights=weights)
    np.testing.assert_allclose(
        tnp.average(x, axis=1, weights=tnp.asarray(weights)), wanted, rtol=1e-5
    )
    np.testing.assert_allclose(
        tnp.average(a=x, weights=tnp.asarray(weights)), np.average(X, weights=weights), rtol=1e-5
    )


def test_lists_and_tuples_of_arrays_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls with arrays in lists run the program at once, each nesting its own."""
    a = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)
    x, v = tnp.asarray(a), tnp.asarray(a[0])
    factors, factor = tb.scipy.linalg.lu_factor(x), tb.scipy.linalg.cho_factor(x)
    calls: list[tuple[Any, Any]] = [
        (lambda: tnp.block([x, x + 1]), np.block([a, a + 1])),
        (lambda: tnp.block([[x, x + 1], [x + 2, x]]), np.block([[a, a + 1], [a + 2, a]])),
        (lambda: tnp.block([[x], [x + 1]]), np.block([[a], [a + 1]])),
        (lambda: tb.scipy.linalg.lu_solve(factors, v), np.linalg.solve(a, a[0])),
        (lambda: tb.scipy.linalg.lu_solve(factors, b=v, trans=1), np.linalg.solve(a.T, a[0])),
        (lambda: tb.scipy.linalg.cho_solve(factor, v), np.linalg.solve(a, a[0])),
        (lambda: tb.scipy.ndimage.map_coordinates(x, [v - v, v - v + 1], order=1), [1.0, 1.0]),
        (lambda: tb.image.resize(x, [4, 2], "nearest"), np.repeat(a, 2, axis=0)),
        (lambda: tb.image.resize(x, [2, 4], "nearest"), np.repeat(a, 2, axis=1)),
        (lambda: tb.scipy.linalg.cho_factor(x)[0], np.linalg.cholesky(a).T),
    ]

    for _ in range(3):
        for call, expected in calls:
            np.testing.assert_allclose(np.asarray(call()), expected, rtol=1e-5)
        monkeypatch.setattr(module, "_remember", None)
    with pytest.raises(TypeError):
        tnp.block([[x, x]])


def test_nests_that_differ_are_told_apart() -> None:
    """Equal leaves of lists, tuples and keywords are different calls; wrong ones stay wrong."""
    x, y = tnp.asarray(X), tnp.asarray(X + 1)

    for _ in range(3):
        np.testing.assert_array_equal(tnp.block([x, y]), np.block([X, X + 1]))
        np.testing.assert_array_equal(tnp.block([y, x]), np.block([X + 1, X]))
        np.testing.assert_array_equal(tnp.block([x, x]), np.block([X, X]))
        np.testing.assert_array_equal(tnp.block([x, 1.0 * x]), np.block([X, X]))
        with pytest.raises(tb.errors.ArgumentTypeError):
            tnp.block((x, y))
        with pytest.raises(tb.errors.ArgumentTypeError):
            tnp.block([x, (y,)])
    assert tb.jit(lambda a, b: tnp.block([a, b]))(x, y).shape == (2, 6)


def test_simple_values_beside_results_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuple of a result and a flag is the same tuple in later calls, whatever the flag is."""
    x = tnp.asarray(np.array([[4.0, 0.0], [0.0, 9.0]], np.float32))
    for lower in (False, True):
        tb.scipy.linalg.cho_factor(x, lower)
    monkeypatch.setattr(module, "_remember", None)

    for lower in (False, True):
        factor, flag = tb.scipy.linalg.cho_factor(x + 0, lower)
        assert (factor.tolist(), flag) == ([[2.0, 0.0], [0.0, 3.0]], lower)


def test_deleted_arrays_in_lists_are_named() -> None:
    """A remembered call with a deleted array says so."""
    x, y = tnp.asarray(X) + 0, tnp.asarray(X) + 1
    tnp.block([x, y])
    y.delete()

    with pytest.raises(tb.errors.DeletedArrayError, match="block"):
        tnp.block([x, y])


def test_the_only_array_by_keyword() -> None:
    """The program takes it from where it stands, call after call."""
    x = tnp.asarray(X)

    for _ in range(3):
        np.testing.assert_array_equal(tnp.diff(a=x), np.diff(X))
        np.testing.assert_allclose(tnp.nan_to_num(x=x, nan=1.0), X)
        np.testing.assert_allclose(tnp.linalg.norm(axis=0, x=x), np.linalg.norm(X, axis=0))
        np.testing.assert_allclose(tnp.var(a=x, axis=1), np.var(X, axis=1), rtol=1e-6)
