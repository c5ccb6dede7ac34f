"""Torch functions on flat tensors, and those derived from them by autograd and ``torch.func``."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.interop.foreign_functions import FlatFunction, Indices, replaced
from tracebridge.torch._foreign.execute import run_on_arrays, run_on_ndarrays
from tracebridge.torch._foreign.types import runs_on_fakes

Tensors = tuple[torch.Tensor, ...]


class TorchFunction(FlatFunction):
    """A function of torch tensors.

    ``by_autograd`` computes it where autograd may record; ``by_func`` under a ``torch.func.vmap``,
    which does not let autograd begin inside.
    """

    @property
    def name(self) -> str:
        """For messages: what was called with what."""
        return f"call_torch({self.label})"

    @abc.abstractmethod
    def by_autograd(self, *tensors: torch.Tensor) -> Tensors:
        """The results, with a history where the arguments have one."""

    @abc.abstractmethod
    def by_func(self, *tensors: torch.Tensor) -> Tensors:
        """The results, by functions that ``torch.func.vmap`` goes through."""

    @abc.abstractmethod
    def fingerprinted(self) -> Any:
        """What is in fingerprints of programs with this function."""

    # what the engine asks for ------------------------------------------------------------------

    def from_host(self, avals: Sequence[ShapedArray], *operands: Any) -> list[Any]:
        """Call with ndarrays of a running program."""
        return run_on_ndarrays(self.name, self.by_autograd, avals, operands)

    def evaluate(self, avals: Sequence[ShapedArray], arrays: Sequence[Any]) -> list[Any]:
        """Call with Arrays, on their device."""
        return run_on_arrays(self.name, self.by_autograd, avals, arrays)

    def tangents(self, wanted: Indices) -> TorchFunction:
        """Forward mode, by two reverse passes: every operation of torch has these."""
        return Tangents(self, wanted)

    def pullback(self, wanted: Indices) -> TorchFunction:
        """Reverse mode."""
        return Pullback(self, wanted)

    def batched(
        self, dims: tuple[int | None, ...], avals: Sequence[ShapedArray]
    ) -> TorchFunction | None:
        """By ``torch.func.vmap`` where that is possible for all operations."""
        if not self.is_vmappable:
            return None

        def make() -> TorchFunction | None:
            batched = Batched(self, dims)
            return batched if runs_on_fakes(batched.by_autograd, avals) else None

        return self.once(("vmap", dims, tuple(avals)), make)


@final
class Called(TorchFunction):
    """A function of the user. ``vectorized``: whether ``torch.func.vmap`` may be tried.

    ``content``: what the function computes with, besides its arguments.
    """

    def __init__(
        self,
        label: str,
        fun: Callable[..., Tensors],
        n_in: int,
        inexact: tuple[bool, ...],
        *,
        vectorized: bool,
        content: Any,
    ) -> None:
        super().__init__(label, n_in, inexact)
        self._fun = fun
        self._content = content
        self._vectorized = vectorized

    @property
    def is_vmappable(self) -> bool:
        return self._vectorized

    def fingerprinted(self) -> Any:
        return "called", self._content

    def by_autograd(self, *tensors: torch.Tensor) -> Tensors:
        return self._fun(*tensors)

    by_func = by_autograd


class Derived(TorchFunction):
    """A function made of another one, ``of``."""

    def __init__(
        self, of: TorchFunction, wanted: Indices, n_in: int, inexact: tuple[bool, ...], what: str
    ) -> None:
        super().__init__(f"{what} of {of.label}", n_in, inexact)
        self.of = of
        self.wanted = wanted

    @property
    def is_vmappable(self) -> bool:
        return self.of.is_vmappable

    def fingerprinted(self) -> Any:
        return type(self).__name__, self.wanted, self.of

    def at(self, args: Sequence[torch.Tensor]) -> Callable[..., Tensors]:
        """``of`` as a function of the wanted arguments, giving the inexact results."""

        def of_wanted(*values: torch.Tensor) -> Tensors:
            return self.of.inexact_of(self.of.by_func(*replaced(args, self.wanted, values)))

        return of_wanted


@final
class Pullback(Derived):
    """(arguments, cotangents of inexact results) -> cotangents of the wanted arguments.

    torch's gradients are the conjugates of ours.
    """

    def __init__(self, of: TorchFunction, wanted: Indices) -> None:
        n_in = of.n_in + sum(of.inexact)
        super().__init__(of, wanted, n_in, (True,) * len(wanted), "gradient")

    def by_autograd(self, *tensors: torch.Tensor) -> Tensors:
        args, cts = tensors[: self.of.n_in], tensors[self.of.n_in :]
        again = any([t.requires_grad for t in tensors])
        leaves = [_leaf(args[i]) for i in self.wanted]
        outs = self.of.inexact_of(self.of.by_autograd(*replaced(args, self.wanted, leaves)))
        return _gradients(outs, leaves, [_conj(c) for c in cts], again=again, conj=True)

    def by_func(self, *tensors: torch.Tensor) -> Tensors:
        args, cts = tensors[: self.of.n_in], tensors[self.of.n_in :]
        outs, pull = _vjp(self.at(args), [args[i] for i in self.wanted])
        grads = pull(tuple([_conj(c).to(y.dtype) for c, y in zip(cts, outs, strict=True)]))
        return tuple([_conj(g) for g in grads])


@final
class Tangents(Derived):
    """(arguments, tangents of the wanted ones) -> tangents of the inexact results.

    Forward mode of torch drops tangents silently where an operator has no rule for it, so this
    differentiates the pullback, which is linear in its cotangents.
    """

    def __init__(self, of: TorchFunction, wanted: Indices) -> None:
        n_in, n_out = of.n_in + len(wanted), sum(of.inexact)
        super().__init__(of, wanted, n_in, (True,) * n_out, "tangents")

    def by_autograd(self, *tensors: torch.Tensor) -> Tensors:
        args, tangents = tensors[: self.of.n_in], tensors[self.of.n_in :]
        again = any([t.requires_grad for t in tensors])
        leaves = [_leaf(args[i]) for i in self.wanted]
        outs = self.of.inexact_of(self.of.by_autograd(*replaced(args, self.wanted, leaves)))
        weights = [torch.zeros_like(y).detach().requires_grad_() for y in outs]
        grads = _gradients(outs, leaves, weights, again=True, conj=False)
        if any([y.requires_grad for y in outs]) and not any([g.requires_grad for g in grads]):
            msg = f"{self.name}: a backward function inside cannot be differentiated"
            hint = "forward mode and second derivatives need one made of torch's operations"
            raise CallbackError(msg, hint=hint)
        return _gradients(grads, weights, tangents, again=again, conj=False)

    def by_func(self, *tensors: torch.Tensor) -> Tensors:
        args, tangents = tensors[: self.of.n_in], tensors[self.of.n_in :]
        outs, pull = _vjp(self.at(args), [args[i] for i in self.wanted])
        _, push = _vjp(lambda *w: pull(w), [torch.zeros_like(y) for y in outs])
        return push(tuple(tangents))


@final
class Batched(Derived):
    """``of`` with a further axis at ``dims`` of the arguments, in front of every result."""

    def __init__(self, of: TorchFunction, dims: tuple[int | None, ...]) -> None:
        super().__init__(of, (), of.n_in, of.inexact, "vmap")
        self._dims = dims
        self._mapped: Any = torch.func.vmap(of.by_func, in_dims=dims)

    def fingerprinted(self) -> Any:
        return "batched", self._dims, self.of

    def by_autograd(self, *tensors: torch.Tensor) -> Tensors:
        return self._mapped(*tensors)

    by_func = by_autograd


def _leaf(x: torch.Tensor) -> torch.Tensor:
    """``x`` as something to differentiate by here, whatever depends on it elsewhere."""
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


def _vjp(f: Callable[..., Any], args: Sequence[torch.Tensor]) -> tuple[Tensors, Any]:
    found: Any = torch.func.vjp(f, *args)  # a third one only with has_aux
    return found


def _conj(x: torch.Tensor) -> torch.Tensor:
    return torch.conj_physical(x) if x.is_complex() else x


def _gradients(
    outs: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    cts: Sequence[torch.Tensor],
    *,
    again: bool,
    conj: bool,
) -> Tensors:
    """Gradients by ``leaves``, zeros where nothing depends on them; ``again`` keeps a history."""
    live = [(y, c.to(y.dtype)) for y, c in zip(outs, cts, strict=True) if y.requires_grad]
    if not live:
        return tuple([torch.zeros_like(x) for x in leaves])
    grads = torch.autograd.grad(
        [y for y, _ in live],
        leaves,
        [c for _, c in live],
        create_graph=again,
        allow_unused=True,
        materialize_grads=True,
    )
    return tuple([_conj(g) for g in grads]) if conj else tuple(grads)
