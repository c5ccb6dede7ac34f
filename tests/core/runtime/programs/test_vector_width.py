"""Programs for CPUs with vectors of 512 bits are compiled for them, unless somebody chose."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.scopes import scope
from tracebridge.core.runtime.programs import vector_width
from tracebridge.core.runtime.programs.executables import EXECUTABLES
from tracebridge.core.runtime.programs.vector_width import with_vector_width

FLAG = "xla_cpu_prefer_vector_width"


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU with vectors of 512 bits, whichever runs the test, and no flags for XLA."""
    monkeypatch.setattr(vector_width, "_has_wide_vectors", lambda: True)
    monkeypatch.delenv("XLA_FLAGS", raising=False)


@pytest.mark.usefixtures("wide")
def test_wide_vectors_are_asked_for_on_the_cpu() -> None:
    """Other options stay; other platforms and a choice by the caller are left alone."""
    assert ((FLAG, 512),) == with_vector_width((), "cpu")
    assert (("a", 1), (FLAG, 512)) == with_vector_width((("a", 1),), "cpu")
    assert () == with_vector_width((), "cuda")
    assert ((FLAG, 128),) == with_vector_width(((FLAG, 128),), "cpu")


@pytest.mark.usefixtures("wide")
def test_wide_vectors_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the option for platform rules, and by XLA's own variable."""
    with scope("platform_rules", False):
        assert () == with_vector_width((), "cpu")
    monkeypatch.setenv("XLA_FLAGS", f"--{FLAG}=256")
    assert () == with_vector_width((), "cpu")


def test_other_cpus_keep_what_xla_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the instructions nothing is asked for."""
    monkeypatch.setattr(vector_width, "_has_wide_vectors", lambda: False)
    assert () == with_vector_width((), "cpu")


@pytest.mark.usefixtures("wide")
def test_the_width_is_part_of_the_key_of_executables() -> None:
    """One module compiled for both widths is two executables, with equal values."""
    x = tnp.linspace(0.1, 2.0, 777)
    lowered = tb.jit(lambda x: tnp.exp(x) * 1.25 + x).lower(x)
    before = len(EXECUTABLES)
    wide = lowered.compile()
    assert before + 1 == len(EXECUTABLES)
    narrow = lowered.compile({FLAG: 256})
    assert before + 2 == len(EXECUTABLES)
    np.testing.assert_allclose(np.asarray(wide(x)), np.asarray(narrow(x)), rtol=1e-6)
