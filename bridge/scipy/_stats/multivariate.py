"""Distributions of vectors."""

from __future__ import annotations

import math
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.linalg.cholesky import cholesky
from tracebridge.core.linalg.matrices import diagonal
from tracebridge.core.linalg.triangular import triangular_solve
from tracebridge.core.mlir.types import is_static
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import broadcast_shape, broadcast_to, promote_inexact
from tracebridge.scipy._special import formulas as f

_LOG_2_PI = math.log(2 * math.pi)


def _dirichlet(x: Value, alpha: Any) -> Any:
    x, alpha = promote_inexact(x, alpha)
    if alpha.ndim != 1 or x.ndim == 0:
        msg = f"dirichlet: x is {x.aval.str_short()}, alpha {alpha.aval.str_short()}"
        raise RankError(msg, expected="a vector alpha, and x with at least one axis")
    k = alpha.shape[0]
    if x.shape[0] not in (k, k - 1):
        msg = f"dirichlet: x is {x.aval.str_short()}, alpha {alpha.aval.str_short()}"
        raise ShapeMismatchError(msg, expected=f"x with {k} or {k - 1} shares along its first axis")
    if x.shape[0] == k - 1:
        x = tnp.concatenate([x, 1 - x.sum(axis=0, keepdims=True)], axis=0)
    alpha = alpha.reshape((k, *(1,) * (x.ndim - 1)))
    # Sums of shares are rounded: SciPy's bound, or some roundings.
    bound = max(1e-9, 32 * float(tnp.finfo(x.dtype).eps))
    inside = (x >= 0).all(axis=0) & (tnp.abs(x.sum(axis=0) - 1) <= bound)
    safe = tnp.where(inside, x, 1 / max(k, 1))
    whole = alpha.sum(axis=0)
    weight = f.gammaln(alpha).sum(axis=0) - f.gammaln(whole)
    log = f.xlogy(alpha - 1, safe).sum(axis=0) - weight
    log = tnp.where(inside, log, -math.inf)
    good = (alpha > 0).all(axis=0) & ~tnp.isnan(x).any(axis=0)
    return tnp.where(good, log, math.nan)


def _multinomial(x: Value, n: Any, p: Any) -> Any:
    (p,) = promote_inexact(p)
    # Counts are whole numbers: strict promotion has nothing to say about them.
    x, n = [v if is_inexact(v.dtype) else v.astype(p.dtype) for v in (x, n)]
    x, n, p = promote_inexact(x, n, p)
    if x.ndim == 0 or p.ndim == 0:
        msg = f"multinomial: x is {x.aval.str_short()}, p {p.aval.str_short()}"
        raise RankError(msg, expected="x and p with at least one axis")
    if x.shape[-1] != p.shape[-1]:
        msg = f"multinomial: x is {x.aval.str_short()}, p {p.aval.str_short()}"
        raise ShapeMismatchError(msg, expected="as many counts as probabilities")
    inside = ((x >= 0) & (x == tnp.floor(x))).all(axis=-1) & (x.sum(axis=-1) == n)
    safe = tnp.where(tnp.expand_dims(inside, -1), x, 1)
    terms = f.xlogy(safe, p) - f.gammaln(safe + 1)
    valid = (n >= 0) & (n == tnp.floor(n))
    log = f.gammaln(tnp.where(valid, n, 0) + 1) + terms.sum(axis=-1)
    log = tnp.where(inside, log, -math.inf)
    good = valid & ((p >= 0) & (p <= 1)).all(axis=-1) & ~tnp.isnan(x).any(axis=-1)
    return tnp.where(good, log, math.nan)


def whitened(difference: Value, factor: Value) -> Any:
    """``L^-1 d`` of vectors along the last axis, and lower triangular L; leading axes broadcast."""
    size = factor.aval.shape[-1]
    if factor.aval.ndim == 2 and is_static(difference.aval):
        # One factor for all vectors: one system with many right-hand sides.
        rows = lax.reshape(difference, (math.prod(difference.aval.shape[:-1]), size))
        rows = triangular_solve(factor, rows, lower=True, transpose_a=True)
        return lax.reshape(rows, difference.aval.shape)
    shapes = [difference.aval.shape[:-1], factor.aval.shape[:-2]]
    batch = broadcast_shape("multivariate_normal", shapes)
    columns = lax.expand_dims(broadcast_to(difference, (*batch, size)), (len(batch) + 1,))
    factors = broadcast_to(factor, (*batch, size, size))
    return lax.squeeze(triangular_solve(factors, columns, left_side=True, lower=True), (-1,))


def log_normal(difference: Any, cov: Any) -> Any:
    """Logarithms of normal densities of vectors along the last axis; NaN without a factor."""
    factor: Any = cholesky(cov)
    y = whitened(difference, factor)
    log_root = tnp.log(diagonal(factor)).sum(axis=-1)
    return -0.5 * ((y * y).sum(axis=-1) + difference.shape[-1] * _LOG_2_PI) - log_root


def _multivariate_normal(x: Value, mean: Any, cov: Any) -> Any:
    x, mean, cov = promote_inexact(x, mean, cov)
    if mean.ndim == 0 and cov.ndim == 0:
        positive = cov > 0
        safe = tnp.where(positive, cov, 1)
        d = x - mean
        log = -0.5 * (d * d / safe + _LOG_2_PI + tnp.log(safe))
        return tnp.where(positive, log, math.nan)
    if cov.ndim == 1 or (cov.ndim > 1 and cov.shape[-1] != cov.shape[-2]):
        msg = f"multivariate_normal: cov is {cov.aval.str_short()}"
        raise ShapeMismatchError(msg, expected="a number, or square matrices (..., n, n)")
    size = mean.shape[-1] if mean.ndim else cov.shape[-1]
    if cov.ndim and cov.shape[-1] != size:
        msg = f"multivariate_normal: cov is {cov.aval.str_short()}, mean {mean.aval.str_short()}"
        raise ShapeMismatchError(msg, expected=f"matrices ({size}, {size})")
    if x.ndim and x.shape[-1] not in (1, size):
        msg = f"multivariate_normal: x is {x.aval.str_short()}, mean {mean.aval.str_short()}"
        raise ShapeMismatchError(msg, expected=f"vectors of {size} along the last axis")
    if cov.ndim == 0:
        cov = cov * tnp.eye(size, dtype=cov.dtype)
    shape = broadcast_shape("multivariate_normal", [x.shape, mean.shape, (size,)])
    return log_normal(tnp.broadcast_to(x - mean, shape), cov)


def check_not_singular(allow_singular: object) -> None:
    """Raise where densities on a subspace are asked for."""
    if allow_singular not in (None, False):
        msg = f"multivariate_normal.logpdf: allow_singular={allow_singular!r} is not available"
        raise UnsupportedArgumentError(
            msg, expected="None or False", hint="leave out what depends on the other numbers"
        )


def _exp(log: Any) -> Any:
    def run(*xs: Any) -> Any:
        return tnp.exp(log(*xs))

    return run


DIRICHLET = StagedFunction(_dirichlet, "dirichlet.logpdf")
DIRICHLET_PDF = StagedFunction(_exp(_dirichlet), "dirichlet.pdf")
MULTINOMIAL = StagedFunction(_multinomial, "multinomial.logpmf")
MULTINOMIAL_PMF = StagedFunction(_exp(_multinomial), "multinomial.pmf")
NORMAL = StagedFunction(_multivariate_normal, "multivariate_normal.logpdf")
NORMAL_PDF = StagedFunction(_exp(_multivariate_normal), "multivariate_normal.pdf")
