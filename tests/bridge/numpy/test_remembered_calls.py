"""Every function that remembers calls: what it gives does not depend on the calls before.

Each call is made with the memory emptied, and then again after all other calls of the function:
results, errors and warnings are the same, under each option.
"""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.calls import remembered as module

Call = tuple[tuple[Any, ...], dict[str, Any]]

M = np.array([[4.0, 1.0, -0.5], [1.0, 3.0, 0.25], [-0.5, 0.25, 2.0]], np.float32)
N = np.array([[1.0, np.nan, 2.0], [0.0, 1.0, -3.0], [np.inf, 2.0, 1.0]], np.float32)
V = np.array([0.5, 1.0, 2.5], np.float32)
W = np.array([1.0, 3.0, -2.0], np.float32)
K = np.array([2, 0, 1], np.int32)


def call(*args: Any, **kwargs: Any) -> Call:
    """A call."""
    return args, kwargs


# Calls of each function: ndarrays become arrays.
CALLS: dict[str, list[Call]] = {
    "numpy.allclose": [call(V, W), call(V, V, 1e-3), call(N, N, equal_nan=True)],
    "numpy.argsort": [call(M), call(M, 0), call(V, descending=True), call(V, dtype="int64")],
    "numpy.around": [call(M), call(M, 1), call(M, decimals=-1)],
    "numpy.array_equal": [call(V, W), call(V, M), call(N, N, True)],
    "numpy.average": [call(M), call(M, 1), call(M, 0, V), call(M, axis=(0, 1), keepdims=True)],
    "numpy.broadcast_to": [call(V, (2, 3)), call(V, 3), call(V, shape=(1, 3))],
    "numpy.clip": [call(M, 0, 1), call(M, 1.0, 2.5), call(M, V, W), call(M, max=1)],
    "numpy.convolve": [call(V, W), call(V, W, "same"), call(V, W, mode="valid")],
    "numpy.corrcoef": [call(M), call(V, W), call(M, rowvar=False), call(M, dtype="float64")],
    "numpy.correlate": [call(V, W), call(V, W, "full"), call(V, W, mode="same")],
    "numpy.count_nonzero": [call(N), call(N, 1), call(N, axis=(0, 1)), call(N, 0, True)],
    "numpy.cov": [call(M), call(V, W), call(M, ddof=0), call(M, None, False, True)],
    "numpy.cross": [call(V, W), call(M, M + 1, axis=0), call(M, M + 1, 1, 0)],
    "numpy.cumprod": [call(M), call(M, 1), call(M, axis=0, dtype="float64")],
    "numpy.cumsum": [call(M), call(M, 1), call(M, axis=0, dtype="float64")],
    "numpy.diagonal": [call(M), call(M, 1), call(M, 0, 1, 0)],
    "numpy.diff": [call(M), call(M, 1, 0), call(V, n=2), call(V, prepend=1)],
    "numpy.dot": [call(M, V), call(V, M), call(M, M + 1), call(M, 2)],
    "numpy.expand_dims": [call(M, 1), call(M, (0, 1)), call(M, axis=0)],
    "numpy.flip": [call(M), call(M, 1), call(M, (0, 1)), call(M, axis=0)],
    "numpy.gradient": [call(V), call(V, 2.0), call(V, 1), call(M, axis=0), call(V, W)],
    "numpy.inner": [call(V, W), call(M, V), call(M, 2)],
    "numpy.isclose": [call(V, W), call(M, V), call(V, 1), call(V, 1.0), call(V, W, atol=4.0)],
    "numpy.kron": [call(V, W), call(M, V), call(M, 2), call(2, M)],
    "numpy.moveaxis": [call(M, 0, 1), call(M, (0, 1), (1, 0)), call(M, source=1, destination=0)],
    "numpy.nan_to_num": [call(N), call(N, True, 1), call(N, nan=1.0, posinf=2)],
    "numpy.nanmax": [call(N), call(N, 1), call(N, axis=(0, 1)), call(N, 0, initial=1.5)],
    "numpy.nanmin": [call(N), call(N, 1), call(N, axis=(0, 1)), call(N, 0, initial=1)],
    "numpy.nanmean": [call(N), call(N, 1), call(N, axis=(0, 1)), call(N, dtype="float64")],
    "numpy.nanprod": [call(N), call(N, 1), call(N, (0, 1)), call(N, dtype="float64")],
    "numpy.nanstd": [call(N), call(N, 1), call(N, 0, ddof=1), call(N, dtype="float64")],
    "numpy.nansum": [call(N), call(N, 1), call(N, (0, 1)), call(N, dtype="float64"),
                     call(N, initial=1), call(N, initial=2.5)],
    "numpy.nanvar": [call(N), call(N, 1), call(N, 0, ddof=1), call(N, dtype="float64")],
    "numpy.outer": [call(V, W), call(M, V), call(V, 2)],
    "numpy.polyval": [call(V, W), call(V, M), call(V, 2), call(V, W, unroll=1)],
    "numpy.ptp": [call(M), call(M, 1), call(M, (0, 1)), call(M, axis=0, keepdims=True)],
    "numpy.ravel": [call(M), call(M, "F"), call(M, order="C")],
    "numpy.reshape": [call(M, -1), call(M, (9, 1)), call(M, shape=(1, 9), order="F")],
    "numpy.roll": [call(M, 1), call(M, 1, 0), call(M, (1, 0), (0, 1)), call(M, K[:1], axis=1)],
    "numpy.rot90": [call(M), call(M, 1), call(M, 2, (1, 0)), call(M, k=0)],
    "numpy.round": [call(M), call(M, 1), call(M, decimals=-1)],
    "numpy.searchsorted": [call(V, W), call(V, 1), call(V, W, "right"), call(V, W, sorter=K)],
    "numpy.sort": [call(M), call(M, 0), call(M, None), call(V, descending=True)],
    "numpy.squeeze": [call(M[None]), call(M[None], 0), call(M[None], axis=(0,))],
    "numpy.swapaxes": [call(M, 0, 1), call(M, 0, 0), call(M, axis1=1, axis2=0)],
    "numpy.take": [call(M, K), call(M, K, 1), call(M, 1, axis=0), call(V, K, mode="clip")],
    "numpy.take_along_axis": [call(V, K), call(M, K[None], 0), call(V, K, fill_value=1)],
    "numpy.tensordot": [call(M, M + 1), call(M, V, 1), call(M, M + 1, axes=0)],
    "numpy.tile": [call(V, 2), call(V, (2, 1)), call(M, reps=1)],
    "numpy.trace": [call(M), call(M, 1), call(M, 0, 1, 0), call(M, dtype="int64")],
    "numpy.trapezoid": [call(V), call(V, W), call(V, None, 2.0), call(M, dx=1, axis=0)],
    "numpy.tril": [call(M), call(M, 1), call(M, k=-1)],
    "numpy.triu": [call(M), call(M, 1), call(M, k=-1)],
    "numpy.vander": [call(V), call(V, 2), call(V, 2, True), call(V, increasing=True)],
    "numpy.vdot": [call(V, W), call(M, M + 1), call(V, preferred_element_type="float64", b=W)],
    "numpy.linalg.cholesky": [call(M), call(M, upper=True), call(-M, symmetrize_input=False)],
    "numpy.linalg.cond": [call(M), call(M * 0), call(M, 1), call(M, np.inf), call(M, p="fro")],
    "numpy.linalg.det": [call(M), call(N), call(np.stack([M, 2 * M]))],
    "numpy.linalg.inv": [call(M), call(M * 0), call(np.stack([M, 2 * M]))],
    "numpy.linalg.matrix_power": [call(M, 3), call(M, 0), call(M, n=-2)],
    "numpy.linalg.matrix_rank": [call(M), call(M * 0), call(M, 1.0), call(M, rtol=0.5)],
    "numpy.linalg.norm": [call(M), call(M, 1), call(M, "fro"), call(M, 1, 0), call(V, np.inf),
                          call(M, 2, (0, 1)), call(V, 0), call(V, 0.0), call(V, 1.0)],
    "numpy.linalg.solve": [call(M, V), call(M, M + 1), call(M * 0, V)],
    "numpy.linalg.vector_norm": [call(V), call(M, axis=1), call(M, axis=(0, 1), ord=1)],
    "numpy.angle": [call(M), call(M, True), call(M, deg=True)],
    "numpy.append": [call(V, W), call(M, W), call(M, M + 1, 0), call(V, 2), call(V, W, axis=0)],
    "numpy.diag": [call(V), call(M), call(M, 1), call(V, k=-1)],
    "numpy.ediff1d": [call(V), call(M), call(V, W), call(V, 1)],
    "numpy.poly": [call(V), call(M)],
    "numpy.polyadd": [call(V, W), call(V, 2)],
    "numpy.polyder": [call(V), call(V, 2), call(V, m=0)],
    "numpy.polyfit": [call(V, W, 1), call(V, W, deg=1), call(V, W, 1, w=V),
                      call(V, W, 0, full=True), call(V, W, 1, 0.5),
                      call(V, W, 1, None, False, V), call(V, W, 0, cov=True)],
    "numpy.polyint": [call(V), call(V, 2), call(V, 1, 2.0), call(V, k=1)],
    "numpy.polysub": [call(V, W), call(V, 2)],
    "numpy.resize": [call(V, (2, 3)), call(M, 4), call(M, new_shape=(2, 1))],
    "numpy.rollaxis": [call(M, 1), call(M, 1, 0), call(M, axis=0, start=2)],
    "numpy.unwrap": [call(V), call(M, axis=0), call(M, 1.0), call(V, None, -1, 2), call(V, W[:1])],
    "numpy.linalg.eig": [call(M), call(N)],
    "numpy.linalg.eigh": [call(M), call(M, "U"), call(M, symmetrize_input=False)],
    "numpy.linalg.eigvals": [call(M), call(np.stack([M, 2 * M]))],
    "numpy.linalg.eigvalsh": [call(M), call(M, "U"), call(M, UPLO="L")],
    "numpy.linalg.lstsq": [call(M, V), call(M, M + 1), call(M, V, 0.5), call(M[:2], V[:2]),
                           call(M[:2], V[:2], numpy_resid=True)],
    "numpy.linalg.qr": [call(M), call(M, "r"), call(M, mode="raw"), call(M[:, :2], "complete")],
    "numpy.linalg.slogdet": [call(M), call(M * 0), call(M, method="qr")],
    "numpy.linalg.svd": [call(M), call(M, False), call(M, compute_uv=False), call(M[:2], True)],
    "numpy.linalg.svdvals": [call(M), call(M[:2])],
    "scipy.linalg.block_diag": [call(V, M), call(M), call(M, M + 1, V)],
    "scipy.linalg.cholesky": [call(M), call(M, True), call(M, lower=True)],
    "scipy.linalg.expm": [call(M), call(M, upper_triangular=True), call(M, max_squarings=3)],
    "scipy.linalg.hessenberg": [call(M), call(M, calc_q=True)],
    "scipy.linalg.lu": [call(M), call(M, True), call(M, permute_l=True)],
    "scipy.linalg.lu_factor": [call(M), call(M + 1, True)],
    "scipy.linalg.polar": [call(M), call(M, "left"), call(M[:2]), call(M, method="svd"),
                           call(M, eps=1e-3)],
    "scipy.linalg.qr": [call(M), call(M, mode="r"), call(M, pivoting=True),
                        call(M, False, None, "r")],
    "scipy.linalg.schur": [call(M), call(M, "complex"), call(M, output="real")],
    "scipy.linalg.solve": [call(M, V), call(M, M + 1), call(M, V, assume_a="pos"),
                           call(M, V, True)],
    "scipy.linalg.solve_triangular": [call(M, V), call(M, V, 1), call(M, V, lower=True),
                                      call(M, M + 1, "T", True, True)],
    "scipy.linalg.sqrtm": [call(M), call(M, 1)],
    "scipy.linalg.svd": [call(M), call(M, False), call(M, compute_uv=False)],
    "nn.glu": [call(np.stack([V, W])[:, :2]), call(np.stack([V, W]), 0)],
    "nn.logmeanexp": [call(M), call(M, 1), call(M, 0, M > 0), call(M, keepdims=True)],
    "numpy.block": [call([V, W]), call([[M, M + 1], [M, M]]), call([[M], [M + 1]]), call(M)],
    "numpy.frexp": [call(M), call(N), call(K)],
    "numpy.modf": [call(M), call(N), call(K)],
    "numpy.put_along_axis": [call(V, K, W, 0, False), call(V, K, 1, 0, inplace=False),
                             call(M, K[None], 2.0, axis=0, inplace=False),
                             call(V, K, W, None, False, mode="clip")],
    "numpy.sort_complex": [call(M), call(V), call(K)],
    "numpy.std": [call(M), call(M, 1), call(M, (0, 1)), call(M, ddof=1), call(M, 0, keepdims=True),
                  call(M, dtype="float64"), call(M, where=M > 0), call(M, correction=1)],
    "numpy.var": [call(M), call(M, 1), call(M, (0, 1)), call(M, ddof=1), call(M, 0, keepdims=True),
                  call(M, dtype="float64"), call(M, where=M > 0), call(M, correction=1)],
    "scipy.linalg.cho_factor": [call(M), call(M, True), call(M, lower=True)],
    "scipy.linalg.cho_solve": [call((M, False), V), call((M, True), V), call((M, True), b=M + 1)],
    "scipy.linalg.eigh": [call(M), call(M, M), call(M, None, False), call(M, eigvals_only=True),
                          call(M, M, type=2)],
    "scipy.linalg.expm_frechet": [call(M, M + 1), call(M, M, compute_expm=False),
                                  call(M, M, method="SPS")],
    "scipy.linalg.lu_solve": [call((M, K), V), call((M, K), V, 1), call((M, K), M + 1, trans=2)],
    "scipy.linalg.solve_sylvester": [call(M, M + 1, M), call(M, M, M),
                                     call(M, M + 1, M, method="eigen")],
    "nn.log_softmax": [call(M), call(M, 0), call(M, (0, 1)), call(M, where=M > 0), call(K)],
    "nn.softmax": [call(M), call(M, 0), call(M, (0, 1)), call(M, where=M > 0), call(K)],
    "nn.standardize": [call(M), call(M, 0), call(M, (0, 1)), call(M, 0, V, W), call(M, epsilon=0.5),
                       call(M, epsilon=1), call(M, algorithm="stable")],
}  # fmt: skip

OPTIONS: list[tuple[str, Any]] = [
    ("enable_x64", True),
    ("numpy_dtype_promotion", "strict"),
    ("numpy_rank_promotion", "raise"),
    ("numpy_rank_promotion", "warn"),
    ("debug_nans", True),
    ("disable_jit", True),
    ("default_matmul_precision", "highest"),
    ("explicit_x64_dtypes", "error"),
    ("transfer_guard", "disallow"),
]


def function(name: str) -> Any:
    """The public function of a name."""
    out: Any = tb
    for part in name.split("."):
        out = getattr(out, part)
    return out


def arrays(x: Any) -> Any:
    """An argument as it is passed."""
    if isinstance(x, list) or (isinstance(x, tuple) and any(isinstance(v, np.ndarray) for v in x)):
        return type(x)(map(arrays, x))
    return tnp.asarray(x) if isinstance(x, np.ndarray) else x


def look(x: Any) -> Any:
    """All that a caller sees of a result."""
    if isinstance(x, list | tuple):
        return [type(x), *[look(v) for v in x]]
    host = np.asarray(x)
    return type(x).__name__, host.dtype, host.shape, host.tobytes(), getattr(x, "weak_type", None)


def outcome(f: Any, made: Call) -> Any:
    """What a call gives, or raises, and the warnings."""
    args, kwargs = made
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            got = look(f(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - any that a function raises is compared
            got = type(error).__name__, str(error)
    return got, [(w.category, str(w.message)) for w in seen]


def twins(x: Any) -> Iterator[Any]:
    """Other values that are equal to an argument, or nearly."""
    if isinstance(x, tuple) and all(type(v) is int for v in x):
        yield from (tuple(map(float, x)), list(x), tuple(map(np.int32, x)))
        if set(x) <= {0, 1}:
            yield tuple(map(bool, x))
    elif type(x) in (int, float, bool) and np.isfinite(x):
        kinds: list[Any] = [int, float, bool, np.int32, np.float32, complex]
        others = [kind(x) for kind in kinds if type(x) is not kind]
        yield from [other for other in others if other == x]
        if x == 0:
            yield -0.0


def with_twins(calls: list[Call]) -> list[Call]:
    """The calls, and those with one argument exchanged for an equal one or an equal array."""
    out = list(calls)
    for args, kwargs in calls:
        for i, x in enumerate(args):
            out += [((*args[:i], twin, *args[i + 1 :]), kwargs) for twin in twins(x)]
        for name, x in kwargs.items():
            out += [(args, kwargs | {name: twin}) for twin in twins(x)]
        if len(args) > 1 and isinstance(args[0], tb.Array) and isinstance(args[1], tb.Array):
            out.append(((args[0], args[0], *args[2:]), kwargs))
            out.append(((args[1], args[1], *args[2:]), kwargs))
    return out


def given(name: str) -> list[Call]:
    """The calls of a function with arrays."""
    return [
        (tuple(map(arrays, args)), {k: arrays(v) for k, v in kwargs.items()})
        for args, kwargs in CALLS[name]
    ]


def check_independent(f: Any, calls: list[Call]) -> None:
    """Calls after one another, forwards and backwards, give what each gives alone."""
    alone: list[Any] = []
    for made in calls:
        outcome(f, made)  # what is staged may warn once
        module._forget()
        alone.append(outcome(f, made))

    for order in (range(len(calls)), reversed(range(len(calls)))):
        module._forget()
        for i in [i for i in order for _ in range(2)]:
            assert outcome(f, calls[i]) == alone[i], calls[i]


def test_each_function_that_remembers_is_here() -> None:
    """The table has all functions with the mark."""
    mark = tnp.diff.__code__
    spaces = {
        "numpy": tnp,
        "numpy.linalg": tnp.linalg,
        "nn": tb.nn,
        "scipy.linalg": tb.scipy.linalg,
    }
    marked = {
        f"{space}.{name}"
        for space, where in spaces.items()
        for name, value in vars(where).items()
        if getattr(value, "__code__", None) is mark and not name.startswith("_")
    }

    assert marked == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_calls_do_not_depend_on_those_before(name: str) -> None:
    """Equal numbers of other types, the same array twice, other arrays of the same kinds."""
    check_independent(function(name), with_twins(given(name)))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_remembered_calls_give_what_the_function_gives(name: str) -> None:
    """The function below the memory is the reference."""
    f = function(name)
    for made in given(name):
        f(*made[0], **made[1])
        got, expected = [tb.tree.leaves(g(*made[0], **made[1])) for g in (f, inspect.unwrap(f))]
        for x, y in zip(got, expected, strict=True):
            assert look(x)[:3] == look(y)[:3]
            assert look(x)[-1] == look(y)[-1]
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("option", "value"), OPTIONS)
@pytest.mark.parametrize("name", CALLS)
def test_options_find_nothing_of_what_was_remembered_without_them(
    name: str, option: str, value: Any
) -> None:
    """With an option for all threads, calls are as those after `clear_caches`."""
    calls, f = given(name)[:2], function(name)
    for made in calls:
        outcome(f, made)
    before = getattr(tb.config, option)
    tb.config.update(option, value)
    try:
        check_independent(f, calls)
    finally:
        tb.config.update(option, before)


@pytest.mark.parametrize("name", CALLS)
def test_the_functions_are_found_by_pickle_and_help(name: str) -> None:
    """Module, name and documentation are those of the public function."""
    f = function(name)

    assert pickle.loads(pickle.dumps(f)) is f
    assert f.__doc__ == inspect.unwrap(f).__doc__
    assert f.__doc__
