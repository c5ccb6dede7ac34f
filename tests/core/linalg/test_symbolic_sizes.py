"""Exported programs with matrices of a symbolic size, run for one row and several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import export, lax

RNG = np.random.default_rng(0)
ALL = RNG.normal(size=(7, 7)).astype(np.float32)


def _product(factors: Any) -> Any:
    u, s, vh = factors
    return (u * s) @ vh


def _rebuilt(a: Any) -> Any:
    values, vectors = tnp.linalg.eig(a)
    return (vectors * values) @ tnp.linalg.inv(vectors)


def _symmetric(a: Any) -> Any:
    return a + a.T


# Results do not depend on the choice of signs or phases.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "det": tnp.linalg.det,
    "inv": tnp.linalg.inv,
    "lu of more columns": lambda a: lax.linalg.lu(tnp.concatenate([a, a, a], 1))[0],
    "eigvalsh": lambda a: tnp.linalg.eigvalsh(_symmetric(a)),
    "eigh": lambda a: abs(tnp.linalg.eigh(_symmetric(a))[1]),
    "svd": lambda a: _product(tnp.linalg.svd(a)),
    "eig": _rebuilt,
    "hessenberg": lambda a: abs(lax.linalg.hessenberg(a)[0][0]),
}
SLOPES = ("det", "eigvalsh")
N_ROWS = (1, 4)


def _check(function: Callable[[Any], Any]) -> None:
    (n,) = export.symbolic_shape("n")
    exported = export.export(tb.jit(function))(tb.ShapeDtypeStruct((n, n), np.float32))
    for rows in N_ROWS:
        a = ALL[:rows, :rows]
        scale = 1e-3 * (1 + np.abs(np.asarray(function(a))).max(initial=0))
        np.testing.assert_allclose(
            np.asarray(exported.call(a)), np.asarray(function(a)), 2e-3, scale, err_msg=str(rows)
        )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str) -> None:
    """One program has the values of those for each size."""
    _check(FUNCTIONS[name])


@pytest.mark.parametrize("name", SLOPES)
def test_slopes(name: str) -> None:
    """And so have their gradients."""
    _check(tb.grad(lambda a: abs(FUNCTIONS[name](a)).sum()))


def test_sizes_that_know_nothing_of_each_other() -> None:
    """Of two symbolic sizes nobody need know which is smaller."""
    m, n = export.symbolic_shape("m, n")
    exported = export.export(tb.jit(lambda a: lax.linalg.lu(a)[0]))(
        tb.ShapeDtypeStruct((m, n), np.float32)
    )
    for shape in ((3, 5), (5, 3)):
        a = RNG.normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(exported.call(a), lax.linalg.lu(a)[0], 1e-4, 1e-5)


@pytest.mark.parametrize("full", [True, False])
def test_singular_values_of_matrices_of_any_shape(full: bool) -> None:
    """Whichever size is the smaller one; vectors are orthonormal for values 0, too."""
    spec = tb.ShapeDtypeStruct(export.symbolic_shape("m, n"), np.float32)
    exported = export.export(tb.jit(lambda a: tnp.linalg.svd(a, full_matrices=full)))(spec)
    values = export.export(tb.jit(lambda a: tnp.linalg.svd(a, compute_uv=False)))(spec)

    for shape in ((3, 5), (5, 3), (4, 4), (1, 2)):
        k = min(shape)
        a = RNG.normal(size=shape).astype(np.float32)
        a[-1] = 0
        u, s, vh = map(np.asarray, exported.call(a))
        np.testing.assert_allclose((u[:, :k] * s) @ vh[:k], a, atol=1e-5)
        np.testing.assert_allclose(u.T @ u, np.eye(u.shape[1]), atol=1e-5)
        np.testing.assert_allclose(vh @ vh.T, np.eye(vh.shape[0]), atol=1e-5)
        np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=1e-5)
        np.testing.assert_allclose(values.call(a), s, atol=1e-5)
        assert (shape[0] if full else k, shape[1] if full else k) == (u.shape[1], vh.shape[0])
