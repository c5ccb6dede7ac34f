"""The reference, as `make docs` writes it: complete, and its links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tracebridge.errors
from tests.architecture.sources import ROOT, report
from tests.doctests.test_doctests import OBJECTS
from tests.public_modules import is_function, public_modules, public_names

LINK = re.compile(r"\[`?[^\]]*?`?\]\(([^)\s]*?)(?:#([^)\s]+))?\)")
ANCHOR = re.compile(r'<a id="([^"]+)">')
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FUNCTIONS = [(name, value) for name, value in OBJECTS if is_function(value)]
RAISES = re.compile(r"^ *(\w+(?:, \w+)*):", re.MULTILINE)


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The script, as a module."""
    loader = SourceFileLoader("reference", str(ROOT / ".ci" / "reference"))
    module = ModuleType("reference")
    module.__file__ = loader.path
    exec(loader.get_code("reference"), vars(module))
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the pages are written."""
    return tmp_path_factory.mktemp("reference")


@pytest.fixture(scope="module")
def reference(generator: ModuleType, folder: Path) -> Any:
    """The written pages."""
    return generator.write(folder)


def test_every_parameter_is_explained(reference: Any) -> None:
    """By the docstring, by a function that it refers to, or by docs/parameters.md."""
    assert not reference.unexplained, report("parameters explained nowhere", reference.unexplained)


def test_every_public_name_has_a_section(reference: Any, folder: Path) -> None:
    """Each module has a page, and each name of the module is on it."""
    for module in public_modules():
        text = (folder / f"{module}.md").read_text(encoding="utf-8")
        missing = [name for name in public_names(module) if f"`{name}`" not in text]

        assert not missing, report(f"names missing on the page of {module}", missing)
        assert f"({module}.md)" in (folder / "index.md").read_text(encoding="utf-8")


def test_links_lead_to_sections(reference: Any, folder: Path) -> None:
    """Every link names a file, and every anchor is there."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in folder.glob("*.md")}
    anchors = {name: set(ANCHOR.findall(text)) for name, text in texts.items()}
    broken = [
        f"{name}: {target}#{anchor}"
        for name, text in texts.items()
        for target, anchor in LINK.findall(FENCE.sub("", text))
        if (anchor and anchor not in anchors.get(target or name, ()))
        or (target and not (folder / target).exists())
    ]

    assert len(texts) > 20
    assert not broken, report("broken links", broken)


def test_methods_of_arrays_are_listed(reference: Any, folder: Path) -> None:
    """Those that the NumPy layer adds too, with links to the functions."""
    text = (folder / "tracebridge.md").read_text(encoding="utf-8")

    assert "### Array.block_until_ready" in text
    assert "[`reshape`](tracebridge.numpy.md#reshape)" in text
    assert "`at`" in text


def test_page_of_errors_is_their_index(reference: Any, folder: Path) -> None:
    """It says one line about each error and leads to its page with examples."""
    text = (folder / "tracebridge.errors.md").read_text(encoding="utf-8")
    pages = sorted((ROOT / "docs" / "errors").glob("*.md"))
    missing = [page.stem for page in pages if f"/{page.name})" not in text]

    assert pages
    assert not missing, report("pages that the index does not name", missing)


def test_docstrings_become_markdown(reference: Any, folder: Path) -> None:
    """No page shows the raw form of a section or of an example, or an address of this process."""
    for page in folder.glob("*.md"):
        text = page.read_text(encoding="utf-8")

        assert not re.search(r"^(?:Args|Returns|Raises|Attributes):$", text, re.MULTILINE), page
        assert ">>>" not in FENCE.sub("", text), page
        assert " at 0x" not in text, page


def raised_in(function: Any) -> set[str]:
    """Names of our errors that the body of a function raises itself."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = getattr(node.exc.func, "id", "")
            if hasattr(tracebridge.errors, name):
                names.add(name)
    return names


def documented_errors(function: Any) -> set[str]:
    """Names in the section Raises of a docstring."""
    _, _, rest = (inspect.getdoc(function) or "").partition("Raises:\n")
    section = rest.partition("\n\n")[0]
    return {name.strip() for names in RAISES.findall(section) for name in names.split(",")}


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name, _ in FUNCTIONS}))
def test_errors_are_documented(module: str) -> None:
    """What a public function raises in its own body is in the section Raises of its docstring."""
    missing = [
        f"{name}: {', '.join(sorted(undocumented))}"
        for name, value in FUNCTIONS
        if name.rpartition(".")[0] == module
        and (undocumented := raised_in(value) - documented_errors(value))
    ]

    assert not missing, report("errors that docstrings do not name", missing)
