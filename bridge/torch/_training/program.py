"""The program of a step, from flat tensors to flat tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import tracebridge.core.lax as lax
from tracebridge._api.derivatives.grad import value_and_grad
from tracebridge._derived.dependence import paths_of
from tracebridge.core.dtypes.dtypes import float32, float64, is_inexact
from tracebridge.core.errors.transform_errors import GradientTypeError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.random.keys import wrap_key_data
from tracebridge.torch._training.models import Model
from tracebridge.torch._training.optimizers import Flags, Update


class Form(NamedTuple):
    """What decides the program of a step besides the types of its tensors."""

    tree: PyTreeDef  # of ((args, kwargs), target)
    context: Any  # settings of torch
    statics: tuple[tuple[int, type, Any], ...]  # leaves that are not data: place, type, value
    trained: tuple[int, ...]  # positions among the tensors of the model
    n_tensors: int
    mode: Any  # of the model
    draws: bool
    flags: tuple[Flags, ...]  # of the update of each trained tensor
    rows: tuple[int, ...]  # of the numbers of each


class Outcome(NamedTuple):
    """What a step gives. In a program without an update gradients stand for new parameters."""

    loss: Any
    aux: Any
    parameters: list[Any]  # None: the loss does not depend on it
    states: list[Any]
    buffers: dict[int, Any]


@final
class StepProgram:
    """``program(*tensors)`` -> Outcome.

    Takes trained tensors, other tensors of the model, states, numbers, a key if the model draws,
    and the leaves of the arguments.
    """

    def __init__(
        self, model: Model, loss: Callable[..., Any], form: Form, update: Update | None, aux: bool
    ) -> None:
        self.__name__ = f"step of {model.name}"
        self._model = model
        self._loss = loss
        self._form = form
        self._update = update
        self._has_aux = aux

    def __call__(self, *flat: Any) -> Any:
        form, update = self._form, self._update
        values = iter(flat)
        take = lambda n: list(itertools.islice(values, n))  # noqa: E731 (shorter than a def)
        trained = take(len(form.trained))
        others = take(form.n_tensors - len(trained))
        states = [take(len(update.names(f))) for f in form.flags] if update else []
        numbers = take(1)[0] if update else None
        key = wrap_key_data(take(1)[0]) if form.draws else None
        arguments = list(values)

        value, extra, grads = self._gradients(trained, others, key, arguments)
        aux, buffers = extra
        if update is None:
            return tuple(Outcome(value, aux, grads, [], buffers))
        parameters, kept = self._updated(update, trained, grads, states, numbers)
        return tuple(Outcome(value, aux, parameters, kept, buffers))

    def _gradients(
        self, trained: Sequence[Any], others: Sequence[Any], key: Any, arguments: Sequence[Any]
    ) -> tuple[Any, Any, list[Any]]:
        """The loss, further results, and gradients: None where the loss does not depend on it."""
        trees: list[Any] = []

        def losses(*values: Any) -> list[Any]:
            loss, extra = self._run(values, others, key, arguments)
            leaves, tree = flatten(extra)
            trees.append(tree)
            return [loss, *leaves]

        jaxpr = stage(losses, [as_value(x).aval for x in trained])
        reached = paths_of(jaxpr)[0]

        def of_reached(values: list[Any]) -> tuple[Any, list[Any]]:
            values_left = iter(values)
            whole = [next(values_left) if r else x for r, x in zip(reached, trained, strict=True)]
            loss, *leaves = eval_jaxpr(jaxpr, current_trace().process, whole)
            return loss, leaves

        wanted = [x for r, x in zip(reached, trained, strict=True) if r]
        (loss, leaves), grads = value_and_grad(of_reached, has_aux=True)(wanted)
        reached_grads = iter(grads)
        return (
            loss,
            trees[0].unflatten(leaves),
            [next(reached_grads) if r else None for r in reached],
        )

    def _run(
        self, trained: Sequence[Any], others: Sequence[Any], key: Any, arguments: Sequence[Any]
    ) -> tuple[Any, Any]:
        form = self._form
        leaves = list(arguments)
        for place, _, value in form.statics:
            leaves.insert(place, value)
        (args, kwargs), target = form.tree.unflatten(leaves)
        here, there = iter(trained), iter(others)
        is_trained = set(form.trained)
        values = [next(here) if i in is_trained else next(there) for i in range(form.n_tensors)]
        outputs, buffers = self._model.call(form.mode, values, args, kwargs, key)
        result = self._loss(outputs, target)
        aux = None
        if self._has_aux:
            result, aux = result
        loss = as_value(result)
        if loss.aval.shape != () or not is_inexact(loss.aval.dtype):
            msg = f"train_step: the loss {name_of(self._loss)} is of type {loss.aval.str_short()}"
            hint = "return one number, for example tracebridge.numpy.mean of the errors"
            raise GradientTypeError(msg, expected="a float without axes", hint=hint)
        return loss, (aux, buffers)

    def _updated(
        self,
        update: Update,
        trained: Sequence[Any],
        grads: Sequence[Any],
        states: Sequence[Sequence[Any]],
        numbers: Any,
    ) -> tuple[list[Any], list[Any]]:
        form = self._form
        parameters: list[Any] = []
        kept: list[Any] = []
        rows: dict[Any, list[Any]] = {}
        for p, g, state, flags, row in zip(
            trained, grads, states, form.flags, form.rows, strict=True
        ):
            if g is None:
                parameters.append(None)
                kept.append(None)
                continue
            # torch computes the update of narrow parameters in float32 too.
            dtype = float64 if p.dtype == float64 else float32
            if (row, dtype) not in rows:
                n = lax.convert_element_type(lax.index_in_dim(numbers, row, keepdims=False), dtype)
                rows[row, dtype] = [
                    lax.index_in_dim(n, k, keepdims=False) for k in range(n.shape[0])
                ]
            wide = [lax.convert_element_type(x, dtype) for x in (p, g, *state)]
            new, after = update.update(flags, wide[0], wide[1], wide[2:], rows[row, dtype])
            parameters.append(lax.convert_element_type(new, p.dtype))
            kept.append(
                [lax.convert_element_type(x, s.dtype) for x, s in zip(after, state, strict=True)]
            )
        return parameters, kept
