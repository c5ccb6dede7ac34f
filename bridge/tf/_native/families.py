"""All rules: importing this module registers them."""

from __future__ import annotations

from tracebridge.tf._native import (
    arithmetic,
    control,
    definition,
    elementwise,
    foreign,
    indexing,
    integers,
    linalg,
    order,
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
    "elementwise",
    "foreign",
    "indexing",
    "integers",
    "linalg",
    "order",
    "products",
    "random_bits",
    "reductions",
    "shapes",
    "windows",
]
