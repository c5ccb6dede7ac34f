"""What every test gets: hypothesis profiles, options, skips, seeds, the link tree."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from tests.case_sampling import compiles_quickly, sampled

ROOT = Path(__file__).resolve().parent.parent

# Tests of a framework that is not installed are skipped; files in its folders are not imported.
FRAMEWORKS = {"torch": "torch", "tf": "tensorflow"}
MISSING = {marker: module for marker, module in FRAMEWORKS.items() if find_spec(module) is None}
GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")

# deadline=None: the first example compiles with XLA and takes a hundred times longer than the next.
hypothesis.settings.register_profile(
    "dev",
    max_examples=20,
    deadline=None,
)
hypothesis.settings.register_profile(
    "ci",
    max_examples=25,
    deadline=None,
    derandomize=True,  # a change is not to blame for an example that the run before did not draw
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # two cores, shared
)
hypothesis.settings.register_profile("nightly", max_examples=500, deadline=None)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
)

# Several devices in one process, for tests that need them; read when the first one uses the CPU.
os.environ.setdefault("TRACEBRIDGE_NUM_CPU_DEVICES", "8")

# TensorFlow's C++ log; it has no other switch that works before the import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that rewrite recorded results, and the one that shortens a run."""
    group = parser.getgroup("tracebridge")
    group.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files in tests/golden instead of comparing with them",
    )
    group.addoption(
        "--update-api",
        action="store_true",
        help="rewrite tests/architecture/api.txt instead of comparing with it",
    )
    group.addoption(
        "--sample-cases",
        action="store_true",
        help="of tests with many cases, run a part, see tests/case_sampling.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Bring the link tree up to date, once, before the workers start."""
    is_worker = hasattr(config, "workerinput")
    if not is_worker and (ROOT / ".ci" / "devtree").exists() and sys.platform != "win32":
        subprocess.run(["bash", str(ROOT / ".ci" / "devtree")], check=True)


def pytest_report_header() -> list[str]:
    """Say which frameworks are missing, so that a short run is not mistaken for a complete one."""
    return [f"{module} is not installed: its tests do not run" for module in MISSING.values()]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files that belong to a missing framework: they import it at the top."""
    parts = collection_path.relative_to(ROOT).parts if collection_path.is_relative_to(ROOT) else ()
    name = collection_path.name
    for marker in MISSING:
        if marker in parts or name.startswith(f"test_{marker}_") or name == f"test_{marker}.py":
            return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip marked tests whose framework or device is not there; leave out cases of long tables."""
    if config.getoption("--sample-cases"):
        chosen = sampled(item.nodeid for item in items)
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in chosen])
        items[:] = [i for i in items if i.nodeid in chosen]
    no_gpu = why_no_gpu()
    for item in items:
        for marker, module in MISSING.items():
            if item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=f"{module} is not installed"))
        if no_gpu and item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason=no_gpu))


def pytest_collection_finish() -> None:
    """Take what collecting tests has made, which stays, out of the search for garbage.

    Tests that ask the garbage collector, or for referrers, would look at millions of objects.
    """
    gc.collect()
    gc.freeze()


def why_no_gpu() -> str:
    """The reason for skipping tests on a GPU, empty when there is none."""
    if not Path("/dev/nvidia0").exists():
        return "no NVIDIA device on this machine"
    if not any(find_spec(name) for name in GPU_PLUGINS):
        return f"no CUDA plugin for jaxlib is installed (one of {', '.join(GPU_PLUGINS)})"
    return ""


@pytest.fixture(autouse=True, scope="session")
def _checked_programs() -> None:
    """Type-check every Jaxpr that a test makes."""
    importlib.import_module("tracebridge").config.update("enable_checks", True)


@pytest.fixture(autouse=True)
def _calls_by_signature() -> Iterator[None]:
    """A test that registers a tree that forwards attributes changes the way of all later calls."""
    fastpath = importlib.import_module("tracebridge.core.runtime.calls.fastpath")
    before = fastpath._FORWARDING[0]
    yield
    fastpath._FORWARDING[0] = before


@pytest.fixture(autouse=True)
def _effort(request: pytest.FixtureRequest) -> None:
    """Let XLA hardly optimise what is compiled, in a short run, where nothing depends on it."""
    config = importlib.import_module("tracebridge").config
    short = bool(request.config.getoption("--sample-cases"))
    quick = short and compiles_quickly(request.node.nodeid)
    if config.read("disable_most_optimizations") != quick:
        config.update("disable_most_optimizations", quick)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Make NumPy's global generator start equal in each test."""
    np.random.seed(0)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether recorded files are to be rewritten."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def subprocess_environment() -> dict[str, str]:
    """Environment for a fresh interpreter that imports the package of this checkout."""
    tree = str(ROOT / "build" / "tree")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (tree, os.environ.get("PYTHONPATH")))),
    }


@pytest.fixture(scope="session")
def run_alone(subprocess_environment: dict[str, str]) -> Callable[[str], str]:
    """Run a program in a fresh interpreter, where warnings are errors; give what it prints."""

    def run(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env=subprocess_environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
