"""The package's names: loaded late, listed once, known to type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tracebridge as tb

SOURCE = ast.parse(
    (Path(__file__).parents[2] / "bridge" / "__init__.py").read_text(encoding="utf-8")
)


def declared() -> set[str]:
    """Names in the block for type checkers."""
    block = next(node for node in SOURCE.body if isinstance(node, ast.If))
    return {
        alias.asname or alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_name_can_be_loaded() -> None:
    """Functions and submodules exist, each name once."""
    assert len(set(tb.__all__)) == len(tb.__all__)
    for name in (*tb.__all__, *tb._SUBMODULES - {"torch", "tf"}):
        assert getattr(tb, name) is not None, name
        assert name in dir(tb)


def test_type_checkers_see_the_same_names() -> None:
    """The block for type checkers and the tables of late names agree."""
    late = {*tb._MODULE_OF, *tb._SUBMODULES}

    assert late == declared()


def test_unknown_names() -> None:
    """Python's own error."""
    with pytest.raises(AttributeError, match="module 'tracebridge' has no attribute 'nothing'"):
        _ = tb.nothing


def test_import_loads_little(subprocess_environment: dict[str, str]) -> None:
    """Neither the NumPy layer nor the compiler is loaded before they are used."""
    probe = (
        "import sys, tracebridge as tb\n"
        "before = set(sys.modules)\n"
        "assert 'tracebridge.numpy' not in before and 'jaxlib.mlir.ir' not in before\n"
        "assert 'tracebridge.core.control.jit.jit' not in before\n"
        "assert tb.jit is tb.jit and 'jit' in vars(tb)\n"
        "from tracebridge import *\n"
        "assert grad is tb.grad\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert 0 == done.returncode, done.stderr
