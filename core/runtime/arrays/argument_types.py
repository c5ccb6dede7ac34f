"""What arguments of public functions accept, by name, for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import SupportsIndex, TypeAlias

import numpy as np

from tracebridge.core._jaxlib.xla import Device
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.symbolic.dims import DimExpr

Axis: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
"""One axis, several axes, or None: all axes."""

DimLike: TypeAlias = SupportsIndex | DimExpr
"""A size: an integer or a symbolic dimension."""

ShapeLike: TypeAlias = DimLike | Sequence[DimLike]
"""A shape, or the size of the only axis."""

DeviceLike: TypeAlias = Device | Sharding | PartitionSpec
"""A device, or a placement on several."""

ShardingLike: TypeAlias = Sharding | PartitionSpec
"""A placement; a PartitionSpec is one over the mesh of the context."""

IndexLike: TypeAlias = SupportsIndex | slice | EllipsisType | ArrayLike | Sequence[object] | None
"""What stands in brackets: integers, slices, ``...``, ``None``, arrays, and tuples of them."""

PyTree: TypeAlias = object
"""Nested tuples, lists, dicts and registered classes with anything as leaves."""

DType: TypeAlias = np.dtype[np.generic]
"""A dtype object, as functions inside get it; what users may write is ``DTypeLike``."""
