"""Trees of arrays in folders, also arrays of which each process holds a part.

A folder has one file for the structure and NumPy's files for the parts of each array. It is not
the format of other libraries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

import numpy as np

from tracebridge._api.devices.sharded_arrays import make_array_from_callback
from tracebridge._api.exports.folders import (
    Box,
    FolderWriter,
    Leaf,
    Part,
    box_of,
    read_box,
    read_structure,
)
from tracebridge._api.exports.trees import tree_from_json, tree_to_json
from tracebridge.core.errors.argument_errors import ArgumentValueError, UnsupportedArgumentError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.prng.keys import KeyDType, key_dtype_of, random_unwrap_p, random_wrap_p
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.runtime.processes.connection import connection
from tracebridge.core.tree import tree

__all__ = [
    "PyTreeFuture",
    "load",
    "load_pytreedef",
    "nonblocking_load",
    "nonblocking_save",
    "save",
]


@final
class PyTreeFuture:
    """What ``nonblocking_save`` and ``nonblocking_load`` return while they are at work.

    Attributes:
        pytree: the tree with shapes and dtypes in place of arrays.
    """

    def __init__(self, future: Future[Any], pytree: Any) -> None:
        self._future = future
        self.pytree = pytree

    def done(self) -> bool:
        """Whether ``result`` returns at once."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end; the loaded tree, or None. Raises what went wrong.

        Args:
            timeout: seconds after which to give up with a TimeoutError.
        """
        return self._future.result(timeout)


def save(
    data: Any,
    directory: str | os.PathLike[str],
    *,
    overwrite: bool = True,
    ts_specs: Any = None,
) -> None:
    """Write a tree of arrays to a folder; each process writes the parts that it holds.

    The folder has its old contents until all is written. Several processes call this in the same
    order, with a folder that they share.

    Args:
        data: tree of arrays of ours, also of random keys, or of NumPy, of which a NumPy array is
            the same in all processes. Nodes of classes need
            ``export.register_pytree_node_serialization``.
        directory: a new or empty folder, or one that was saved before.
        overwrite: whether to replace what was saved there.
        ts_specs: only None: another format of files, which is not there.

    Raises:
        ExportError: the folder holds something else, or a node is of an unknown class.
        UnsupportedDtypeError: a leaf is no array.
        ProcessesError: the processes do not save the same.
        ArgumentValueError: ``directory`` is an address and no folder.
        UnsupportedArgumentError: ``ts_specs`` is given.

    >>> import tempfile
    >>> import tracebridge as tb
    >>> from tracebridge.experimental.array_serialization import pytree_serialization as folders
    >>> where = tempfile.mkdtemp()
    >>> folders.save({"w": tb.numpy.arange(3.0), "step": tb.numpy.int32(7)}, where)
    >>> here = tb.sharding.SingleDeviceSharding(tb.devices()[0])
    >>> folders.load(where, here)["w"].tolist()
    [0.0, 1.0, 2.0]
    """
    _writing("save", data, directory, overwrite, ts_specs)[0]()


def nonblocking_save(
    data: Any,
    directory: str | os.PathLike[str],
    *,
    overwrite: bool = True,
    ts_specs: Any = None,
) -> PyTreeFuture:
    """Copy a tree of arrays to the host's memory, and write it while the program goes on.

    Arguments and errors as of ``save``; errors of writing come from the future's ``result``. The
    arrays may be donated or deleted as soon as this returns.

    >>> import tempfile
    >>> import tracebridge as tb
    >>> from tracebridge.experimental.array_serialization import pytree_serialization as folders
    >>> where = tempfile.mkdtemp()
    >>> future = folders.nonblocking_save([tb.numpy.ones(2)], where)
    >>> future.pytree
    [ShapeDtypeStruct(shape=(2,), dtype=float32)]
    >>> future.result()
    """
    run, types = _writing("nonblocking_save", data, directory, overwrite, ts_specs)
    return PyTreeFuture(_in_thread(run), types)


def load_pytreedef(directory: str | os.PathLike[str]) -> Any:
    """The saved tree with shapes and dtypes in place of its arrays.

    Args:
        directory: folder of ``save``.

    Raises:
        ExportError: it holds no saved tree.

    >>> import tempfile
    >>> import numpy as np
    >>> from tracebridge.experimental.array_serialization import pytree_serialization as folders
    >>> where = tempfile.mkdtemp()
    >>> folders.save((np.ones((2, 3), np.int8), None), where)
    >>> folders.load_pytreedef(where)
    (ShapeDtypeStruct(shape=(2, 3), dtype=int8), None)
    """
    structure, leaves = read_structure(_folder("load_pytreedef", directory))
    return tree.unflatten(tree_from_json(structure), [_type_of(leaf) for leaf in leaves])


def load(
    directory: str | os.PathLike[str],
    shardings: Any,
    *,
    mask: Any = None,
    ts_specs: Any = None,
) -> Any:
    """Read a tree of arrays; each process reads the parts that its devices are to hold.

    Args:
        directory: folder of ``save``, which other processes may have written, otherwise split.
        shardings: where the arrays are to be: a sharding, or a tree of them that is a prefix of
            the saved one.
        mask: a tree of booleans that is a prefix of the saved one: arrays at False are not read
            and None in the result.
        ts_specs: only None.

    Raises:
        ExportError: the folder holds no saved tree, or files are missing or damaged.
        TreeMismatchError: ``shardings`` or ``mask`` is no prefix of the tree.
        ArgumentValueError, UnsupportedArgumentError: as ``save``.

    >>> import tempfile
    >>> import tracebridge as tb
    >>> from tracebridge.experimental.array_serialization import pytree_serialization as folders
    >>> where = tempfile.mkdtemp()
    >>> folders.save({"a": tb.numpy.ones(2), "b": tb.numpy.zeros(2)}, where)
    >>> here = tb.sharding.SingleDeviceSharding(tb.devices()[0])
    >>> folders.load(where, here, mask={"a": True, "b": False})
    {'a': Array([1., 1.], dtype=float32), 'b': None}
    """
    return _reading("load", directory, shardings, mask, ts_specs)[0]()


def nonblocking_load(
    directory: str | os.PathLike[str],
    shardings: Any,
    *,
    mask: Any = None,
    ts_specs: Any = None,
) -> PyTreeFuture:
    """Read a tree of arrays while the program goes on; arguments and errors as of ``load``.

    >>> import tempfile
    >>> import tracebridge as tb
    >>> from tracebridge.experimental.array_serialization import pytree_serialization as folders
    >>> where = tempfile.mkdtemp()
    >>> folders.save(tb.numpy.ones(2), where)
    >>> here = tb.sharding.SingleDeviceSharding(tb.devices()[0])
    >>> folders.nonblocking_load(where, here).result().tolist()
    [1.0, 1.0]
    """
    run, types = _reading("nonblocking_load", directory, shardings, mask, ts_specs)
    return PyTreeFuture(_in_thread(run), types)


def _writing(
    call: str, data: Any, directory: Any, overwrite: bool, ts_specs: Any
) -> tuple[Callable[[], None], Any]:
    """What writes the tree, whose data are copied here, and the tree of types."""
    folder = _folder(call, directory, ts_specs)
    values, treedef = tree.flatten(data)
    structure = tree_to_json(treedef)
    leaves, parts = [], []
    for number, value in enumerate(values):
        leaves.append(_leaf(call, value))
        parts.extend(_parts(number, value))
    writer = FolderWriter(folder, overwrite)
    types = [_type_of(leaf) for leaf in leaves]
    return lambda: writer.write(structure, leaves, parts), tree.unflatten(treedef, types)


def _leaf(call: str, value: Any) -> Leaf:
    dtype = getattr(value, "dtype", None)
    if isinstance(value, Array) and isinstance(dtype, KeyDType):
        words = (*value.shape, *dtype.element_shape)
        return Leaf(words, dtype.element_dtype, dtype.implementation.name)
    if not isinstance(value, Array | np.ndarray) or not isinstance(dtype, np.dtype):
        msg = f"{call}: got a leaf of {value!r:.80}, expected arrays of numbers or of random keys"
        raise UnsupportedDtypeError(msg, hint="numpy.asarray for numbers")
    return Leaf(tuple(value.shape), dtype)


def _key_dtype(leaf: Leaf) -> KeyDType | None:
    """The dtype of random keys whose words were saved; None of numbers."""
    if leaf.generator is None:
        return None
    try:
        return key_dtype_of(leaf.generator)
    except KeyError as error:
        msg = f"load: keys of the generator {leaf.generator!r}, which is not known here"
        hint = "define the generator with tracebridge.extend.random before loading"
        raise ExportError(msg, hint=hint) from error


def _type_of(leaf: Leaf) -> ShapeDtypeStruct:
    """What the saved array is, as users know it."""
    keys = _key_dtype(leaf)
    if keys is None:
        return ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return ShapeDtypeStruct(leaf.shape[: -len(keys.element_shape)], keys)


def _parts(number: int, value: Any) -> list[Part]:
    """The parts that this process writes: one device has each, others only its copies."""
    if isinstance(value, np.ndarray):
        others = connection()
        if others is not None and others.index:
            return []
        return [Part(number, box_of([slice(None)] * value.ndim, value.shape), value.copy())]
    held = [shard for shard in value.addressable_shards if shard.replica_id == 0]
    return [_part(number, box_of(shard.index, value.shape), shard.data) for shard in held]


def _part(number: int, box: Box, held: Any) -> Part:
    dtype = held.dtype
    if isinstance(dtype, KeyDType):
        held = random_unwrap_p.bind(held)
        box = (*box, *[(0, n) for n in dtype.element_shape])
    return Part(number, box, np.array(held, copy=True))


def _reading(
    call: str, directory: Any, shardings: Any, mask: Any, ts_specs: Any
) -> tuple[Callable[[], Any], Any]:
    folder = _folder(call, directory, ts_specs)
    structure, leaves = read_structure(folder)
    treedef = tree_from_json(structure)
    whole = tree.unflatten(treedef, list(range(len(leaves))))
    places = tree.leaves(tree.broadcast(shardings, whole))
    wanted = [True] * len(leaves) if mask is None else tree.leaves(tree.broadcast(mask, whole))

    kinds = [_type_of(leaf) for leaf in leaves]

    def one(number: int) -> Any:
        return _read(folder, number, leaves[number], kinds[number], places[number])

    def run() -> Any:
        made = [one(number) if wanted[number] else None for number in range(len(leaves))]
        return tree.unflatten(treedef, made)

    types = [
        kind.update(sharding=place) if take else None
        for kind, place, take in zip(kinds, places, wanted, strict=True)
    ]
    return run, tree.unflatten(treedef, types)


def _read(folder: Path, number: int, leaf: Leaf, kind: ShapeDtypeStruct, place: Any) -> Any:
    """A saved array, from the boxes of it that the devices of this process are to hold."""
    if leaf.generator is None:
        return make_array_from_callback(
            leaf.shape,
            place,
            lambda index: read_box(folder, number, leaf, box_of(index, leaf.shape)),
            dtype=leaf.dtype,
        )
    words = [(0, n) for n in leaf.shape[len(kind.shape) :]]

    def keys(index: Sequence[slice]) -> Any:
        box = (*box_of(index, kind.shape), *words)
        return random_wrap_p.bind(
            put_numpy(read_box(folder, number, leaf, box)), impl=leaf.generator
        )

    return make_array_from_callback(kind.shape, place, keys)


def _folder(call: str, directory: str | os.PathLike[str], ts_specs: Any = None) -> Path:
    if ts_specs is not None:
        msg = f"{call}: ts_specs is not supported: there is one format of files"
        raise UnsupportedArgumentError(msg)
    if "://" in os.fspath(directory):
        msg = f"{call}: {directory} is an address, expected a folder of a file system"
        raise ArgumentValueError(msg, hint="mount it, or copy the folder afterwards")
    return Path(directory).absolute()


def _in_thread(run: Callable[[], Any]) -> Future[Any]:
    """The result of a thread of its own, for which the interpreter waits at its end."""
    worker = ThreadPoolExecutor(1, "tracebridge-folders")
    future = worker.submit(run)
    worker.shutdown(wait=False)
    return future


_shield(globals(), __name__)
