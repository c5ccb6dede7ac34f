"""Functions of arrays without axes, without elements and with many axes, against NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge.numpy as tnp
from tests.bridge.numpy.table import CANONICAL, leaves
from tests.bridge.numpy.test_completeness import public_functions
from tests.quick_compiles import quick_jit

Host = np.ndarray[Any, Any]
Call = Callable[[Any, list[Any]], Any]
SHAPES = [(), (0,), (3, 0, 2), (1, 2, 1, 1, 2, 1, 1, 3, 1, 1)]


def takes_floats(name: str, operands: int) -> bool:
    """Whether NumPy's function of that name has a loop from float32 to float32 or truth values."""
    ufunc = getattr(np, name, None)
    inside = operands * "f"
    return isinstance(ufunc, np.ufunc) and any(
        loop in (f"{inside}->f", f"{inside}->?", f"{inside}->ff") for loop in ufunc.types
    )


ONE = sorted(n for n in public_functions() if takes_floats(n, 1))
TWO = sorted(n for n in public_functions() if takes_floats(n, 2))
ALONG_AXES = [
    "all", "amax", "amin", "any", "argmax", "argmin", "average", "count_nonzero", "cumprod",
    "cumsum", "max", "mean", "median", "min", "nancumprod", "nancumsum", "nanmax", "nanmean",
    "nanmedian", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "ptp", "std", "sum",
    "var",
]  # fmt: skip
ALONG_ONE_AXIS = [
    "argsort", "cumulative_prod", "cumulative_sum", "diff", "sort", "trapezoid", "unwrap",
]  # fmt: skip
REARRANGED = [
    "atleast_1d", "atleast_2d", "atleast_3d", "copy", "diagonal", "flip", "fliplr", "flipud",
    "ones_like", "ravel", "rot90", "squeeze", "trace", "transpose", "tril", "triu", "zeros_like",
]  # fmt: skip
JOINED = ["block", "column_stack", "concatenate", "dstack", "hstack", "stack", "vstack"]


def host(shape: tuple[int, ...], seed: int) -> Host:
    """Numbers with a distance from each other and from integers."""
    size = int(np.prod(shape))
    steps = np.linspace(-1.9, 2.3, size, dtype=np.float32) + np.float32(0.07)
    return np.random.default_rng(seed).permutation(steps).reshape(shape)


def of_numpy(call: Call, xs: list[Host]) -> list[Host] | None:
    """NumPy's results with the dtypes of 32 bits; None where it refuses the arguments."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = [np.asarray(x) for x in leaves(call(np, xs))]
        except (ValueError, TypeError, IndexError):
            return None
    return [x.astype(CANONICAL.get(x.dtype.name, x.dtype.name)) for x in found]


def compare(calls: dict[str, Call], shape: tuple[int, ...]) -> None:
    """All calls as one program have NumPy's shapes, dtypes and numbers, and its refusals."""
    xs = [host(shape, seed) for seed in (0, 1)]
    expected = {name: of_numpy(call, xs) for name, call in calls.items()}
    allowed = {name: found for name, found in expected.items() if found is not None}

    actual = quick_jit(lambda xs: {n: leaves(calls[n](tnp, xs)) for n in allowed})(xs)

    for name, wanted in allowed.items():
        for a, w in zip(actual[name], wanted, strict=True):
            assert (w.shape, w.dtype) == (a.shape, a.dtype), name
            np.testing.assert_allclose(a, w, 2e-5, 2e-6, err_msg=name)
    for name in calls.keys() - allowed.keys():
        with pytest.raises((ValueError, TypeError, IndexError)):
            calls[name](tnp, xs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elementwise_functions(shape: tuple[int, ...]) -> None:
    """Of one array and of two."""
    calls: dict[str, Call] = {n: lambda m, xs, n=n: getattr(m, n)(xs[0]) for n in ONE}

    compare(calls | {n: lambda m, xs, n=n: getattr(m, n)(*xs) for n in TWO}, shape)


@pytest.mark.parametrize(
    ("shape", "axis"),
    # NumPy takes axis 0 of some arrays that have no axis.
    [(shape, axis) for shape in SHAPES for axis in (None, 0, -1) if shape or axis is None],
    ids=str,
)
def test_functions_along_axes(shape: tuple[int, ...], axis: int | None) -> None:
    """Of nothing they are what NumPy says."""
    names = ALONG_AXES if axis is None else [*ALONG_AXES, *ALONG_ONE_AXIS]
    if 0 in shape:
        # There NumPy divides by the number of results, which may be 0.
        names = [n for n in names if n != "average"]

    compare({n: lambda m, xs, n=n: getattr(m, n)(xs[0], axis=axis) for n in names}, shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rearrangements(shape: tuple[int, ...]) -> None:
    """Of one array, and of several."""
    calls: dict[str, Call] = {n: lambda m, xs, n=n: getattr(m, n)(xs[0]) for n in REARRANGED}

    compare(calls | {n: lambda m, xs, n=n: getattr(m, n)(xs) for n in JOINED}, shape)


@pytest.mark.parametrize("name", ["cholesky", "det", "eigh", "eigvalsh", "inv", "pinv", "qr",
                                  "slogdet", "solve", "svd", "svdvals", "matrix_rank"])  # fmt: skip
def test_linear_algebra_of_batches(name: str) -> None:
    """No matrix, and many axes of one: the results of a batch are those of its matrices."""
    matrix = np.array([[4, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]], np.float32)

    def run(a: Any) -> list[Any]:
        f = getattr(tnp.linalg, name)
        return leaves(f(a, a[..., :1]) if name == "solve" else f(a))

    def program(one: Any, many: Any, none: Any) -> Any:
        return run(one), run(many), run(none)

    many = np.broadcast_to(matrix, (1, 1, 2, 1, 1, 1, 1, 3, 3))
    for a, b, c in zip(
        *quick_jit(program)(matrix, many, np.zeros((2, 0, 3, 3), np.float32)), strict=True
    ):
        assert (1, 1, 2, 1, 1, 1, 1, *a.shape) == b.shape
        assert ((2, 0, *a.shape), a.dtype) == (c.shape, c.dtype)
        np.testing.assert_allclose(b[0, 0, 1, 0, 0, 0, 0], a, 1e-5, 1e-5)
