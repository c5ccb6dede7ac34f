"""What users see of the package: no names of the engine, no modules, public paths."""

from __future__ import annotations

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp

# Of the peer's arrays, and not of NumPy's.
# fmt: off
OF_THE_PEER = frozenset((
    "addressable_data", "addressable_shards", "at", "aval", "block_until_ready", "committed",
    "copy_to_host_async", "delete", "devices", "format", "global_shards", "is_deleted",
    "is_fully_addressable", "is_fully_replicated", "is_ready", "on_device_size_in_bytes",
    "sharding", "unsafe_buffer_pointer", "weak_type",
))
# fmt: on


def test_arrays_have_no_attributes_of_the_engine() -> None:
    """Every public attribute of an Array is NumPy's or documented by the peer."""
    known = OF_THE_PEER | set(dir(np.ndarray)) | {"ptp"}

    assert [] == [n for n in dir(tnp.ones(3)) if n[0] != "_" and n not in known]
    assert [] == [n for n in dir(tb.Array) if n[0] != "_" and n not in known]
