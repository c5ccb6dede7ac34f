"""The examples in the pages of the documentation are right.

An example is a fence of the kind ``pycon``; those of one page share their names.
"""

from __future__ import annotations

import doctest
import re

import pytest

from tests.architecture.sources import ROOT
from tests.doctests.test_doctests import OPTIONS, TolerantChecker

FENCE = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if FENCE.search(page.read_text(encoding="utf-8"))
]


def test_pages_are_found() -> None:
    """A typing error in the pattern would find no example at all."""
    assert "engine_in_500_lines" in [page.stem for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_of_pages_are_right(page) -> None:
    """What a page shows is what happens."""
    text = "\n".join(FENCE.findall(page.read_text(encoding="utf-8")))
    test = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    runner = doctest.DocTestRunner(checker=TolerantChecker(), verbose=False, optionflags=OPTIONS)
    output: list[str] = []

    runner.run(test, out=output.append)

    assert runner.summarize(verbose=False).failed == 0, "".join(output)
