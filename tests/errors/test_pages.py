"""The page of each error class tells the truth: the wrong example raises it, the right one runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.errors
import tracebridge.numpy as tnp
from tests.architecture.sources import ROOT
from tracebridge import lax

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PAGES = sorted((ROOT / "docs" / "errors").glob("*.md"))
# page -> why its examples do not run here
NOT_RUN = {
    "ExecutionError": "needs a kernel that fails: tests/core/runtime/arrays/test_failures.py",
    "ForkedProcessError": "forks the process, as tests/core/runtime/test_fork.py does",
    "OptionFrozenError": "the CPU runs here already: tests/core/runtime/backends/test_clients.py",
    "OtherProcessesError": "needs two processes: tests/integration/multiprocess",
    "PluginError": "its examples are commands of the shell",
    "ProcessesError": "needs two processes: tests/integration/multiprocess",
    "ProfilerError": "writes files: tests/bridge/test_profiler.py",
    "ProgramMismatchError": "needs two processes: tests/integration/torch/test_other_processes.py",
}
# page -> why its wrong example does not raise
HANDLES = {
    "InternalError": "raised for bugs only; its examples show how to handle them",
    "TracebridgeError": "the base class; its examples show how to handle errors",
}
# page -> the framework that its examples need
NEEDS = {"ExportError": "tensorflow", "UnsupportedExchangeDtypeError": "torch"}
# page -> features of a later version that it mentions
LATER: dict[str, tuple[str, ...]] = {
    "InconclusiveDimensionError": ("export",),
}


@pytest.fixture(autouse=True)
def _options_as_before() -> Iterator[None]:
    """An example may change options for the whole process."""
    before = tb.config.values
    yield
    for name, value in tb.config.values.items():
        if value != before[name]:
            tb.config.update(name, before[name])


def examples(stem: str) -> list[str]:
    """The wrong and the right example."""
    return BLOCK.findall((ROOT / "docs" / "errors" / f"{stem}.md").read_text(encoding="utf-8"))


def run(code: str, name: str) -> None:
    """Execute an example with the usual names."""
    exec(compile(code, name, "exec"), {"tb": tb, "tnp": tnp, "np": np, "lax": lax})


def has(path: str) -> bool:
    """Whether the package has a name."""
    found: Any = tb
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is not None


@pytest.mark.parametrize("stem", [page.stem for page in PAGES if page.stem not in NOT_RUN])
def test_examples(stem: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong raises (or warns, as an error here), right does not."""
    if not all(map(has, LATER.get(stem, ()))):
        pytest.skip("the page is about a feature that is not there yet")
    if stem in NEEDS and find_spec(NEEDS[stem]) is None:
        pytest.skip(f"{NEEDS[stem]} is not installed")
    wrong, right = examples(stem)

    if stem in HANDLES:
        run(wrong, f"{stem}: wrong")
    else:
        with pytest.raises(getattr(tracebridge.errors, stem)):
            run(wrong, f"{stem}: wrong")
    run(right, f"{stem}: right")


def test_exemptions_are_needed() -> None:
    """No entry outlives its page."""
    assert {*NOT_RUN, *HANDLES, *NEEDS, *LATER} <= {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_form_of_a_page(page: Path) -> None:
    """Its title is the class; then come the cause, what is wrong and what is right."""
    headings = re.findall(r"^#+ .*$", CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)

    assert [f"# {page.stem}", "## Cause", "## Wrong", "## Right"] == headings


def test_every_error_has_a_page() -> None:
    """And every page an error."""
    classes = {
        name
        for name, value in vars(tracebridge.errors).items()
        if isinstance(value, type) and issubclass(value, tracebridge.errors.TracebridgeError)
    }

    assert {page.stem for page in PAGES} <= {*dir(tracebridge.errors)}
    assert classes <= {page.stem for page in PAGES}
