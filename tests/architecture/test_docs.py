"""The pages of the documentation refer to things that exist."""

from __future__ import annotations

import re

import pytest

from tests.architecture.sources import ROOT, package_sources, report

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`((?:core|bridge|interop|tests|docs|examples|\.ci)/[\w./{},-]*[\w}/])`")
DECISION_PARTS = ("## Context", "## Choice", "## Price", "## When to revisit")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page) -> None:
    """A relative link names a file of the repository; code is no text with links."""
    broken = [
        target
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
        if not (page.parent / target).exists()
    ]

    assert not broken, report("broken links", broken)


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=lambda page: page.stem
)
def test_decisions_have_their_four_parts(page) -> None:
    """A record says in which situation, what was chosen, at what price, and until when it holds."""
    text = page.read_text(encoding="utf-8")

    assert [part for part in DECISION_PARTS if part not in text] == []


def test_decisions_are_numbered_once() -> None:
    """Two records never share a number."""
    numbers = [page.name[:4] for page in (ROOT / "docs" / "decisions").glob("*.md")]

    assert sorted(set(numbers)) == sorted(numbers)


# Files that a page tells its reader to write.
TO_BE_WRITTEN = frozenset(["interop/cupy_adapter.py", "tests/interop/test_cupy_adapter.py"])


def test_paths_exist() -> None:
    """A path of the package that a page names in backticks is there, also each of `a/{b,c}.py`."""
    missing = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        for named in PATH.findall(page.read_text(encoding="utf-8"))
        for path in alternatives(named)
        if not (ROOT / path).exists() and path not in TO_BE_WRITTEN
    ]

    assert not missing, report("paths that pages name and that are not there", missing)


def test_excerpts_are_in_the_source() -> None:
    """Code that the explanations show without `>>>` stands in the package as it is shown."""
    sources = "\n".join([source.text for source in package_sources()])
    excerpts = [
        code
        for page in sorted((ROOT / "docs" / "explanation").glob("*.md"))
        for code in re.findall(
            r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
    ]

    assert excerpts
    assert [code for code in excerpts if code not in sources] == []


def alternatives(path: str) -> list[str]:
    """`a/{b,c}.py` as `a/b.py` and `a/c.py`; other paths alone."""
    head, brace, rest = path.partition("{")
    if not brace:
        return [path]
    names, _, tail = rest.partition("}")
    return [head + name + tail for name in names.split(",")]


def test_glossary_is_sorted() -> None:
    """A term is found where the alphabet has it, and once."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = [term.lower() for term in re.findall(r"^\*\*([^*]+)\*\*", text, re.MULTILINE)]

    assert sorted(set(terms)) == terms


def test_make_targets_exist() -> None:
    """Each `make target` that a page mentions is in the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE))
    mentioned = {
        target
        for page in PAGES
        for target in re.findall(
            r"(?:`|^)make ([a-z][\w-]*)", page.read_text("utf-8"), re.MULTILINE
        )
    }

    assert mentioned - targets == set()


def test_change_fragments_have_a_known_kind() -> None:
    """towncrier passes over a file whose kind it does not know."""
    kinds = {"added", "changed", "fixed", "removed", "perf"}
    unknown = [
        path.name
        for path in (ROOT / "docs" / "changes").glob("*.md")
        if path.name != "README.md" and path.name.split(".")[-2] not in kinds
    ]

    assert not unknown
