"""Calls that Python splits over devices, while XLA compiles.

The registry of XLA belongs to the process, and so do names in it: ours is no other library's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib import xla_client

TARGET = "tracebridge_partitioned"
"""What such calls are called; their text says which one it is."""

_registered: list[bool] = []


def register_partitioner(partition: Callable[..., Any]) -> None:
    """Have ``partition`` asked how to split calls of ``TARGET``, once in a process.

    ``partition(shapes, shardings, result_shape, result_sharding, text)`` gives the bytecode of a
    module for one device, the shardings that it takes, and the one that it gives.
    """
    if _registered:
        return
    _registered.append(True)

    def as_it_is(sharding: Any, shape: Any, text: bytes) -> Any:
        del shape, text
        return sharding

    def of_operands(shapes: Any, shardings: Any, result_shape: Any, text: bytes) -> Any:
        # Shardy knows from the rule of the call how results are split; nobody else asks.
        del shapes, result_shape, text
        return shardings[0]

    xla_client.register_custom_call_partitioner(
        TARGET, as_it_is, partition, of_operands, can_side_effecting_have_replicated_sharding=True
    )
