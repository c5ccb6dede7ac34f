"""What the rules of ``torch.autograd.Function`` may ask of the context that torch gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


class AutogradContext(Protocol):
    """What torch keeps between ``forward`` and ``backward``; classes add what they keep there."""

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What ``save_for_backward`` was given; an error where it was freed or changed."""
        ...

    def save_for_backward(self, *tensors: torch.Tensor) -> None:
        """Keep inputs or results; torch frees them and notices changes in place."""
        ...

    def set_materialize_grads(self, value: bool, /) -> None:
        """Whether ``backward`` is given zeros, not None, for results without gradients."""
        ...

    def mark_non_differentiable(self, *results: torch.Tensor) -> None:
        """Say which results need no gradient."""
        ...


class CallContext(AutogradContext, Protocol):
    """What an eager call keeps."""

    node: Any
    numbers: Sequence[Any] | None
    late: Sequence[bool]

    def maybe_clear_saved_tensors(self) -> None:
        """Free what is saved, unless the graph is retained."""
        ...


class SlopesContext(AutogradContext, Protocol):
    """What a call in a level of torch.func keeps.

    ``slopes`` are gradients that are there already, or None; ``unread`` the inputs that no
    gradient is computed from, which may change.
    """

    slopes: Sequence[Any] | None
    unread: Sequence[Any]

    @property
    def next_functions(self) -> Sequence[tuple[Any, int]]:
        """The nodes that the gradients go to; None for tensors that want none."""
        ...


class OperatorContext(AutogradContext, Protocol):
    """What a call of the operator in graphs keeps."""

    h: str
    active: Any
    paths: Any
    family: Any
    settings: Any
    recompute: bool
    inputs: tuple[Any, ...]


class LevelContext(AutogradContext, Protocol):
    """What a call in one level of torch.func keeps."""

    here: Any
    call: Any
    settings: Any
