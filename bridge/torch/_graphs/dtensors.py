"""Whether there are DTensors, without an import of them, which takes as long as that of torch.

What the operator does with them is in distributed.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

DTENSORS = "torch.distributed.tensor"


def dtensor_class() -> Any:
    """The class, if somebody has imported it; None: there are no DTensors yet."""
    return getattr(sys.modules.get(DTENSORS), "DTensor", None)


def is_distributed(xs: Sequence[Any]) -> bool:
    """Whether some of the tensors are DTensors."""
    cls = dtensor_class()
    return cls is not None and any([isinstance(x, cls) for x in xs])


def works_with_others(module: torch.nn.Module) -> bool:
    """Whether gradients of a module are those of several processes."""
    parallel: Any = getattr(torch.nn.parallel, "DistributedDataParallel", ())
    return isinstance(module, parallel) or is_distributed(list(module.parameters()))
