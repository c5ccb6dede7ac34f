"""The examples in the pages of the documentation are right.

An example is a fence of the kind ``pycon``; those of one page share their names. On how-to pages
and in the README fences of the kind ``python`` run too, one after the other, with the usual names
at hand.
"""

from __future__ import annotations

import doctest
import io
import re
from contextlib import redirect_stdout
from importlib.util import find_spec

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.architecture.sources import ROOT, report
from tests.doctests.test_doctests import OPTIONS, TolerantChecker
from tracebridge import lax

FENCE = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
HOWTO = ROOT / "docs" / "howto"
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if FENCE.search(page.read_text(encoding="utf-8"))
]
# page -> the frameworks that its examples need
NEEDS = {
    "torch": ("torch",),
    "torch_modules": ("torch", "tensorflow"),
    **{f"torch_{page}": ("torch",) for page in ("state", "sizes", "training", "deployment")},
    "torch_differences": ("torch",),
    "tensorflow": ("tensorflow",),
    **{
        f"tensorflow_{page}": ("tensorflow",)
        for page in ("keras", "savedmodels", "sizes", "call", "differences")
    },
    "README": ("torch", "tensorflow"),
    "add_a_framework": ("cupy",),
}
# page -> why its fences of the kind `python` do not run
NOT_RUN = {
    "add_a_primitive": "pieces of files of the engine, not programs",
    "add_a_numpy_function": "pieces of files of the engine, not programs",
}
CODE_PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(HOWTO.glob("*.md"))]
    if CODE.search(page.read_text(encoding="utf-8")) and page.stem not in NOT_RUN
]


def test_pages_are_found() -> None:
    """A typing error in a pattern would find no example at all."""
    assert "engine_in_500_lines" in [page.stem for page in PAGES]
    assert "callbacks" in [page.stem for page in CODE_PAGES]


def skip_without_frameworks(page) -> None:
    """Skip where a framework that the examples of the page need is not installed."""
    for framework in NEEDS.get(page.stem, ()):
        if find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_of_pages_are_right(page) -> None:
    """What a page shows is what happens."""
    skip_without_frameworks(page)
    text = "\n".join(FENCE.findall(page.read_text(encoding="utf-8")))
    test = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    runner = doctest.DocTestRunner(checker=TolerantChecker(), verbose=False, optionflags=OPTIONS)
    output: list[str] = []

    runner.run(test, out=output.append)

    assert runner.summarize(verbose=False).failed == 0, "".join(output)


@pytest.mark.parametrize("page", CODE_PAGES, ids=lambda page: page.stem)
def test_programs_of_pages_run(page, tmp_path, monkeypatch) -> None:
    """The programs of a page run, and print what comments at their prints say."""
    skip_without_frameworks(page)
    monkeypatch.chdir(tmp_path)  # some write files
    names = {"tb": tb, "tnp": tnp, "np": np, "lax": lax}
    printed = io.StringIO()
    text = page.read_text(encoding="utf-8")
    with redirect_stdout(printed):
        for i, code in enumerate(CODE.findall(text)):
            exec(compile(code, f"{page.stem}: {i}", "exec"), names)
        tb.effects_barrier()

    promised = re.findall(r"^print\(.*\)  # (.+)$", "\n".join(CODE.findall(text)), re.MULTILINE)
    missing = [line for line in promised if line not in printed.getvalue()]
    assert not missing, report(f"not printed by {page.stem}", [*missing, printed.getvalue()])


def test_index_lists_every_page() -> None:
    """A how-to page that the index does not name is not found."""
    index = (HOWTO / "index.md").read_text(encoding="utf-8")
    missing = [
        page.name
        for page in HOWTO.glob("*.md")
        if page.name != "index.md" and f"({page.name})" not in index
    ]

    assert not missing


def test_exemptions_are_needed() -> None:
    """No entry outlives its page."""
    assert {*NOT_RUN, *NEEDS} <= {"README", *[page.stem for page in HOWTO.glob("*.md")]}
