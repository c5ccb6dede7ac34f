"""Nested lists of numbers as operands: SciPy's functions take them where NumPy's do not here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.numpy as tnp


def nested(x: Any) -> Any:
    """A list or a tuple of numbers or arrays as an array; anything else as it is."""
    return tnp.asarray(x) if isinstance(x, list | tuple) else x


def of_lists(staged: Callable[..., Any]) -> Callable[..., Any]:
    """A staged function, ``staged(arrays, statics)``, that takes lists for arrays as well."""

    def run(arrays: Sequence[Any], statics: tuple[Any, ...] = ()) -> Any:
        return staged(tuple([nested(a) for a in arrays]), statics)

    return run
