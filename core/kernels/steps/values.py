"""What a value of a step is while its loop is planned."""

from __future__ import annotations

from typing import NamedTuple

from tracebridge.core.kernels.steps.boxes import Source
from tracebridge.core.kernels.steps.dots import Dots
from tracebridge.core.kernels.steps.elementwise import Group
from tracebridge.core.kernels.steps.products import Product
from tracebridge.core.kernels.steps.reductions import Reduction

Statement = Group | Product | Dots | Reduction


class NotWritten(Exception):
    """No kernel is written for a loop: some equation is none that it could have."""


class Open(NamedTuple):
    """A value of a group that is not written yet."""

    group: Group
    node: int
    shape: tuple[int, ...]


Known = Source | Open
