"""What processes of one program do together: gather, broadcast, wait, make global arrays.

With one process, which is all that this version starts, each has a plain meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracebridge._api.devices.devices import process_count
from tracebridge._api.devices.transfer import device_put
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import flatten


def _check_alone(call: str) -> None:
    if process_count() != 1:
        msg = f"{call}: the program runs in {process_count()} processes, which cannot exchange data"
        raise DevicePlacementError(msg, hint="run it in one process")


def _map(fun: Callable[[Any], Any], tree: object) -> Any:
    leaves, structure = flatten(tree)
    return structure.unflatten([fun(leaf) for leaf in leaves])


@api_boundary
def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The data of all processes, for each of them.

    Args:
        in_tree: tree of arrays and numbers; arrays over devices of several processes are whole
            in the result.
        tiled: concatenate along the first axis instead of stacking along a new one.

    Returns:
        A tree of NumPy arrays.

    Raises:
        DevicePlacementError: there are several processes.

    >>> from tracebridge.experimental.multihost_utils import process_allgather
    >>> process_allgather([1, 2])
    [array([1]), array([2])]
    """
    _check_alone("process_allgather")
    return _map(lambda x: np.asarray(x) if tiled else np.asarray(x)[None], in_tree)


@api_boundary
def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The data of one process, for all of them.

    Args:
        in_tree: tree of arrays and numbers, of one structure in all processes.
        is_source: whether this process has the data; by default process 0 has it.

    Returns:
        A tree of NumPy arrays.

    Raises:
        DevicePlacementError: there are several processes.

    >>> from tracebridge.experimental.multihost_utils import broadcast_one_to_all
    >>> broadcast_one_to_all({"seed": 3})
    {'seed': array(3)}
    """
    del is_source
    _check_alone("broadcast_one_to_all")
    return _map(np.asarray, in_tree)


@api_boundary
def sync_global_devices(name: str) -> None:
    """Wait until all processes have come to the same point of the program.

    Args:
        name: what the point is called, the same in all processes.

    Raises:
        DevicePlacementError: there are several processes.

    >>> from tracebridge.experimental.multihost_utils import sync_global_devices
    >>> sync_global_devices("checkpoint written")
    """
    del name
    _check_alone("sync_global_devices")


@api_boundary
def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise unless all processes have the same data.

    Args:
        in_tree: tree of arrays and numbers.
        fail_message: what the error says.

    Raises:
        DevicePlacementError: there are several processes.

    >>> from tracebridge.experimental.multihost_utils import assert_equal
    >>> assert_equal({"steps": 10}, "processes disagree")
    """
    del fail_message
    _check_alone("assert_equal")
    _map(np.asarray, in_tree)


def _spread(call: str, inputs: Any, mesh: Mesh, pspecs: object) -> Any:
    _check_alone(call)
    leaves, structure = flatten(inputs)
    specs = flatten_axes(call, structure, pspecs, axes_name="pspecs", full_name="the arrays")
    for spec in specs:
        if not isinstance(spec, PartitionSpec):
            raise AxisSpecError(
                f"{call}: pspecs contains {spec!r}",
                expected="PartitionSpec; without entries for arrays that all devices hold",
            )
    return structure.unflatten(
        [
            device_put(leaf, NamedSharding(mesh, spec))
            for leaf, spec in zip(leaves, specs, strict=True)
        ]
    )


@api_boundary
def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: object) -> Any:
    """Arrays over all devices of a mesh, of the parts that the processes have.

    Args:
        local_inputs: tree of arrays: what this process has. With one process it is all.
        global_mesh: the devices.
        pspecs: how arrays are split: a ``PartitionSpec``, or a tree prefix of them.

    Raises:
        AxisSpecError: ``pspecs`` contains something else.
        DevicePlacementError: there are several processes.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.multihost_utils import host_local_array_to_global_array
    >>> mesh = tb.make_mesh((1,), ("x",))
    >>> host_local_array_to_global_array(tb.numpy.ones(4), mesh, tb.P("x")).sharding.spec
    PartitionSpec('x')
    """
    return _spread("host_local_array_to_global_array", local_inputs, global_mesh, pspecs)


@api_boundary
def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: object) -> Any:
    """The parts of arrays over all devices that this process has, over its devices.

    Args:
        global_inputs: tree of arrays. With one process it has all of them.
        global_mesh: the devices.
        pspecs: how arrays are split: a ``PartitionSpec``, or a tree prefix of them.

    Raises:
        AxisSpecError: ``pspecs`` contains something else.
        DevicePlacementError: there are several processes.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.multihost_utils import global_array_to_host_local_array
    >>> mesh = tb.make_mesh((1,), ("x",))
    >>> print(global_array_to_host_local_array(tb.numpy.ones(2), mesh, tb.P("x")))
    [1. 1.]
    """
    return _spread("global_array_to_host_local_array", global_inputs, global_mesh, pspecs)
