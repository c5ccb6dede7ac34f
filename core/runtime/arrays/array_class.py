"""What the class of arrays is beside its buffers: for ``isinstance`` and for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.ir.late_attributes import present
from tracebridge.core.ir.operators import ArrayOperators

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core.runtime.arrays.array import Array


class ArrayMeta(type):
    """Lets tracers pass ``isinstance(x, tracebridge.Array)``, as code for arrays expects."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, ArrayOperators)

    def __dir__(cls) -> list[str]:
        return present(cls, type.__dir__(cls))


class ArrayMethods:
    """What ``tracebridge.numpy`` adds to arrays when it is loaded, for type checkers."""

    __slots__ = ()
    if TYPE_CHECKING:
        T: Array
        mT: Array  # noqa: N815 - NumPy's name
        real: Array
        imag: Array
        at: Any  # its items are objects of a private class
        all: Callable[..., Array]
        any: Callable[..., Array]
        argmax: Callable[..., Array]
        argmin: Callable[..., Array]
        argpartition: Callable[..., Array]
        argsort: Callable[..., Array]
        astype: Callable[..., Array]
        choose: Callable[..., Array]
        clip: Callable[..., Array]
        compress: Callable[..., Array]
        conj: Callable[..., Array]
        conjugate: Callable[..., Array]
        copy: Callable[..., Array]
        cumprod: Callable[..., Array]
        cumsum: Callable[..., Array]
        diagonal: Callable[..., Array]
        dot: Callable[..., Array]
        flatten: Callable[..., Array]
        max: Callable[..., Array]
        mean: Callable[..., Array]
        min: Callable[..., Array]
        prod: Callable[..., Array]
        ptp: Callable[..., Array]
        ravel: Callable[..., Array]
        repeat: Callable[..., Array]
        reshape: Callable[..., Array]
        round: Callable[..., Array]
        searchsorted: Callable[..., Array]
        sort: Callable[..., Array]
        squeeze: Callable[..., Array]
        std: Callable[..., Array]
        sum: Callable[..., Array]
        swapaxes: Callable[..., Array]
        take: Callable[..., Array]
        trace: Callable[..., Array]
        transpose: Callable[..., Array]
        var: Callable[..., Array]
        view: Callable[..., Array]
        nonzero: Callable[..., tuple[Array, ...]]
