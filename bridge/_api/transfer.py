"""Moving arrays between host and devices, and waiting for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge._api.values import values_of
from tracebridge.core._jaxlib.xla import batched_block_until_ready
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.runtime.array import Array
from tracebridge.core.runtime.dispatch import to_array
from tracebridge.core.runtime.transfer import move
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.tree.tree import flatten, leaves


@api_boundary
def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    del src, donate, may_alias
    flat, tree = flatten(x)
    values = values_of("device_put", flat, tree, "x")
    if device is None:
        return tree.unflatten([v if isinstance(v, Tracer) else to_array(v) for v in values])
    where = device if isinstance(device, SingleDeviceSharding) else SingleDeviceSharding(device)
    return tree.unflatten(
        [v if isinstance(v, Tracer) else move(to_array(v), where, committed=True) for v in values]
    )


@api_boundary
def block_until_ready(x: Any) -> Any:
    """Wait for the computations that make the arrays in ``x``.

    Args:
        x: a tree; leaves that are no arrays are left alone.

    Returns:
        ``x``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> print(tb.block_until_ready(tnp.ones(2) + 1))
    [2. 2.]
    """
    buffers: list[Any] = []
    for leaf in leaves(x):
        if type(leaf) is Array:
            leaf.check_alive()
            buffers.append(leaf.buf)
        elif not isinstance(leaf, Tracer) and hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    if buffers:
        batched_block_until_ready(buffers)
    return x


@api_boundary
def device_get(x: Any) -> Any:
    """Fetch the arrays in ``x`` to the host.

    Args:
        x: a tree; leaves that are no arrays are left alone.

    Returns:
        The same tree with NumPy arrays in place of arrays.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> tb.device_get({'a': tnp.arange(3)})
    {'a': array([0, 1, 2], dtype=int32)}
    """
    flat, tree = flatten(x)
    for leaf in flat:
        if type(leaf) is Array:
            leaf.copy_to_host_async()
    return tree.unflatten([_fetch(leaf) for leaf in flat])


def _fetch(leaf: Any) -> Any:
    if type(leaf) is Array or isinstance(leaf, Tracer):
        return np.asarray(leaf)
    return leaf
