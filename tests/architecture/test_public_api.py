"""The public surface changes only on purpose: it is written down in api.txt, one name a line."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import read, report
from tests.public_modules import public_modules, public_names

API = Path(__file__).with_name("api.txt")


def test_public_names_are_the_recorded_ones(request: pytest.FixtureRequest) -> None:
    """No name appears or disappears unnoticed; `--update-api` records an intended change."""
    modules = public_modules()
    actual = {f"{module}.{name}" for module in modules for name in public_names(module)}
    recorded = set(API.read_text(encoding="utf-8").split()) if API.exists() else set()
    # Names of a framework that is not installed here can be neither confirmed nor denied.
    unseen = {name for name in recorded if not belongs_to(name, modules)}
    if request.config.getoption("--update-api"):
        API.write_text("".join(f"{name}\n" for name in sorted(actual | unseen)), encoding="utf-8")
        return

    removed = [f"- {name}" for name in sorted(recorded - actual - unseen)]
    added = [f"+ {name}" for name in sorted(actual - recorded)]

    assert not removed + added, report(
        "public names that differ from api.txt; if this is intended, run pytest --update-api",
        removed + added,
    )


@pytest.mark.parametrize("module", public_modules())
def test_every_listed_name_exists_once(module: str) -> None:
    """`__all__` names things that are there, each once."""
    names = list(
        getattr(sys.modules.get(module) or __import__(module, fromlist=["_"]), "__all__", ())
    )

    assert sorted(set(names)) == sorted(names)
    assert public_names(module) is not None


def test_type_checkers_see_the_lazy_names(subprocess_environment: dict[str, str]) -> None:
    """What `tracebridge.__getattr__` loads late is also named in the `TYPE_CHECKING` block."""
    (root,) = (source for source in read("bridge") if source.name == "bridge/__init__.py")
    declared = {
        alias.asname or alias.name
        for node in root.tree.body
        if isinstance(node, ast.If)
        for child in ast.walk(node)
        if isinstance(child, ast.Import | ast.ImportFrom)
        for alias in child.names
    }
    probe = "import tracebridge as tb; print(*sorted(set(tb.__all__) - set(vars(tb))))"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import tracebridge as tb\nif hasattr(tb, '__all__'):\n    {probe}",
        ],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    lazy = set(done.stdout.split())

    assert not lazy - declared, report("lazy names without a declaration", sorted(lazy - declared))


def test_no_module_hides_a_lazy_name() -> None:
    """Python binds a loaded submodule in its package, where it would take a function's place."""
    packages = [
        importlib.import_module(f"tracebridge.{name}") for name in ("lax", "nn", "numpy", "random")
    ]
    hidden = [
        f"{package.__name__}.{module.name}"
        for package in packages
        for module in pkgutil.iter_modules(package.__path__)
        if module.name in package._LATER.module_of
    ]

    assert not hidden, report("lazy names that are modules too", hidden)


def belongs_to(name: str, modules: list[str]) -> bool:
    """Whether `name` is an attribute of one of the importable public modules."""
    framework = name.split(".")[1] in ("torch", "tf")
    return not framework or any(name.startswith(f"{module}.") for module in modules)
