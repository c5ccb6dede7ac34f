"""How accurate a result has to be: the ``accuracy`` argument of transcendental functions."""

from __future__ import annotations

__all__ = ["AccuracyMode", "Tolerance"]

import enum
from typing import Any, NamedTuple

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.lax")
class AccuracyMode(enum.Enum):
    """Which implementation the compiler takes: the most accurate one, or its usual one.

    >>> import tracebridge as tb
    >>> tb.lax.AccuracyMode.HIGHEST.name
    'HIGHEST'
    """

    HIGHEST = 1
    DEFAULT = 2


@public_path("tracebridge.lax")
class Tolerance(NamedTuple):
    """The largest error that is accepted: ``atol + rtol * abs(exact)``, or a number of ulps.

    >>> import tracebridge as tb
    >>> tb.lax.Tolerance(rtol=1e-3).ulps
    0
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


def accuracy_params(name: str, accuracy: object) -> dict[str, Any]:
    """The parameter of a primitive for an ``accuracy`` argument; nothing for ``None``."""
    if accuracy is None:
        return {}
    if isinstance(accuracy, AccuracyMode):
        return {"accuracy": accuracy}
    if isinstance(accuracy, Tolerance) and min(accuracy) >= 0 and any(accuracy):
        # A float key would confuse 1 and 1.0, so the parts are stored with one type each.
        atol, rtol, ulps = accuracy
        return {"accuracy": Tolerance(float(atol), float(rtol), int(ulps))}
    msg = (
        f"{name}: accuracy must be None, an AccuracyMode or a Tolerance with a positive part, "
        f"got {accuracy!r}"
    )
    raise ArgumentValueError(msg)


def accuracy_attributes(accuracy: AccuracyMode | Tolerance) -> dict[str, Any]:
    """The attribute ``result_accuracy`` of a StableHLO operation."""
    hlo = mlir.stablehlo
    atol, rtol, ulps, mode = 0.0, 0.0, 0, "TOLERANCE"
    if isinstance(accuracy, AccuracyMode):
        mode = accuracy.name
    else:
        atol, rtol, ulps = accuracy
    attribute = hlo.ResultAccuracyAttr.get(
        atol, rtol, ulps, hlo.ResultAccuracyModeAttr.get(mode).value
    )
    return {"result_accuracy": attribute}
