"""What a framework's adapter offers: tensors in, tensors out."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.runtime.arrays.array import Array


class TensorAdapter(abc.ABC):
    """Exchange with one framework. Adapters have no state: there is one instance of each class."""

    name: ClassVar[str]
    """What messages call the framework."""

    @abc.abstractmethod
    def accepts(self, cls: type) -> bool:
        """Whether instances of ``cls`` are tensors of the framework."""

    @abc.abstractmethod
    def import_(self, x: object, *, device: object = None, copy: bool | None = None) -> Array:
        """An Array of the tensor ``x``, with its shape and dtype.

        ``copy``: None shares the memory where it can be shared, False raises where it cannot,
        True gives the Array memory of its own. ``device``: a device or sharding to put it on.
        """

    @abc.abstractmethod
    def export(self, array: Array, *, copy: bool | None = None) -> Any:
        """A tensor of the framework with the elements of ``array``; ``copy`` as in ``import_``."""


def refuse_to_freeze(what: str, constant: str) -> None:
    """Raise inside a transformed function, for a tensor that wants gradients.

    It would become a constant: no gradient would reach it, and a compiled program would not see
    later values. ``constant`` says how to make one on purpose.

    Raises:
        ExchangeError: an operation is being traced.
    """
    if is_eager():
        return
    msg = (
        f"{what}, which a function closes over, would become a constant of the traced function: "
        "it would get no gradient, and a compiled program would keep its present values"
    )
    raise ExchangeError(
        msg,
        expected="tensors that want gradients as arguments",
        hint=f"pass it as an argument of the function; if you want a constant: {constant}",
    )
