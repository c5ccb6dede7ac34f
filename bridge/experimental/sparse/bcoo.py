"""The BCOO format: coordinates of elements, with axes of batches and dense ones."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.sparse._bcoo.array import (
    BCOO,
)
from tracebridge.experimental.sparse._bcoo.conversion import (
    bcoo_extract,
    bcoo_extract_p,
    bcoo_fromdense,
    bcoo_fromdense_p,
    bcoo_todense,
    bcoo_todense_p,
)
from tracebridge.experimental.sparse._bcoo.convolutions import (
    bcoo_conv_general_dilated,
)
from tracebridge.experimental.sparse._bcoo.dots import (
    bcoo_dot_general,
    bcoo_dot_general_p,
    bcoo_dot_general_sampled,
    bcoo_dot_general_sampled_p,
)
from tracebridge.experimental.sparse._bcoo.layouts import (
    bcoo_update_layout,
)
from tracebridge.experimental.sparse._bcoo.moves import (
    bcoo_broadcast_in_dim,
    bcoo_reshape,
    bcoo_rev,
    bcoo_squeeze,
    bcoo_transpose,
    bcoo_transpose_p,
)
from tracebridge.experimental.sparse._bcoo.products import (
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
)
from tracebridge.experimental.sparse._bcoo.slices import (
    bcoo_concatenate,
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_slice,
)
from tracebridge.experimental.sparse._bcoo.sorting import (
    bcoo_sort_indices,
    bcoo_sort_indices_p,
    bcoo_sum_duplicates,
    bcoo_sum_duplicates_p,
)
from tracebridge.experimental.sparse._bcoo.sparse_dots import (
    bcoo_spdot_general_p,
)
from tracebridge.experimental.sparse._bcoo.sums import (
    bcoo_reduce_sum,
)

__all__ = [
    "BCOO",
    "bcoo_broadcast_in_dim",
    "bcoo_concatenate",
    "bcoo_conv_general_dilated",
    "bcoo_dot_general",
    "bcoo_dot_general_p",
    "bcoo_dot_general_sampled",
    "bcoo_dot_general_sampled_p",
    "bcoo_dynamic_slice",
    "bcoo_extract",
    "bcoo_extract_p",
    "bcoo_fromdense",
    "bcoo_fromdense_p",
    "bcoo_gather",
    "bcoo_multiply_dense",
    "bcoo_multiply_sparse",
    "bcoo_reduce_sum",
    "bcoo_reshape",
    "bcoo_rev",
    "bcoo_slice",
    "bcoo_sort_indices",
    "bcoo_sort_indices_p",
    "bcoo_spdot_general_p",
    "bcoo_squeeze",
    "bcoo_sum_duplicates",
    "bcoo_sum_duplicates_p",
    "bcoo_todense",
    "bcoo_todense_p",
    "bcoo_transpose",
    "bcoo_transpose_p",
    "bcoo_update_layout",
]

_shield(globals(), "tracebridge.experimental.sparse")
