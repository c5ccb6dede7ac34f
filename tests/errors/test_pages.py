"""The page of each error class tells the truth: the wrong example raises it, the right one runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.errors
import tracebridge.numpy as tnp
from tests.architecture.sources import ROOT
from tracebridge import lax

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted((ROOT / "docs" / "errors").glob("*.md"))
# page -> why its examples do not run here
NOT_RUN = {
    "BackendNotFoundError": "the right example needs a GPU",
    "DevicePlacementError": "needs two devices",
    "ExportError": "needs TensorFlow, which tests/integration/tf runs",
    "ForkedProcessError": "forks the process",
    "InternalError": "raised for bugs only; its examples show how to handle them",
    "PluginError": "its examples are commands of the shell",
    "TracebridgeError": "the base class; its examples show how to handle errors",
}
# page -> features of a later version that it mentions
LATER: dict[str, tuple[str, ...]] = {
    "KeyReuseError": ("random",),
    "RankError": ("numpy.linalg",),
    "InconclusiveDimensionError": ("export",),
    "JaxprTypeError": ("extend",),
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
    wrong, right = examples(stem)

    with pytest.raises(getattr(tracebridge.errors, stem)):
        run(wrong, f"{stem}: wrong")
    run(right, f"{stem}: right")


def test_exemptions_are_needed() -> None:
    """No entry outlives its page."""
    assert {*NOT_RUN, *LATER} <= {page.stem for page in PAGES}


def test_every_error_has_a_page() -> None:
    """And every page an error."""
    classes = {
        name
        for name, value in vars(tracebridge.errors).items()
        if isinstance(value, type) and issubclass(value, tracebridge.errors.TracebridgeError)
    }

    assert {page.stem for page in PAGES} <= {*dir(tracebridge.errors)}
    assert classes <= {page.stem for page in PAGES}
