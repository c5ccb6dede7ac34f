"""Densities estimated from observations, by a normal density around each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError, UnsupportedArgumentError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.linalg.cholesky import cholesky
from tracebridge.core.linalg.family import matrices, rounded
from tracebridge.core.linalg.matrices import eye_of
from tracebridge.core.linalg.solving import solution
from tracebridge.core.linalg.triangular import triangular_solve
from tracebridge.core.runtime.arrays.argument_types import ShapeLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.tree.registry import register_pytree_node_class
from tracebridge.core.util.public_path import public_path
from tracebridge.numpy._promote import promote_inexact
from tracebridge.random.keys import split
from tracebridge.random.matrices import multivariate_normal
from tracebridge.random.selection import choice
from tracebridge.scipy._special import formulas as f
from tracebridge.scipy._stats.multivariate import log_normal
from tracebridge.scipy.special import logsumexp

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

__all__ = ["gaussian_kde"]

_NAME = "gaussian_kde"
_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")


def _observations(dataset: Any, weights: Any) -> list[Any]:
    """A matrix, weights that add up to 1, the effective number, and the covariance unscaled."""
    dataset, weights = promote_inexact(dataset, weights)
    weights = weights / weights.sum()
    squares = (weights * weights).sum()
    centred = dataset - (dataset * weights).sum(axis=1, keepdims=True)
    covariance = tnp.matmul(centred * weights, centred.T, precision="highest") / (1 - squares)
    return [dataset, weights, 1 / squares, covariance]


def _scaled(covariance: Any, factor: Any) -> list[Any]:
    scaled = covariance * (factor * factor).astype(covariance.dtype)
    (wide,), dtype = matrices("gaussian_kde", scaled)
    return [scaled, rounded(solution(wide, eye_of(wide)), dtype)]


def _log_density(points: Any, dataset: Any, weights: Any, covariance: Any) -> Any:
    points, dataset, weights, covariance = promote_inexact(points, dataset, weights, covariance)
    # Around each observation, of numbers that are independent of each other.
    factor = cholesky(covariance)
    a, b = [triangular_solve(factor, x, left_side=True, lower=True) for x in (points, dataset)]
    difference = tnp.expand_dims(a, 2) - tnp.expand_dims(b, 1)
    squares = (difference * difference).sum(axis=0)
    log_root = tnp.log(tnp.diagonal(factor)).sum()
    log = logsumexp(-0.5 * squares, axis=1, b=weights)
    return log - log_root - 0.5 * dataset.shape[0] * math.log(2 * math.pi)


def _density(*xs: Any) -> Any:
    return tnp.exp(_log_density(*xs))


def _with_gaussian(mean: Any, cov: Any, dataset: Any, weights: Any, covariance: Any) -> Any:
    mean, cov, dataset, weights, covariance = promote_inexact(
        mean, cov, dataset, weights, covariance
    )
    size = dataset.shape[0]
    mean, cov = tnp.atleast_1d(mean), tnp.atleast_2d(cov)
    if mean.shape != (size,) or cov.shape != (size, size):
        msg = f"{_NAME}.integrate_gaussian: the mean is {mean.aval.str_short()}, the covariance "
        msg += cov.aval.str_short()
        raise ShapeMismatchError(msg, expected=f"a vector ({size},), a matrix ({size}, {size})")
    log = log_normal(dataset.T - mean, covariance + cov)
    return (tnp.exp(log) * weights).sum()


def _box(low: Any, high: Any, dataset: Any, weights: Any, covariance: Any) -> Any:
    low, high, dataset, weights, covariance = promote_inexact(
        low, high, dataset, weights, covariance
    )
    root = tnp.sqrt(covariance[0, 0])
    low, high = [(tnp.expand_dims(x, -1) - dataset[0]) / root for x in (low, high)]
    return ((f.ndtr(high) - f.ndtr(low)) * weights).sum(axis=-1)


def _product(a: Value, a_weights: Any, a_cov: Any, b: Value, b_weights: Any, b_cov: Any) -> Any:
    a, a_weights, a_cov, b, b_weights, b_cov = promote_inexact(
        a, a_weights, a_cov, b, b_weights, b_cov
    )
    return (_density(a, b, b_weights, a_cov + b_cov) * a_weights).sum()


_observations_staged = StagedFunction(_observations, _NAME)
_scaled_staged = StagedFunction(_scaled, _NAME)
_density_staged = StagedFunction(_density, f"{_NAME}.evaluate")
_log_density_staged = StagedFunction(_log_density, f"{_NAME}.logpdf")
_with_gaussian_staged = StagedFunction(_with_gaussian, f"{_NAME}.integrate_gaussian")
_box_staged = StagedFunction(_box, f"{_NAME}.integrate_box_1d")
_product_staged = StagedFunction(_product, f"{_NAME}.integrate_kde")


def _factor(kde: gaussian_kde, bw_method: Any) -> Any:
    """What the deviations of the observations are multiplied by."""
    if bw_method is None or bw_method == "scott":
        return tnp.power(kde.neff, -1 / (kde.d + 4))
    if isinstance(bw_method, str):
        if bw_method == "silverman":
            return tnp.power(kde.neff * (kde.d + 2) / 4, -1 / (kde.d + 4))
    elif callable(bw_method):
        return tnp.asarray(bw_method(kde))
    else:
        number = tnp.asarray(bw_method)
        if number.ndim == 0:
            return number
    msg = f"{_NAME}: bw_method is {bw_method!r}"
    raise ArgumentValueError(msg, expected="'scott', 'silverman', a number or a function")


@public_path("tracebridge.scipy.stats")
@register_pytree_node_class
@final
class gaussian_kde:
    """A density estimated from observations: the mean of normal densities around them.

    It is a pytree, immutable, and may be made and used in traced programs.

    Args:
        dataset: observations of shape ``(d, n)``, or ``(n,)`` for numbers; at least two elements.
        bw_method: the width of the normal densities in standard deviations of the observations:
            "scott" (or None), ``neff ** (-1 / (d + 4))``; "silverman", that times
            ``((d + 2) / 4) ** (-1 / (d + 4))``; a number; or a function of the estimate.
        weights: of the observations, of shape ``(n,)``; equal by default.

    Attributes:
        dataset: the observations, of shape ``(d, n)``.
        weights: the weights, which add up to 1.
        neff: the effective number of observations.
        covariance: that of the normal densities, of shape ``(d, d)``.
        inv_cov: its inverse.

    Raises:
        ArgumentValueError: fewer than two elements, or no such ``bw_method``.
        RankError: ``dataset`` has more than two axes, or ``weights`` not one.
        ShapeMismatchError: not as many weights as observations.
        UnsupportedDtypeError: the observations are complex.

    >>> import tracebridge as tb
    >>> kde = tb.scipy.stats.gaussian_kde(tb.numpy.array([-1.0, 0.0, 1.0]))
    >>> kde.evaluate(tb.numpy.array([0.0])).shape
    (1,)
    """

    __slots__ = _FIELDS

    neff: Array
    dataset: Array
    weights: Array
    covariance: Array
    inv_cov: Array

    def __init__(
        self,
        dataset: ArrayLike,
        bw_method: ArrayLike | str | Callable[[gaussian_kde], ArrayLike] | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        points: Any = tnp.asarray(dataset)
        if points.ndim > 2:
            msg = f"{_NAME}: the dataset has {points.ndim} axes, expected at most 2"
            raise RankError(msg)
        points = tnp.atleast_2d(points)
        if is_complex(points.dtype):
            msg = f"{_NAME}: the dataset is {points.dtype.name}, expected real numbers"
            raise UnsupportedDtypeError(msg)
        if points.size < 2:
            msg = f"{_NAME}: the dataset has {points.size} elements, expected at least two"
            raise ArgumentValueError(msg)
        n = points.shape[1]
        dtype = to_inexact(points.dtype)
        weight_array: Any = tnp.ones((n,), dtype) if weights is None else tnp.asarray(weights)
        if weight_array.ndim != 1:
            msg = f"{_NAME}: weights have {weight_array.ndim} axes, expected one"
            raise RankError(msg)
        if weight_array.shape[0] != n:
            msg = f"{_NAME}: {weight_array.shape[0]} weights of {n} observations"
            raise ShapeMismatchError(msg)
        data, share, neff, covariance = _observations_staged((points, weight_array))
        self._set("dataset", data)
        self._set("weights", share)
        self._set("neff", neff)
        covariance, inverse = _scaled_staged((covariance, _factor(self, bw_method)))
        self._set("covariance", covariance)
        self._set("inv_cov", inverse)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"{_NAME}: {name} cannot be set, estimates are immutable"
        raise AttributeError(msg)

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """The arrays, as leaves of a pytree."""
        return tuple([getattr(self, name) for name in _FIELDS]), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: tuple[Any, ...]) -> gaussian_kde:
        """The estimate of such leaves.

        Args:
            aux_data: not used.
            children: what ``tree_flatten`` gave.
        """
        del aux_data
        self = object.__new__(cls)
        for name, value in zip(_FIELDS, children, strict=True):
            self._set(name, value)
        return self

    @property
    def d(self) -> int:
        """The number of elements of an observation."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of observations."""
        return self.dataset.shape[1]

    def _points(self, points: ArrayLike) -> Any:
        found: Any = tnp.atleast_2d(tnp.asarray(points))
        if found.ndim == 2 and found.shape[0] != self.d and found.shape == (1, self.d):
            found = found.T
        if found.ndim != 2 or found.shape[0] != self.d:
            msg = f"{_NAME}: the points are of shape {found.shape}, the observations of {self.d}"
            raise ShapeMismatchError(msg, expected=f"points of shape ({self.d}, m)")
        return found

    def evaluate(self, points: ArrayLike) -> Array:
        """Densities at points.

        Args:
            points: of shape ``(d, m)``; ``(d,)`` for one, or ``(m,)`` where ``d`` is 1.

        Returns:
            Array of shape ``(m,)``.

        Raises:
            ShapeMismatchError: the points have another number of elements.
        """
        return _density_staged((self._points(points), *self._terms()))

    def _terms(self) -> tuple[Any, ...]:
        return self.dataset, self.weights, self.covariance

    def __call__(self, points: ArrayLike) -> Array:
        """As ``evaluate``."""
        return self.evaluate(points)

    def pdf(self, x: ArrayLike) -> Array:
        """Densities at points, as ``evaluate``.

        Args:
            x: the points.
        """
        return self.evaluate(x)

    def logpdf(self, x: ArrayLike) -> Array:
        """Logarithms of densities, also where these are too small for floats.

        Args:
            x: points as in ``evaluate``.

        Raises:
            ShapeMismatchError: the points have another number of elements.
        """
        return _log_density_staged((self._points(x), *self._terms()))

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The integral of the estimate times a normal density.

        Args:
            mean: of the density, of shape ``(d,)``.
            cov: its covariance, of shape ``(d, d)``.

        Raises:
            ShapeMismatchError: the shapes are others.
        """
        return _with_gaussian_staged((mean, cov, *self._terms()))

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """The integral of an estimate of numbers from ``low`` to ``high``.

        Args:
            low: the lower bound.
            high: the upper bound.

        Raises:
            ShapeMismatchError: the observations are not numbers.
        """
        if self.d != 1:
            msg = f"{_NAME}.integrate_box_1d: observations have {self.d} elements, expected 1"
            raise ShapeMismatchError(msg)
        return _box_staged((low, high, *self._terms()))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two estimates.

        Args:
            other: an estimate of observations with as many elements.

        Raises:
            ShapeMismatchError: the numbers of elements differ.
        """
        if self.d != other.d:
            msg = f"{_NAME}.integrate_kde: observations have {self.d} and {other.d} elements"
            raise ShapeMismatchError(msg)
        mine = (self.dataset, self.weights, self.covariance)
        return _product_staged((*mine, other.dataset, other.weights, other.covariance))

    def resample(self, key: ArrayLike, shape: ShapeLike = ()) -> Array:
        """Random observations of the estimated density.

        Args:
            key: a random key.
            shape: how many.

        Returns:
            Array of shape ``(d, *shape)``.
        """
        which, noise = split(key)
        chosen = choice(which, self.n, shape, p=self.weights)
        zeros: Any = tnp.zeros((self.d,), self.covariance.dtype)
        moved = multivariate_normal(noise, zeros, self.covariance, shape, self.dataset.dtype)
        return tnp.take(self.dataset, chosen, axis=1) + tnp.moveaxis(moved, -1, 0)

    def integrate_box(
        self, low_bounds: ArrayLike, high_bounds: ArrayLike, maxpts: int | None = None
    ) -> Array:
        """Not available: use ``integrate_box_1d`` for numbers.

        Args:
            low_bounds: lower bounds.
            high_bounds: upper bounds.
            maxpts: a limit of the work.

        Raises:
            UnsupportedArgumentError: always.
        """
        del low_bounds, high_bounds, maxpts
        msg = f"{_NAME}.integrate_box: boxes of several numbers are not available"
        raise UnsupportedArgumentError(msg, hint="use integrate_box_1d, or mean over resample")

    def set_bandwidth(self, bw_method: object = None) -> None:
        """Not available: estimates are immutable.

        Args:
            bw_method: as in the constructor.

        Raises:
            UnsupportedArgumentError: always.
        """
        del bw_method
        msg = f"{_NAME}.set_bandwidth: estimates are immutable"
        raise UnsupportedArgumentError(msg, hint="make another one, with bw_method=...")


shield(globals(), __name__)
