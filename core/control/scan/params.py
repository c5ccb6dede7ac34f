"""What the rules of scan share: parameters of derived scans, arguments in their groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tracebridge.core.ir.jaxpr import Jaxpr

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params


T = TypeVar("T")


def derived(params: Params, jaxpr: Jaxpr, num_consts: int, num_carry: int) -> dict[str, Any]:
    """The parameters of a scan of the same length and direction with another body."""
    return {**params, "jaxpr": jaxpr, "num_consts": num_consts, "num_carry": num_carry}


def groups(params: Params, args: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
    """Consts, initial carries, xs."""
    n_consts = params["num_consts"]
    fixed = n_consts + params["num_carry"]
    return args[:n_consts], args[n_consts:fixed], args[fixed:]


def chosen(flags: Sequence[bool], xs: Sequence[T]) -> list[T]:
    """The elements whose flag is set."""
    return [x for x, flag in zip(xs, flags, strict=True) if flag]
