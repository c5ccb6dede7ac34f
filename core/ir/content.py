"""What a program computes, as a key: equal for programs that were traced apart.

Applications are interned, so equal equations are the same objects, and a key takes one hash for
each. Programs in parameters are told apart by identity. A key keeps alive what the parameters of
equations hold: functions of the user, for one (`traverse.holds_functions`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from tracebridge.core.ir.values import Literal

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr

IS_SHARED = "is shared"
"""Of a program: equal ones that are traced later are this object, or it was met before."""


def content_of(jaxpr: Jaxpr) -> Hashable:
    """The key of a program. Of constants that are arrays only the type is part of it."""
    consts = tuple([c.key() if type(c) is Literal else (c.aval,) for c in jaxpr.consts])
    return jaxpr.in_avals, consts, jaxpr.equations, jaxpr.outs


def has_arrays(jaxpr: Jaxpr) -> bool:
    """Whether constants of a program are arrays, by whose values it differs from equal ones."""
    return any([type(c) is not Literal for c in jaxpr.consts])
