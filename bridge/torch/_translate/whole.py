"""Functions of torch that look at values where no result depends on what they see.

Torch refuses to export them. Where their shapes are known only with values, an operator of our
own, which promises shapes and has no kernel, stands in their place in the graphs that are made
here, and is translated like those of torch. Where they look at values to complain about them, the
same formula is written without the complaint.
"""

from __future__ import annotations

import itertools
import math
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


def _cov(
    x: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    rows = x if x.ndim == 2 else x.reshape(1, -1)
    if not (rows.is_floating_point() or rows.is_complex()):
        rows = rows.to(torch.get_default_dtype())
    if fweights is None or aweights is None:
        weights = aweights if fweights is None else fweights
    else:
        weights = fweights * aweights
    if weights is None:
        total: Any = rows.new_full((), rows.shape[1], dtype=rows.dtype.to_real())
        weighted = rows
    else:
        total, weighted = weights.sum(), rows * weights
    centred = rows - weighted.sum(1, keepdim=True) / total
    lost: Any = correction
    if aweights is not None and weights is not None and correction:
        lost = correction * (weights * aweights).sum() / total
    scale = (total - lost).clamp_min(0)
    other = centred if weights is None else centred * weights
    return ((centred @ other.mH) / scale).squeeze()


def _corrcoef(x: torch.Tensor) -> torch.Tensor:
    cov = _cov(x)
    if cov.ndim == 0:
        return cov / cov
    spread = torch.diagonal(cov).real.sqrt() if cov.is_complex() else torch.diagonal(cov).sqrt()
    ratios = cov / spread[:, None] / spread[None]
    if not ratios.is_complex():
        return ratios.clamp(-1, 1)
    return torch.complex(ratios.real.clamp(-1, 1), ratios.imag.clamp(-1, 1))


def _combinations(x: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    size: Any = x.shape[0]
    if not isinstance(size, int):  # a size that varies: torch says what it thinks of that
        return torch.combinations(x, r, with_replacement)
    if r == 0:
        return x.new_empty(0)
    chosen = (
        itertools.combinations_with_replacement if with_replacement else itertools.combinations
    )(range(size), r)
    indices = torch.tensor(list(chosen), dtype=torch.int64).reshape(-1, r)
    return x[indices]


def _gaussian_nll_loss(
    x: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    if not isinstance(var, torch.Tensor) or reduction not in {"none", "mean", "sum"}:
        # No value is read for a number; other reductions are torch's to refuse.
        return torch.nn.functional.gaussian_nll_loss(x, target, var, full, eps, reduction)
    if var.shape != x.shape:
        if var.shape == x.shape[:-1]:
            var = var[..., None]
        elif var.ndim != x.ndim or var.shape[:-1] != x.shape[:-1] or var.shape[-1] != 1:
            msg = "var is of incorrect size"
            raise ValueError(msg)
    # Torch's gradient takes the bound for no bound: (var - var.detach()) keeps it.
    var = torch.where(var.detach() < eps, (var - var.detach()) + eps, var)
    loss = 0.5 * (torch.log(var) + (x - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


_INSTEAD: Final[Mapping[Any, Callable[..., Any]]] = {
    torch.ctc_loss: _ctc_loss,
    torch.nn.functional.ctc_loss: _ctc_loss,
    torch.linalg.lstsq: _lstsq,
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef,
    torch.combinations: _combinations,
    torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
}


@final
class KeptWhole(TorchFunctionMode):
    """A block in which torch exports these functions."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        del types
        return _INSTEAD.get(func, func)(*args, **(kwargs or {}))
