"""All rules: importing this module registers them."""

from __future__ import annotations

from tracebridge.torch._aten import (
    arithmetic,
    control,
    definition,
    derivatives,
    indexing,
    integers,
    linalg,
    precision,
    products,
    random_bits,
    reductions,
    shapes,
    windows,
)

__all__ = [
    "arithmetic",
    "control",
    "definition",
    "derivatives",
    "indexing",
    "integers",
    "linalg",
    "precision",
    "products",
    "random_bits",
    "reductions",
    "shapes",
    "windows",
]
