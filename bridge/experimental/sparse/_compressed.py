"""Compressed rows: from coordinates to the places where rows begin, and back."""

from __future__ import annotations

from typing import Any

import tracebridge.numpy as tnp
from tracebridge.experimental.sparse._bcoo.indices import batch_index


def rows_of(indptr: Any, nse: int) -> Any:
    """The row of each element, ``(*batch, nse)``; the number of rows where there is none.

    An element lies in row ``k`` if it does not come before ``indptr[k]``, but before
    ``indptr[k + 1]``.
    """
    batch = indptr.shape[:-1]
    ends = indptr[..., 1:].astype("int32")
    counts = tnp.zeros((*batch, nse), "int32")
    counts = counts.at[(*batch_index(batch), ends)].add(1, mode="drop")
    return tnp.cumsum(counts, axis=-1, dtype="int32")


def indptr_of(rows: Any, keep: Any, count: int) -> Any:
    """Where each row begins, ``(*batch, count + 1)``, for elements whose rows are in order."""
    batch = rows.shape[:-1]
    after = tnp.where(keep, rows.astype("int32") + 1, count + 1)
    sizes = tnp.zeros((*batch, count + 1), "int32")
    sizes = sizes.at[(*batch_index(batch), after)].add(1, mode="drop")
    return tnp.cumsum(sizes, axis=-1, dtype="int32").astype(rows.dtype)
