"""The updates of torch's optimizers in operations of ours, to be part of a compiled step.

The state stays where torch keeps it, under the same names. Numbers that change from step to step
(learning rates, corrections of Adam) are computed here in double precision, as torch does, and
enter the program as data.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

import torch

import tracebridge.core.lax as lax

Group = Mapping[str, Any]
Flags = tuple[bool, ...]


class Update(abc.ABC):
    """How an optimizer of one class updates a parameter."""

    # Whether torch counts the steps of each parameter.
    counts: ClassVar[bool]

    @abc.abstractmethod
    def flags(self, group: Group) -> Flags:
        """What decides the form of the update."""

    @abc.abstractmethod
    def names(self, flags: Flags) -> tuple[str, ...]:
        """The tensors of the state, each like the parameter and zeros at first."""

    @abc.abstractmethod
    def numbers(self, group: Group, step: int, *, fresh: bool) -> list[float]:
        """What ``update`` gets as ``n``; ``step`` counts from 1, ``fresh``: there is no state."""

    @abc.abstractmethod
    def update(
        self, flags: Flags, p: Any, g: Any, state: Sequence[Any], n: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        """The new parameter and the new state, from a parameter and its gradient."""


@final
class Sgd(Update):
    """torch.optim.SGD, with momentum, dampening, Nesterov's form and weight decay."""

    counts = False

    def flags(self, group: Group) -> Flags:
        decays, has_momentum = group["weight_decay"] != 0, group["momentum"] != 0
        return decays, has_momentum, bool(group["nesterov"]), bool(group["maximize"])

    def names(self, flags: Flags) -> tuple[str, ...]:
        return ("momentum_buffer",) if flags[1] else ()

    def numbers(self, group: Group, step: int, *, fresh: bool) -> list[float]:
        # A buffer that is not there yet becomes the gradient itself.
        share = 1.0 if fresh else 1.0 - float(group["dampening"])
        return [
            float(group["lr"]), float(group["weight_decay"]), float(group["momentum"]), share,
        ]  # fmt: skip

    def update(
        self, flags: Flags, p: Any, g: Any, state: Sequence[Any], n: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        decays, has_momentum, nesterov, maximize = flags
        lr, decay, momentum, share = n
        g = lax.neg(g) if maximize else g
        g = g + p * decay if decays else g
        kept: list[Any] = []
        if has_momentum:
            buffer = state[0] * momentum + g * share
            kept = [buffer]
            g = g + buffer * momentum if nesterov else buffer
        return p - g * lr, kept


@final
class Adam(Update):
    """torch.optim.Adam and AdamW, with and without amsgrad."""

    counts = True

    def flags(self, group: Group) -> Flags:
        decays = group["weight_decay"] != 0
        decoupled = bool(group["decoupled_weight_decay"])
        return decays, decoupled, bool(group["amsgrad"]), bool(group["maximize"])

    def names(self, flags: Flags) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if flags[2] else ()))

    def numbers(self, group: Group, step: int, *, fresh: bool) -> list[float]:
        lr, decay = float(group["lr"]), float(group["weight_decay"])
        beta1, beta2 = [float(b) for b in group["betas"]]
        size = lr / (1 - beta1**step)
        root = (1 - beta2**step) ** 0.5
        decoupled = group["decoupled_weight_decay"]
        kept = 1 - lr * decay if decoupled else decay
        return [kept, 1 - beta1, beta2, 1 - beta2, size, root, float(group["eps"])]

    def update(
        self, flags: Flags, p: Any, g: Any, state: Sequence[Any], n: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        decays, decoupled, amsgrad, maximize = flags
        decay, new1, old2, new2, size, root, eps = n
        g = lax.neg(g) if maximize else g
        if decays:
            if decoupled:
                p = p * decay
            else:
                g = g + p * decay
        mean = state[0] + (g - state[0]) * new1
        square = state[1] * old2 + g * g * new2
        kept = [mean, square]
        largest = square
        if amsgrad:
            largest = lax.max(state[2], square)
            kept.append(largest)
        return p - size * mean / (lax.sqrt(largest) / root + eps), kept


_UPDATES: dict[type, Update] = {
    torch.optim.SGD: Sgd(),
    torch.optim.Adam: Adam(),
    torch.optim.AdamW: Adam(),
}


def update_of(optimizer: torch.optim.Optimizer) -> Update | None:
    """The update of an optimizer as part of a program; None: torch has to do it."""
    update = _UPDATES.get(type(optimizer))
    for group in optimizer.param_groups:
        if group.get("differentiable") or group.get("capturable"):
            return None
        if any([p.is_complex() for p in group["params"]]):
            return None
    return update
