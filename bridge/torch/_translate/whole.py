"""Functions of torch whose shapes torch knows only with values, kept whole in exported graphs.

Torch refuses to export them. In the graphs that are made here an operator of our own, which
promises shapes and has no kernel, stands in their place, and is translated like those of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import torch
from torch.overrides import TorchFunctionMode

_library = torch.library.Library("tracebridge_whole", "DEF")
_library.define(
    "ctc_losses(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
    "int blank, bool zero_infinity) -> Tensor"
)
_library.define(
    "lstsq(Tensor a, Tensor b, Tensor? rcond, bool is_full) -> (Tensor, Tensor, Tensor, Tensor)"
)
CTC_LOSSES = torch.ops.tracebridge_whole.ctc_losses.default
LSTSQ = torch.ops.tracebridge_whole.lstsq.default


def _ctc_shapes(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int,
    zero_infinity: bool,
) -> torch.Tensor:
    del targets, input_lengths, target_lengths, blank, zero_infinity
    return log_probs.new_empty(log_probs.shape[1:-1])


def is_vector(a: Any, b: Any) -> bool:
    """Whether right-hand sides of ``a @ x = b`` are vectors, as torch tells them."""
    return b.ndim == 1 or (a.ndim - 1 == b.ndim and tuple(b.shape) == tuple(a.shape[:-1]))


def _lstsq_shapes(
    a: torch.Tensor, b: torch.Tensor, rcond: torch.Tensor | None, is_full: bool
) -> tuple[torch.Tensor, ...]:
    del rcond
    m, n = a.shape[-2:]
    columns = () if is_vector(a, b) else (b.shape[-1],)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[: b.ndim - 1 - len(columns)])
    left = (*batch, *(columns or (1,))) if m > n else (0,)
    return (
        a.new_empty((*batch, n, *columns)),
        a.new_empty(left, dtype=a.dtype.to_real()),
        a.new_empty(batch, dtype=torch.int64),
        a.new_empty((*batch, min(m, n)), dtype=a.dtype.to_real()),
    )


for _name, _shapes in (("ctc_losses", _ctc_shapes), ("lstsq", _lstsq_shapes)):
    torch.library.register_fake(f"tracebridge_whole::{_name}", _shapes, lib=_library)


def _lengths(given: Any) -> torch.Tensor:
    return given if isinstance(given, torch.Tensor) else torch.tensor(given)


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor | Sequence[int],
    target_lengths: torch.Tensor | Sequence[int],
    blank: int = 0,
    reduction: int | str = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    lengths = _lengths(target_lengths)
    losses = CTC_LOSSES(log_probs, targets, _lengths(input_lengths), lengths, blank, zero_infinity)
    if reduction in {1, "mean"}:
        return (losses / lengths.clamp_min(1).to(losses.dtype)).mean()
    return losses.sum() if reduction in {2, "sum"} else losses


def _lstsq(
    a: torch.Tensor, b: torch.Tensor, rcond: Any = None, *, driver: str | None = None
) -> Any:
    given = torch.tensor(rcond) if isinstance(rcond, float) else rcond
    x, residuals, rank, values = LSTSQ(a, b, given, driver == "gels")
    if driver == "gels":  # which takes the rank for full
        rank = rank.new_empty(0)
    if driver not in {"gelss", "gelsd"}:
        values = values.new_empty(0)
    if driver in {None, "gelsy"}:
        residuals = residuals.new_empty(0)
    return torch.return_types.linalg_lstsq((x, residuals, rank, values))  # pyright: ignore[reportAttributeAccessIssue] - made by torch while it starts


_INSTEAD: Final[Mapping[Any, Callable[..., Any]]] = {
    torch.ctc_loss: _ctc_loss,
    torch.nn.functional.ctc_loss: _ctc_loss,
    torch.linalg.lstsq: _lstsq,
}


@final
class KeptWhole(TorchFunctionMode):
    """A block in which torch exports these functions."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        del types
        return _INSTEAD.get(func, func)(*args, **(kwargs or {}))
