"""numpy.linalg and scipy.linalg against torch.linalg: values and gradients, one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.scipy import linalg

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RANDOM = np.random.default_rng(3)
A = RANDOM.normal(size=(3, 3)) + 1j * RANDOM.normal(size=(3, 3))
B = RANDOM.normal(size=(3, 2)) + 1j * RANDOM.normal(size=(3, 2))
TALL = RANDOM.normal(size=(4, 3)) + 1j * RANDOM.normal(size=(4, 3))
WEIGHTS = RANDOM.normal(size=64)
ours, theirs = tnp.linalg, torch.linalg


class Case(NamedTuple):
    """A function of one or two matrices in both libraries."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arguments: tuple[np.ndarray, ...] = (A,)


CASES = [
    Case("solve", ours.solve, theirs.solve, (A, B)),
    Case("scipy solve", linalg.solve, theirs.solve, (A, B)),
    Case(
        "scipy solve of positive",
        lambda a, b: linalg.solve(a @ a.conj().T + 2 * tnp.eye(3), b, assume_a="pos"),
        lambda a, b: theirs.solve(a @ a.conj().T + 2 * torch.eye(3, dtype=a.dtype), b),
        (A, B),
    ),
    Case("inv", ours.inv, theirs.inv),
    Case("scipy inv", linalg.inv, theirs.inv),
    Case("det", ours.det, theirs.det),
    Case("scipy det", linalg.det, theirs.det),
    Case("slogdet", lambda a: ours.slogdet(a)[1], lambda a: theirs.slogdet(a)[1]),
    Case("pinv", ours.pinv, theirs.pinv, (TALL,)),
    Case("lstsq", lambda a, b: ours.lstsq(a, b)[0], lambda a, b: theirs.pinv(a) @ b, (TALL, TALL)),
    Case(
        "cholesky",
        lambda a: ours.cholesky(a @ a.conj().T),
        lambda a: theirs.cholesky(a @ a.mH),
    ),
    Case("qr", lambda a: abs(ours.qr(a)[1]), lambda a: abs(theirs.qr(a)[1])),
    Case("svdvals", lambda a: ours.svd(a, compute_uv=False), theirs.svdvals, (TALL,)),
    Case("eigvalsh", lambda a: ours.eigvalsh(a + a.conj().T), lambda a: theirs.eigvalsh(a + a.mH)),
    Case("matrix_power", lambda a: ours.matrix_power(a, 5), lambda a: theirs.matrix_power(a, 5)),
    Case("inverse power", lambda a: ours.matrix_power(a, -2), lambda a: theirs.matrix_power(a, -2)),
    Case("norm", ours.norm, theirs.matrix_norm),
    Case("nuclear norm", lambda a: ours.norm(a, "nuc"), lambda a: theirs.matrix_norm(a, "nuc")),
    Case("spectral norm", lambda a: ours.norm(a, 2), lambda a: theirs.matrix_norm(a, 2)),
    Case("cond", lambda a: ours.cond(a), lambda a: theirs.cond(a)),
    Case("multi_dot", lambda a, b: ours.multi_dot([a, a, b]), lambda a, b: a @ a @ b, (A, B)),
    Case("expm", linalg.expm, theirs.matrix_exp),
    Case(
        "solve_triangular",
        lambda a, b: linalg.solve_triangular(a, b, lower=True),
        lambda a, b: theirs.solve_triangular(torch.tril(a), b, upper=False),
        (A, B),
    ),
    Case(
        "lu_solve",
        lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b),
        theirs.solve,
        (A, B),
    ),
    Case(
        "cho_solve",
        lambda a, b: linalg.cho_solve(linalg.cho_factor(a @ a.conj().T), b),
        lambda a, b: torch.cholesky_solve(b, theirs.cholesky(a @ a.mH)),
        (A, B),
    ),
]


# Those that take another way for real numbers.
REAL = ("solve", "det", "slogdet", "qr", "svdvals", "eigvalsh", "pinv")


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        *[(case, "complex128") for case in CASES],
        *[(case, "float64") for case in CASES if case.name in REAL],
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_values_and_gradients(case: Case, dtype: str) -> None:
    """Of a weighted sum of results, in all arguments: one program for both."""
    arguments = [np.asarray(x if dtype == "complex128" else x.real) for x in case.arguments]

    def total(*xs: Any) -> Any:
        found = case.ours(*xs)
        flat = tnp.ravel(found)
        return tnp.sum(abs(flat) ** 2 * WEIGHTS[: flat.shape[0]]), found

    tensors = [torch.tensor(x, requires_grad=True) for x in arguments]
    expected = case.theirs(*tensors)
    flat = expected.reshape(-1)
    (flat.abs() ** 2 * torch.tensor(WEIGHTS[: len(flat)])).sum().backward()
    with tb.enable_x64():
        run = tb.value_and_grad(total, tuple(range(len(arguments))), has_aux=True)
        (_, found), slopes = tb.jit(run)(*arguments)

    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-9, atol=1e-11)
    for ours_slope, tensor in zip(slopes, tensors, strict=True):
        # Gradients of complex arguments are conjugated there.
        expected_slope = tensor.grad.conj().resolve_conj().numpy()
        np.testing.assert_allclose(ours_slope, expected_slope, rtol=1e-7, atol=1e-9)
