"""Whole messages of misused references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors


def vector() -> tb.Ref:
    """A reference."""
    return tb.new_ref(np.zeros(2, np.float32))


def frozen() -> tb.Ref:
    """A reference that has ended."""
    ref = vector()
    tb.freeze(ref)
    return ref


def differentiated() -> Any:
    """A write of a value that is differentiated."""
    ref = vector()
    return tb.grad(lambda x: ref.set(x, 0))(1.0)


def add(a: Any, b: Any) -> Any:
    """A function of two references."""
    return a[...] + b[...]


def passed_twice() -> Any:
    """The same reference for both arguments."""
    ref = vector()
    return tb.jit(add)(ref, ref)


CASES: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: frozen()[...],
        """\
get: the reference Ref{f32[2]} was frozen
    way out: read the reference before, or make another one with new_ref""",
    ),
    (
        lambda: tnp.sin(vector()),
        """\
got a reference Ref{float32[2]} where an array is expected
    way out: read its content with ref[...]; references can't be results or carries of transformed \
functions, nor be differentiated backwards: close over them instead""",
    ),
    (
        differentiated,
        """\
set: the value is being differentiated, but the reference Ref{f32[2]} was made outside of that \
grad, jvp or vjp
    way out: write stop_gradient(value), or make the reference inside the function""",
    ),
    (
        passed_twice,
        """\
jit(add): one reference Ref{f32[2]} is passed twice
    where: arguments a and b
    way out: pass it once""",
    ),
]


@pytest.mark.parametrize(("call", "text"), CASES)
def test_message(call: Callable[[], Any], text: str) -> None:
    """The message says what happened, and the way out."""
    with pytest.raises(errors.RefError) as caught:
        call()

    assert (
        f"{text}\n    see https://tracebridge.readthedocs.io/en/latest/errors/RefError.html"
        == str(caught.value)
    )
