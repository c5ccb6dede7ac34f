"""What users see of the package: no names of the engine, no modules, public paths."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import types
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.architecture.sources import ROOT
from tests.public_modules import public_modules
from tracebridge import _missing_modules
from tracebridge._api.programs.missing import instead, names_in_table

# Of the peer's arrays, and not of NumPy's.
# fmt: off
OF_THE_PEER = frozenset((
    "addressable_data", "addressable_shards", "at", "aval", "block_until_ready", "committed",
    "copy_to_host_async", "delete", "devices", "format", "global_shards", "is_deleted",
    "is_fully_addressable", "is_fully_replicated", "is_ready", "on_device_size_in_bytes",
    "sharding", "unsafe_buffer_pointer", "weak_type",
))
# fmt: on


def test_arrays_have_no_attributes_of_the_engine() -> None:
    """Every public attribute of an Array is NumPy's or documented by the peer."""
    known = OF_THE_PEER | set(dir(np.ndarray)) | {"ptp"}

    assert [] == [n for n in dir(tnp.ones(3)) if n[0] != "_" and n not in known]
    assert [] == [n for n in dir(tb.Array) if n[0] != "_" and n not in known]


def test_classes_say_their_public_path() -> None:
    """What ``type(x)`` prints is what one can import."""
    assert "<class 'tracebridge.Array'>" == repr(type(tnp.ones(3)))
    assert "tracebridge.errors" == tb.errors.BroadcastError.__module__


@pytest.mark.parametrize("module", ["tracebridge.numpy", "tracebridge.lax"])
def test_names_of_a_module_are_no_modules(module: str) -> None:
    """``from ... import *`` gives functions and values, completion submodules too."""
    loaded: Any = importlib.import_module(module)

    modules = [n for n in dir(loaded) if isinstance(getattr(loaded, n), types.ModuleType)]

    assert sorted([*loaded.__all__, *modules]) == dir(loaded)
    assert [f"{module}.{n}" for n in modules] == [getattr(loaded, n).__name__ for n in modules]
    assert [] == [n for n in dir(loaded) if n[0] == "_" or n == "annotations"]


@pytest.mark.parametrize("module", public_modules())
def test_public_modules_list_their_names(module: str) -> None:
    """Each has an ``__all__``, or loads what it has when asked."""
    loaded: Any = importlib.import_module(module)

    assert hasattr(loaded, "__all__") or hasattr(loaded, "__getattr__")


@pytest.mark.parametrize("module", public_modules())
def test_completion_offers_what_a_module_is_for(module: str) -> None:
    """``dir()`` has each public name that exists, and nothing that the module is written with."""
    loaded: Any = importlib.import_module(module)
    listed = dir(loaded)

    others = set(listed) - set(getattr(loaded, "__all__", ())) - {"__version__", "__version_info__"}
    assert set(getattr(loaded, "__all__", ())) <= set(listed)
    assert sorted(listed) == listed
    for name in others:
        value = getattr(loaded, name)
        alias = isinstance(value, type) and issubclass(value, Exception)
        assert alias or isinstance(value, types.ModuleType), name


@pytest.mark.parametrize("module", ["experimental.pjit", "extend.ifrt_programs"])
def test_completion_of_modules_of_one_name(module: str) -> None:
    """They are older or longer paths to it, which no list of modules has."""
    assert [module.rsplit(".", 1)[1]] == dir(importlib.import_module(f"tracebridge.{module}"))


def test_completion_offers_the_peer_names_of_errors() -> None:
    """Names that stand for other classes are names."""
    assert {"JAXTypeError", "JaxRuntimeError", "BroadcastError"} <= set(dir(tb.errors))


TABLE = [(module, name) for module, names in names_in_table().items() for name in names]


@pytest.mark.parametrize(("module", "name"), TABLE)
def test_missing_names_say_what_to_use(module: str, name: str) -> None:
    """The error of a name that other libraries have names a way out; what exists is not listed."""
    with pytest.raises(AttributeError, match="way out: ") as caught:
        getattr(importlib.import_module(module), name)

    assert name == caught.value.name
    assert instead(module, name) in str(caught.value)


def test_the_page_of_left_out_names_is_right() -> None:
    """What it lists is not there, and the error names what the page names."""
    page = (ROOT / "docs" / "left_out.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(tracebridge[\w.]*)\.(\w+)` \|.*\| ([^|]*) \|$", page, re.MULTILINE)

    assert sorted(TABLE) == sorted([(module, name) for module, name, _ in rows])
    for module, name, way_out in rows:
        for used in re.findall(r"`(tracebridge[\w.]*)`", way_out):
            assert used in instead(module, name)


PACKAGES = [(m, n) for m, n in TABLE if hasattr(importlib.import_module(m), "__path__")]


@pytest.mark.parametrize(("module", "name"), PACKAGES)
def test_imports_of_missing_names_say_what_to_use(module: str, name: str) -> None:
    """Both forms of the statement; who only asks whether there is such a module hears no."""
    for statement in (f"from {module} import {name}", f"import {module}.{name}"):
        with pytest.raises(ImportError, match="way out: ") as caught:
            exec(statement)

        assert f"{module}.{name} is not part of this version" in str(caught.value)
    assert importlib.util.find_spec(f"{module}.{name}") is None


def test_imports_of_other_names_just_fail() -> None:
    """As Python says it; one finder serves all, after all others."""
    with pytest.raises(ImportError, match=r"^cannot import name 'sinn' from 'tracebridge.numpy'"):
        exec("from tracebridge.numpy import sinn")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'tracebridge.sinn'$"):
        exec("import tracebridge.sinn")
    _missing_modules.install()

    ours = [type(finder).__module__ for finder in sys.meta_path]
    assert 1 == ours.count("tracebridge._missing_modules")


def test_ways_out_exist() -> None:
    """Functions of ours that the table names are there."""
    words = {
        word.strip(",;:().")
        for module, name in TABLE
        for word in instead(module, name).split()
        if word.startswith("tracebridge.")
    }
    for path in words:
        module, _, name = path.partition("(")[0].rpartition(".")
        loaded = sys.modules.get(path) or getattr(importlib.import_module(module), name)
        assert loaded is not None


def test_other_names_are_just_missing() -> None:
    """Nothing is promised for a misspelt name."""
    with pytest.raises(AttributeError) as caught:
        _ = tnp.sinn  # type: ignore[attr-defined]  # misspelt

    assert "module 'tracebridge.numpy' has no attribute 'sinn'" == str(caught.value)
