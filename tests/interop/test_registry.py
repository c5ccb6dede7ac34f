"""The registry finds adapters by type and imports no framework."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tracebridge.numpy as tnp
from tracebridge.interop.numpy_adapter import numpy_adapter
from tracebridge.interop.registry import adapter_of, import_tensor


def test_numpy_is_known():
    """ndarrays, their subclasses and NumPy scalars."""
    assert adapter_of(np.ndarray) is numpy_adapter
    assert adapter_of(np.matrix) is numpy_adapter
    assert adapter_of(np.float32) is numpy_adapter


def test_other_objects_are_not():
    """None, for numpy.asarray to try something else."""
    assert adapter_of(str) is None
    assert adapter_of(str) is None
    assert import_tensor([1, 2]) is None


def test_numpy_exports_read_only_views():
    """The adapter's export is a view without a copy."""
    array = tnp.arange(4.0)
    view = numpy_adapter.export(array)

    assert not view.flags.writeable
    assert view.ctypes.data == array.unsafe_buffer_pointer()
    assert numpy_adapter.export(array, copy=True).ctypes.data != array.unsafe_buffer_pointer()


def test_no_framework_is_imported(subprocess_environment: dict[str, str]) -> None:
    """Looking up types loads neither torch nor TensorFlow."""
    code = (
        "import sys, numpy, tracebridge.numpy as tnp\n"
        "from tracebridge.interop.registry import import_tensor\n"
        "import_tensor(numpy.ones(3)); import_tensor('x'); tnp.asarray([1])\n"
        "assert not {'torch', 'tensorflow', 'jax'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.torch
def test_a_framework_that_arrives_later(subprocess_environment: dict[str, str]) -> None:
    """A type that was unknown before its framework was imported is known afterwards."""
    code = (
        "import numpy\n"
        "from tracebridge.interop.registry import adapter_of\n"
        "assert adapter_of(str) is None\n"
        "import torch\n"
        "assert adapter_of(torch.Tensor).name == 'torch'\n"
        "assert adapter_of(torch.nn.Parameter).name == 'torch'\n"
        "assert adapter_of(str) is None\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
