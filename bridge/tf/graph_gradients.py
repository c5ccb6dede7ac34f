"""Gradients of operations in graphs: residuals become their results when somebody asks.

A graph is written before anybody asks for a gradient: by a tape in the function, by one outside of
it, or by the gradient of a loop or a branch. TensorFlow gives its own loops and functions further
results then. So do we: what wants no gradient runs what it ran before. Loaded models have no such
form, see ``pullbacks``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import tensorflow as tf

from tracebridge.core.errors.filtering import api_boundary
from tracebridge.tf._xla_call_module import CAN_REPLACE
from tracebridge.tf.keeping import Kept
from tracebridge.tf.loops import XlaModule
from tracebridge.tf.program import Program

Pull = Callable[[Program, Kept, list[Any], list[Any], list[Any]], list[Any]]
"""Runs the gradients of a kept program, at inputs, results with residuals, and cotangents."""

_Graph: Any = getattr(tf.__internal__, "FuncGraph", None)
_LOCK = threading.Lock()
"""For what changes a graph."""


class _Found(NamedTuple):
    """Gradients by some inputs, and what they read in the graph: results and residuals."""

    kept: Kept
    outs: list[Any]


@final
class GraphGradient:
    """The gradients of a program whose operation has the results ``outs`` in a graph.

    ``of_all`` gives those by all inputs from the inputs alone, where there are no residuals.
    """

    __slots__ = ("_found", "_inputs", "_of_all", "_outs", "_program", "_pull")

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Any],
        outs: Sequence[Any],
        of_all: Callable[..., list[Any]],
        pull: Pull,
    ) -> None:
        self._program = program
        self._inputs = inputs
        self._outs = outs
        self._of_all = of_all
        self._pull = pull
        self._found: _Found | None = None

    def attach(self, operation: Any) -> None:
        """Be the gradient of ``operation``, which passes the results and the inputs on.

        TensorFlow saves the one that is registered, which knows the graph alone.
        """
        if hasattr(operation, "_gradient_function"):
            operation._gradient_function = self

    def __call__(self, operation: Any, *cotangents: Any) -> list[Any]:
        """Cotangents of what ``operation`` takes: none of the results."""
        n = len(self._outs)
        given = cotangents[:n]
        found = None
        # In its own graph the gradient is that of tf.gradients, of a graph that may run already.
        if operation.graph is not tf.compat.v1.get_default_graph():
            found = self._reading(tuple(self._program.diff_in))
        return [*[None] * n, *(self._of_all(*given) if found is None else self._read(found, given))]

    def by(self, active: tuple[int, ...]) -> Callable[..., list[Any]]:
        """The gradient by the inputs ``active`` alone, for tapes."""

        @api_boundary
        def gradient(*cotangents: Any) -> list[Any]:
            found = self._reading(active)
            return self._of_all(*cotangents) if found is None else self._read(found, cotangents)

        return gradient

    def _read(self, found: _Found, cotangents: Sequence[Any]) -> list[Any]:
        """Gradients by all inputs, None where they are not computed."""
        kept = found.kept
        by_result = [
            tf.zeros_like(found.outs[i])
            if cotangents[i] is None
            else tf.convert_to_tensor(cotangents[i])
            for i in kept.cotangents
        ]
        # In this graph: gradients of higher order refer to tensors of their own graph. What is not
        # read stays where it is: loops keep all that comes in here.
        read = {*kept.results, *range(len(self._outs), len(found.outs))}
        inputs = [tf.identity(x) for x in self._inputs]
        outs = [tf.identity(x) if i in read else x for i, x in enumerate(found.outs)]
        pulled = self._pull(self._program, kept, inputs, outs, by_result)
        return self._program.by_input(dict(zip(kept.active, pulled, strict=True)))

    def _reading(self, active: tuple[int, ...]) -> _Found | None:
        """What gives gradients by the inputs ``active`` at least: residuals are there after it."""
        if self._found is None:
            kept = self._program.keeping(active)
            module = self._program.module
            with _LOCK:
                if self._found is None and kept is not None:
                    self._found = self._with_residuals(kept, module)
        found = self._found
        return found if found is not None and {*active} <= {*found.kept.active} else None

    def _with_residuals(self, kept: Kept, module: Any) -> _Found | None:
        found: list[Any] | None = list(self._outs)
        if kept.n_residuals:
            can = isinstance(module, XlaModule)
            found = module.replaced(self._outs, kept.forward) if can else None
        if found is None:
            return None
        with self._outs[0].graph.as_default():
            # What the gradient reads becomes a result of the function, which is differentiated
            # with it: derivatives of gradients go through the inputs alone.
            return _Found(kept, [tf.stop_gradient(x) for x in found])


def waits(program: Program) -> bool:
    """Whether an operation in the graph that is built gets its residuals when somebody asks.

    A tape that watches says little: one outside of a function, a loop or a branch sees what they
    capture, and never asks for a gradient in there.
    """
    here = tf.compat.v1.get_default_graph()
    is_function = _Graph is not None and isinstance(here, _Graph)
    return CAN_REPLACE and is_function and isinstance(program.module, XlaModule)
