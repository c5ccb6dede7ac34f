"""Parts of frameworks that are imported later: who asks for a call is called, once."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from tracebridge.interop.frameworks import when_imported


@pytest.fixture(name="part")
def make_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that nobody has imported, in a package that is there."""
    (tmp_path / "framework_of_test").mkdir()
    (tmp_path / "framework_of_test" / "__init__.py").write_text("")
    (tmp_path / "framework_of_test" / "part.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for name in ("framework_of_test", "framework_of_test.part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "framework_of_test.part"


def test_call_comes_with_the_import(part: str) -> None:
    """After the module is complete, and before the import statement ends."""
    seen: list[int] = []
    when_imported(part, lambda: seen.append(sys.modules[part].VALUE))
    importlib.import_module("framework_of_test")

    assert seen == []
    module = importlib.import_module(part)
    assert seen == [3]
    assert type(module.__loader__) is type(importlib.import_module("textwrap").__loader__)
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    importlib.reload(module)
    assert seen == [3]


def test_a_look_is_no_import(part: str) -> None:
    """Who only asks whether the module is there finds it, and the import is told later."""
    seen: list[int] = []
    when_imported(part, lambda: seen.append(1))
    for _ in range(2):
        spec = importlib.util.find_spec(part)
        assert spec is not None
        assert "VALUE" in spec.loader.get_source(part)  # type: ignore[union-attr]  # a file has it
    assert seen == []
    importlib.import_module(part)

    assert seen == [1]
    assert importlib.util.find_spec(part) is not None


def test_several_ask_for_one_module(part: str) -> None:
    """Each is called, the last one first or not, and who asks afterwards at once."""
    seen: list[str] = []
    when_imported(part, lambda: seen.append("a"))
    when_imported(part, lambda: seen.append("b"))
    importlib.import_module(part)
    when_imported(part, lambda: seen.append("c"))

    assert sorted(seen) == ["a", "b", "c"]
    assert seen[-1] == "c"


def test_a_failed_import_does_not_count(part: str, tmp_path: Path) -> None:
    """The next attempt is the one that is told."""
    seen: list[str] = []
    when_imported(part, lambda: seen.append("a"))
    file = tmp_path / "framework_of_test" / "part.py"
    file.write_text("raise RuntimeError('not today')\n")
    with pytest.raises(RuntimeError, match="not today"):
        importlib.import_module(part)
    file.write_text("VALUE = 'another day'\n")
    importlib.invalidate_caches()

    assert importlib.import_module(part).VALUE == "another day"
    assert seen == ["a"]


def test_a_module_that_is_not_there_is_not_found() -> None:
    """The error is Python's, and a later import is watched still."""
    seen: list[str] = []
    when_imported("framework_of_test_that_is_missing", lambda: seen.append("a"))
    try:
        for _ in range(2):
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module("framework_of_test_that_is_missing")
    finally:
        del sys.meta_path[0]

    assert seen == []
