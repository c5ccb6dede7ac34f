"""BCSR arrays joined, repeated, and with each coordinate once."""

from __future__ import annotations

from collections.abc import Sequence

from tracebridge.experimental.sparse._bcoo.moves import bcoo_broadcast_in_dim
from tracebridge.experimental.sparse._bcoo.slices import bcoo_concatenate
from tracebridge.experimental.sparse._bcsr import BCSR, check_bcsr


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """The array with each of its coordinates once; arguments as in ``bcoo_sum_duplicates``.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> twice = (tnp.ones(2), tnp.array([1, 1]), tnp.array([0, 2]))
    >>> print(sparse.bcsr_sum_duplicates(sparse.BCSR(twice, shape=(1, 2))).data)
    [2.]
    """
    check_bcsr("bcsr_sum_duplicates", mat)
    return mat.sum_duplicates(nse, remove_zeros=False)


def bcsr_broadcast_in_dim(
    mat: BCSR,
    *,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
    sharding: None = None,
) -> BCSR:
    """The array repeated along new axes; arguments as in ``bcoo_broadcast_in_dim``.

    New axes are axes of batches, or dense ones.

    Raises:
        UnsupportedArgumentError: a new axis lies between rows and columns.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.bcsr_fromdense(tnp.eye(2))
    >>> sparse.bcsr_broadcast_in_dim(m, shape=(3, 2, 2), broadcast_dimensions=(1, 2))
    BCSR(float32[3, 2, 2], nse=2, n_batch=1)
    """
    check_bcsr("bcsr_broadcast_in_dim", mat)
    out = bcoo_broadcast_in_dim(
        mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions, sharding=sharding
    )
    return BCSR.from_bcoo(out)


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """Arrays one after the other along an axis; arguments as in ``bcoo_concatenate``.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.bcsr_fromdense(tnp.eye(2))
    >>> sparse.bcsr_concatenate([m, m], dimension=0)
    BCSR(float32[4, 2], nse=4)
    """
    for k, mat in enumerate(operands):
        check_bcsr("bcsr_concatenate", mat, f"operand {k}")
    out = bcoo_concatenate([mat.to_bcoo() for mat in operands], dimension=dimension)
    return BCSR.from_bcoo(out)
