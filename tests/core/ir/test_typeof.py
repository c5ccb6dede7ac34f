"""How Python objects become values."""

from __future__ import annotations

import subprocess
import sys


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
