"""Jaxprs as objects: copies and pickles."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tracebridge as tb


def _program() -> Any:
    return tb.make_jaxpr(lambda x: x + np.arange(3.0, dtype="float32"))(np.ones(3, "float32"))


def test_a_copy_of_a_program_is_the_program() -> None:
    """Nothing in a Jaxpr changes, so that deep copies of what holds one share it."""
    closed = _program()

    held = copy.deepcopy({"program": closed})

    assert held["program"] == closed
    assert copy.copy(closed.jaxpr) is closed.jaxpr
    assert np.array_equal(
        tb.extend.core.jaxpr_as_fun(held["program"])(np.ones(3, "float32"))[0], [1.0, 2.0, 3.0]
    )


@pytest.mark.parametrize("part", ["program", "jaxpr"])
def test_a_pickle_of_a_program_names_the_way_out(part: str) -> None:
    """The rules of its primitives are functions of this process: files are made by `export`."""
    closed = _program()

    with pytest.raises(TypeError, match=r"a Jaxpr cannot be pickled.*tracebridge\.export"):
        pickle.dumps(closed if part == "program" else closed.jaxpr)
