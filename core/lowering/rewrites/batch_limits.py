"""Products with batch axes: which axes those are, and of which sizes they are worth a kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tracebridge.core import lax
from tracebridge.core.kernels.machine import n_threads
from tracebridge.core.kernels.steps.work import multiplications, work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray

_FEWEST = 2  # elements of the batch
_LARGE_MATRIX = 1 << 14  # elements
# A product by itself: ns of work, and multiplications for one element of the batch.
_LEAST_ALONE, _SMALLEST_ALONE, _LARGEST_ALONE = 50_000, 1 << 7, 1 << 24


class Limits(NamedTuple):
    """For one element of the batch: products of numbers in a matrix product, elements of an array.

    ``of_part``: elements of an array in one of the parts that are done one after another.
    """

    multiplied: int
    elements: int
    of_part: int


_SMALL = Limits(1 << 19, 1 << 15, 1 << 15)
# Where every thread has an element of its own. XLA shares a product of large matrices among
# threads, but is slower even then: it reads and writes each matrix once for each equation.
EACH = Limits(1 << 25, 1 << 19, 1 << 19)
BY_ROWS = Limits(1 << 28, 1 << 22, 1 << 19)


def batch_of(app: Application, limits: Limits = BY_ROWS) -> tuple[int, ...] | None:
    """The sizes of the batch of a product of small matrices."""
    if not app.params["dimension_numbers"][1][0] or not is_static((*app.avals, app.out)):
        return None
    sizes = tuple([app.out.shape[i] for i in batch_axes(app)])
    n = math.prod(sizes)
    if n < _FEWEST:
        return None
    limits = limits_of(n, limits)
    if not is_small_product(app, n, limits):
        return None
    return sizes if are_small((*app.avals, app.out), n, limits) else None


def batch_axes(app: Application) -> tuple[int, ...]:
    """The axes of the batch in the result of a product, without those of one element.

    Such an axis comes and goes with reshapes, and there is nothing to share along it.
    """
    n = len(app.params["dimension_numbers"][1][0])
    return tuple([i for i in range(n) if app.out.shape[i] != 1])


def batch_of_operand(app: Application, i: int) -> tuple[int, ...]:
    """The same axes in an operand."""
    batch = app.params["dimension_numbers"][1][i]
    return tuple([batch[j] for j in batch_axes(app)])


def is_static(avals: Sequence[ShapedArray]) -> bool:
    """Whether all sizes are numbers."""
    return all([type(n) is int for a in avals for n in a.shape])


def limits_of(n: int, limits: Limits) -> Limits:
    """Those for a batch of ``n`` elements; fewer of them than threads have to be small."""
    return _SMALL if n < n_threads() else limits


def are_small(avals: Sequence[ShapedArray], n: int, limits: Limits) -> bool:
    """Whether arrays are within the limits, for a batch of ``n`` elements."""
    return all([a.size <= n * limits.elements for a in avals])


def is_small_product(app: Application, n: int, limits: Limits) -> bool:
    """Whether a product is within them."""
    return multiplications(app) <= n * limits.multiplied


def sums(app: Application) -> bool:
    """Whether a product is none of numbers only: sums of such ones have better forms."""
    return multiplications(app) > app.out.size


def _reads_a_large_matrix(app: Application) -> bool:
    """Whether a matrix is read for one vector alone: XLA does it as fast, or faster."""
    batch = app.params["dimension_numbers"][1][0]
    n = math.prod([app.avals[0].shape[i] for i in batch])
    largest = max([a.size for a in app.avals])
    # The product of a matrix and a vector takes as many multiplications as the matrix has elements.
    return multiplications(app) == largest >= n * _LARGE_MATRIX


def pays(apps: Sequence[Application], key: tuple[int, ...]) -> bool:
    """Whether products of members are worth a kernel, which has more to do than to read matrices.

    ``key``: the sizes of the batch.
    """
    products = [app for app in apps if app.primitive is lax.dot_general_p]
    summing = [app for app in products if sums(app)]
    if not summing or (len(summing) == 1 and not _pays_alone(summing[0], key)):
        return False
    reading = [app for app in products if _reads_a_large_matrix(app)]
    total, read = [sum([multiplications(app) for app in some]) for some in (products, reading)]
    return 2 * read <= total


def _pays_alone(app: Application, key: tuple[int, ...]) -> bool:
    """Whether one product is worth a kernel: XLA does it on one thread."""
    each = multiplications(app) // math.prod(key)
    return work(app) >= _LEAST_ALONE and _SMALLEST_ALONE <= each <= _LARGEST_ALONE
