"""Methods and properties of arrays: what the array namespace gives to Array and Tracer."""

from __future__ import annotations

from typing import Any

from tracebridge.numpy import (
    _indexing,
    _operators,
    at_updates,
    creation,
    cumulative,
    elementwise_math,
    elementwise_round,
    linear_products,
    manipulation,
    reductions,
    searching,
)


def _reshape(self: Any, *args: Any, order: str = "C", copy: bool | None = None) -> Any:
    """``x.reshape(2, 3)`` or ``x.reshape((2, 3))``."""
    shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
    return manipulation.reshape(self, shape, order, copy=copy)


def _transpose(self: Any, *axes: Any) -> Any:
    if not axes or axes == (None,):
        return manipulation.transpose(self)
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return manipulation.transpose(self, order)


def _astype(self: Any, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    return creation.astype(self, dtype, copy=copy, device=device)


def _flatten(self: Any, order: str = "C") -> Any:
    return manipulation.ravel(self, order)


def _copy(self: Any) -> Any:
    return creation.copy(self)


def _to_device(self: Any, device: Any, *, stream: Any = None) -> Any:
    if stream is not None:
        msg = "to_device: streams are managed by XLA; stream must be None"
        raise ValueError(msg)
    return creation.on_device(self, device)


METHODS: dict[str, Any] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": searching.argmax,
    "argmin": searching.argmin,
    "astype": _astype,
    "conj": elementwise_math.conjugate,
    "conjugate": elementwise_math.conjugate,
    "copy": _copy,
    "cumprod": cumulative.cumprod,
    "cumsum": cumulative.cumsum,
    "dot": linear_products.dot,
    "flatten": _flatten,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": searching.nonzero,
    "prod": reductions.prod,
    "ptp": reductions.ptp,
    "ravel": manipulation.ravel,
    "reshape": _reshape,
    "round": elementwise_round.round,
    "squeeze": manipulation.squeeze,
    "std": reductions.std,
    "sum": reductions.sum,
    "swapaxes": manipulation.swapaxes,
    "to_device": _to_device,
    "transpose": _transpose,
    "var": reductions.var,
}

PROPERTIES: dict[str, Any] = {
    "T": manipulation.transpose,
    "mT": manipulation.matrix_transpose,
    "at": at_updates.at,
    "flat": manipulation.ravel,
    "imag": elementwise_math.imag,
    "real": elementwise_math.real,
}


def functions() -> dict[str, Any]:
    """The contents of the array namespace."""
    return {
        **_operators.OPERATORS,
        "getitem": _indexing.getitem,
        "methods": METHODS,
        "properties": PROPERTIES,
    }
