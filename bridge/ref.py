"""Mutable array references: boxes of arrays that programs read and write in place."""

from __future__ import annotations

from tracebridge.core.control.refs.cells import AbstractRef
from tracebridge.core.control.refs.functions import (
    addupdate,
    empty_ref,
    free_ref,
    freeze,
    get,
    new_ref,
    set,
    swap,
)
from tracebridge.core.control.refs.ref import Ref
from tracebridge.core.errors.filtering import shield as _shield

__all__ = [
    "AbstractRef",
    "Ref",
    "addupdate",
    "empty_ref",
    "free_ref",
    "freeze",
    "get",
    "new_ref",
    "set",
    "swap",
]

_shield(globals(), __name__)
