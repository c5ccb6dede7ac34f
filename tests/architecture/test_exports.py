"""Packages of operations show what is for their users, and type checkers see the same."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import tracebridge.core.lax as engine
import tracebridge.lax
import tracebridge.numpy
from tests.architecture.sources import ROOT, report

# Operations that rules bind and users do not: of sizes, of the bits of floats, of keys.
ENGINE_ONLY = frozenset(
    [
        "convert_dtype",
        "copy",
        "dimension_size",
        "dimension_size_p",
        "eq_to",
        "iota_of",
        "layout_constraint_p",
        "le_to",
        "linear_recurrence_p",
        "lt_to",
        "ndtr",
        "ndtr_p",
        "stored",
        "stored_p",
        "threefry2x32_p",
        "with_layout_constraint",
    ]
)


def test_lists_are_up_to_date() -> None:
    """`__all__` of lax and numpy is what `.ci/exports` writes."""
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "exports"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (0, ""), f"run .ci/exports\n{done.stdout}"


@pytest.mark.parametrize("package", [tracebridge.lax, tracebridge.numpy])
def test_lists_name_what_is_there(package: types.ModuleType) -> None:
    """What is loaded or loaded later is in the list, for users as for type checkers."""
    there = {
        name
        for name, value in vars(package).items()
        if not (name.startswith("_") or isinstance(value, types.ModuleType))
    } - {"TYPE_CHECKING", "annotations"}
    missing = sorted((there | set(package._LATER.names())) - set(package.__all__))

    assert not missing, report("names that type checkers do not see: run .ci/exports", missing)


def test_the_engine_shows_operations_only() -> None:
    """Completion on `core.lax` offers what users get and the operations of rules, no helpers."""
    shown = {name for name in dir(engine) if not name.startswith("_")}

    assert shown == (shown & set(tracebridge.lax.__all__)) | ENGINE_ONLY
