"""Importing tracebridge stays cheap.

Counted in what is imported, not in seconds: the clock of a shared machine says little.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.architecture.sources import report

HEAVY = (
    "torch",
    "tensorflow",
    "keras",
    "jax",
    "scipy",
    "opt_einsum",
    "matplotlib",
    "jaxlib.mlir.dialects",  # loaded at the first lowering
)
# Loaded when a user first asks for them.
LAZY = ("tracebridge.torch", "tracebridge.tf", "tracebridge.interop.torch_adapter")

PROBE = """
import json, sys, threading
import tracebridge
print(json.dumps({"modules": sorted(sys.modules), "threads": threading.active_count()}))
"""


@pytest.fixture(scope="module")
def after_import(subprocess_environment: dict[str, str]) -> dict[str, object]:
    """Modules and threads of a fresh interpreter after `import tracebridge`."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_no_heavy_module_is_imported(after_import: dict[str, object]) -> None:
    """No framework, no SciPy, no MLIR dialect is loaded by the bare import."""
    loaded = [
        name
        for name in after_import["modules"]
        if any(name == heavy or name.startswith(f"{heavy}.") for heavy in (*HEAVY, *LAZY))
    ]

    assert not loaded, report("modules that `import tracebridge` loads", loaded[:20])


def test_no_thread_is_started(after_import: dict[str, object]) -> None:
    """The bare import makes no client and starts no thread: a fork right after it is safe."""
    assert after_import["threads"] == 1
