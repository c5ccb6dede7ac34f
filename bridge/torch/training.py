"""``train_step``: forward pass, loss, backward pass and update as one compiled program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.tree.tree import flatten
from tracebridge.torch._graphs.dtensors import works_with_others
from tracebridge.torch._training.losses import is_of_torch, translated
from tracebridge.torch._training.models import MOST_PROGRAMS, is_plain, model_of
from tracebridge.torch._training.optimizers import Flags, Update, update_of
from tracebridge.torch._training.program import Form, Outcome, StepProgram
from tracebridge.torch._training.state import NewCounters, Numbers, Slot, count
from tracebridge.torch._training.writing import OF_BUFFERS, OF_STATES, write
from tracebridge.torch.wrapping import Wrapped, wrap


def train_step(
    module: Any,
    loss: Callable[..., Any],
    optimizer: Any,
    *,
    has_aux: bool = False,
) -> TrainStep:
    """A step of training as one compiled program: ``step(*inputs, target)``.

    A call computes ``outputs = module(*inputs)``, ``loss(outputs, target)``, the gradients of the
    parameters that the optimizer has, and the update, in one program of XLA; parameters and the
    optimizer's state are written in place. What the optimizer keeps stays its own: its
    ``state_dict``, its parameter groups and learning rate schedulers work as with
    ``optimizer.step()``, and both ways of stepping can be mixed.

    SGD, Adam and AdamW are part of the program. For other optimizers the program gives the
    gradients and torch makes the update; LBFGS runs it as often as it asks for the loss. Gradients
    do not appear in ``.grad``: ``step.backward(*inputs, target)`` adds them there and updates
    nothing, to accumulate or to clip them before ``optimizer.step()``. Parameters that the loss
    does not depend on are left alone, as torch does without a gradient.

    Args:
        module: a ``Module``, an ``nn.Module`` that ``from_module`` can translate, or a model of
            ``from_module``. Translated modules run in the mode they are in (``module.train()``);
            buffers are written too, and random numbers depend on ``torch.manual_seed``.
        loss: function of the outputs and the target with a result without axes: made of
            tracebridge operations, or one of torch such as ``torch.nn.CrossEntropyLoss()``.
        optimizer: a torch optimizer over parameters of the module.
        has_aux: whether ``loss`` returns ``(loss, aux)``, and the step too.

    Attributes of modules that are not torch's own are read when their program is made; Python
    numbers and strings among the inputs of an ``nn.Module`` have a program for each value.

    Returns:
        A function that takes tensors, arrays, numbers and trees of them, the target last, and
        gives the loss before the update as a tensor without history.

    Raises:
        ArgumentSpecError: an argument is not as described, the optimizer has parameters that
            require gradients and are not of the module, or processes share the module's work.

    >>> import torch
    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.torch import Module, train_step
    >>> model = Module(lambda p, x: x @ p["w"], {"w": tnp.zeros(2)})
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    >>> step = train_step(model, lambda out, y: tnp.mean((out - y) ** 2), optimizer)
    >>> step(torch.eye(2), torch.ones(2))
    tensor(1.)
    >>> model.w
    Parameter containing:
    tensor([0.5000, 0.5000], requires_grad=True)
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        msg = f"train_step: optimizer is of type {type(optimizer).__name__}"
        raise ArgumentSpecError(msg, expected="a torch.optim.Optimizer")
    if not callable(loss):
        msg = f"train_step: loss is {loss!r} of type {type(loss).__name__}"
        raise ArgumentSpecError(msg, expected="a function of outputs and target")
    if isinstance(module, torch.nn.Module) and works_with_others(module):
        msg = f"train_step: {type(module).__name__} averages its gradients over processes"
        raise ArgumentSpecError(
            msg, hint="use the plain loop: loss(module(x), y).backward(), optimizer.step()"
        )
    return TrainStep(module, loss, optimizer, has_aux=has_aux)


@final
class TrainStep:
    """What ``train_step`` returns."""

    def __init__(
        self, module: Any, loss: Callable[..., Any], optimizer: Any, *, has_aux: bool
    ) -> None:
        self._given = module, loss, optimizer, has_aux
        model = self._model = model_of(module)
        self._loss = translated(loss) if is_of_torch(loss) else loss
        self._optimizer = optimizer
        self._takes_closure = _takes_closure(optimizer)
        self._has_aux = has_aux
        self._slots: dict[int, Slot] = {}
        self._layout: list[tuple[int, ...]] = []
        self._programs: dict[Any, Wrapped] = {}
        self._find_slots(model.tensors())

    def __repr__(self) -> str:
        kind = type(self._optimizer).__name__
        return f"<train step of {self._model.name} by {kind}>"

    def __reduce__(self) -> Any:
        """Copies and pickles train a copy of the module, by a copy of the optimizer."""
        return _again, self._given

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            # What is kept must be of use outside of inference mode, as the parameters are.
            with torch.inference_mode(False), torch.no_grad():
                return self._result(self._step(args, kwargs))
        except Exception as error:
            hide_internal_frames(error)
            raise

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Add the gradients to ``.grad``, as ``loss.backward()`` does, and update nothing.

        For gradients that are accumulated over several calls, clipped or looked at before
        ``optimizer.step()``: one program for forward and backward pass. Gradients are those of the
        optimizer's parameters; hooks on them do not run. Buffers of the module are written.

        Args:
            *args: the inputs and the target, as in a step.
            **kwargs: further inputs, likewise.

        Returns:
            What a step gives: the loss, or ``(loss, aux)``.

        >>> import torch
        >>> from tracebridge.torch import train_step
        >>> net = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        >>> step = train_step(net, torch.nn.MSELoss(), optimizer)
        >>> for x, y in ((torch.eye(2), torch.ones(2, 1)), (torch.ones(1, 2), torch.ones(1, 1))):
        ...     loss = step.backward(x, y)
        >>> norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        >>> optimizer.step()
        """
        try:
            with torch.inference_mode(False), torch.no_grad():
                slots, _, outcome = self._run(args, kwargs, None)
                for slot, grad in zip(slots, outcome.parameters, strict=True):
                    if grad is None:
                        continue
                    if slot.parameter.grad is None:
                        slot.parameter.grad = grad
                    else:
                        slot.parameter.grad.add_(grad)
                return self._result(outcome)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def _result(self, outcome: Outcome) -> Any:
        return (outcome.loss, outcome.aux) if self._has_aux else outcome.loss

    def _find_slots(self, tensors: Sequence[torch.Tensor]) -> None:
        """One slot for each parameter of the optimizer, if its groups have changed."""
        groups = self._optimizer.param_groups
        layout = [(id(group), *map(id, group["params"])) for group in groups]
        if layout == self._layout:
            return
        known = {id(p): Slot(p, i) for i, group in enumerate(groups) for p in group["params"]}
        own = {id(x) for x in tensors}
        strange = [s for i, s in known.items() if i not in own and s.parameter.requires_grad]
        if strange:
            msg = (
                f"train_step: the optimizer has a parameter of shape "
                f"{tuple(strange[0].parameter.shape)} that {self._model.name} does not have"
            )
            raise ArgumentSpecError(msg, hint="give it the parameters of this module only")
        self._slots, self._layout = known, layout

    def _step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        optimizer = self._optimizer
        update = update_of(optimizer)
        if update is None:
            return self._let_torch_update(lambda: self._run(args, kwargs, None))
        # They may change hyperparameters of this very step.
        _call_hooks(optimizer, optimizer._optimizer_step_pre_hooks)
        slots, flags, outcome = self._run(args, kwargs, update)
        self._write(slots, update, flags, outcome)
        return outcome

    def _run(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], update: Update | None
    ) -> tuple[list[Slot], tuple[Flags, ...], Outcome]:
        """Run the program and write the buffers; without an update it gives gradients."""
        if not args:
            msg = "train_step: a step got no target"
            raise ArgumentSpecError(msg, expected="step(*inputs, target)")
        optimizer, model = self._optimizer, self._model
        tensors = model.tensors()
        self._find_slots(tensors)
        trained, flat, slots = self._parts(tensors)
        device = flat[0].device if flat else "cpu"
        inputs, kwargs = model.given(args[:-1], kwargs)
        leaves, tree = flatten(((inputs, kwargs), args[-1]))
        statics: tuple[tuple[int, type, Any], ...] = ()
        if model.bakes_numbers:
            n_inputs = len(flatten((inputs, kwargs))[0])
            statics = tuple(
                [(i, type(x), x) for i, x in enumerate(leaves[:n_inputs]) if is_plain(x)]
            )
            for i, _, _ in reversed(statics):
                del leaves[i]
        flags: tuple[Flags, ...] = ()
        rows: tuple[int, ...] = ()
        if update is not None:
            groups = optimizer.param_groups
            of_groups = [update.flags(group) for group in groups]
            flags = tuple([of_groups[slot.group] for slot in slots])
            numbers = Numbers(any([x.dtype == torch.float64 for x in flat]))
            for slot, form in zip(slots, flags, strict=True):
                flat += slot.read(optimizer.state, update.names(form))
                numbers.add(update, slot, groups[slot.group])
            rows = tuple(numbers.places)
            flat.append(numbers.tensor().to(device))
        context = _context()
        mode, draws = model.mode(inputs, kwargs, context)
        if draws:
            key = torch.randint(-(2**31), 2**31, (2,), dtype=torch.int64).to(torch.uint32)
            flat.append(key.to(device))
        form = Form(tree, context, statics, trained, len(tensors), mode, draws, flags, rows)
        outcome = Outcome(*self._program(form, update)(*flat, *leaves))
        if outcome.buffers:
            write([(tensors[i], new) for i, new in outcome.buffers.items()], OF_BUFFERS)
        return slots, flags, outcome

    def _parts(
        self, tensors: Sequence[torch.Tensor]
    ) -> tuple[tuple[int, ...], list[torch.Tensor], list[Slot]]:
        """Which tensors are trained; these before the others; and their slots."""
        found = [self._slots.get(id(x)) if x.requires_grad else None for x in tensors]
        trained = tuple([i for i, slot in enumerate(found) if slot is not None])
        flat = [tensors[i] for i in trained]
        flat += [x for x, slot in zip(tensors, found, strict=True) if slot is None]
        return trained, flat, [slot for slot in found if slot is not None]

    def _program(self, form: Form, update: Update | None) -> Wrapped:
        key = (form, type(update))
        found = self._programs.get(key)
        if found is None:
            program = StepProgram(self._model, self._loss, form, update, self._has_aux)
            if len(self._programs) >= MOST_PROGRAMS:
                del self._programs[next(iter(self._programs))]
            found = self._programs[key] = wrap(program)
        return found

    def _write(
        self, slots: Sequence[Slot], update: Update, flags: Sequence[Flags], outcome: Outcome
    ) -> None:
        """New parameters and states in the place of the old ones."""
        optimizer = self._optimizer
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        counted: list[Slot] = []
        counters = NewCounters(len(slots))
        for slot, form, new, states in zip(
            slots, flags, outcome.parameters, outcome.states, strict=True
        ):
            if new is not None:
                pairs.append((slot.parameter, new))
                slot.replace(optimizer, update, update.names(form), states, pairs, counters)
                counted.append(slot)
        write(pairs, OF_STATES)
        if update.counts and counted:
            count(counted)
        # Schedulers look whether the optimizer stepped before them.
        optimizer._opt_called = True
        _call_hooks(optimizer, optimizer._optimizer_step_post_hooks)

    def _let_torch_update(
        self, run: Callable[[], tuple[list[Slot], tuple[Flags, ...], Outcome]]
    ) -> Outcome:
        """``optimizer.step()`` with gradients of ``run``; those of the user come back."""
        outcomes: list[Outcome] = []
        before: dict[int, tuple[torch.Tensor, Any]] = {}

        def closure() -> torch.Tensor:
            with torch.no_grad():
                slots, _, outcome = run()
            for slot, grad in zip(slots, outcome.parameters, strict=True):
                before.setdefault(id(slot), (slot.parameter, slot.parameter.grad))
                slot.parameter.grad = grad
            outcomes.append(outcome)
            return outcome.loss

        try:
            if self._takes_closure:
                self._optimizer.step(closure)
            else:
                closure()
                self._optimizer.step()
        finally:
            for parameter, grad in before.values():
                parameter.grad = grad
        return outcomes[0]


def _takes_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step cannot be made without a function that computes the loss again."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


def _again(module: Any, loss: Callable[..., Any], optimizer: Any, has_aux: bool) -> TrainStep:
    return TrainStep(module, loss, optimizer, has_aux=has_aux)


def _context() -> Any:
    """The settings of torch that translations of modules and losses depend on."""
    cast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    return cast, torch.get_default_dtype()


def _call_hooks(optimizer: Any, hooks: dict[int, Callable[..., Any]]) -> None:
    for hook in list(hooks.values()):
        hook(optimizer, (), {})
