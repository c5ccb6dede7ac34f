"""How Python objects become values."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tracebridge as tb


def test_first_operation_may_take_a_numpy_array(subprocess_environment: dict[str, str]) -> None:
    """The runtime, which knows NumPy arrays, is loaded when the first one is an operand."""
    program = (
        "import numpy as np\n"
        "from tracebridge import lax\n"
        "print(lax.reduce_max(np.arange(3, dtype=np.float32), (0,)))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ("2.0\n", "") == (done.stdout, done.stderr)


@pytest.mark.parametrize("sharding", ["x", 3, tb.devices("cpu")[0]], ids=["text", "int", "device"])
def test_stand_ins_take_shardings_only(sharding: object) -> None:
    """A place that is no sharding is refused where the stand-in is made."""
    with pytest.raises(ValueError, match="sharding"):
        tb.ShapeDtypeStruct((3,), "float32", sharding=sharding)
