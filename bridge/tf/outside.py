"""Gradients of graphs by tapes outside of them, with residuals of the operation in the graph.

A ``tf.function`` that a tape differentiates runs another form of its graph than without a tape.
TensorFlow makes it when somebody asks for the first gradient, and gives loops and functions in it
further results then. So do we: calls that want no gradient run what they ran before. Loaded models
have no such form.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import tensorflow as tf

from tracebridge.tf.keeping import Kept
from tracebridge.tf.loops import XlaModule
from tracebridge.tf.program import Program

Pull = Callable[[Kept, list[Any], list[Any], list[Any]], list[Any]]
"""Runs the gradients of a kept program, at inputs, results with residuals, and cotangents."""

_Graph: Any = getattr(tf.__internal__, "FuncGraph", None)
_LOCK = threading.Lock()
"""For what changes a graph."""


@final
class Outside:
    """The gradient by all inputs of a program whose operation has the results ``outs`` in a graph.

    ``of_all`` computes the forward pass again, for graphs of other kinds: bodies of loops and
    branches, which TensorFlow may have written already.
    """

    __slots__ = ("_found", "_inputs", "_kept", "_of_all", "_outs", "_program", "_pull")

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
        self._kept: Kept | None = None
        self._found: list[Any] | None = None  # results and residuals in the graph

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
        if not _is_outside(operation.graph) or not self._keeps():
            return [*[None] * n, *self._of_all(*given)]
        kept: Any = self._kept
        outs: Any = self._found
        by_result = [
            tf.zeros_like(outs[i]) if given[i] is None else tf.convert_to_tensor(given[i])
            for i in kept.cotangents
        ]
        # In this graph: gradients of higher order refer to tensors of their own graph.
        inputs, outs = [[tf.identity(x) for x in xs] for xs in (self._inputs, outs)]
        grads = dict(zip(kept.active, self._pull(kept, inputs, outs, by_result), strict=True))
        return [*[None] * n, *[grads.get(i) for i in range(len(inputs))]]

    def _keeps(self) -> bool:
        """Whether the graph has residuals, after the first call."""
        if self._found is None:
            kept = self._program.keeping(tuple(self._program.diff_in))
            module = self._program.module
            with _LOCK:
                if self._found is None:
                    self._kept = kept
                    self._found = [] if kept is None else self._with_residuals(kept, module)
        return bool(self._found)

    def _with_residuals(self, kept: Kept, module: Any) -> list[Any]:
        found: list[Any] | None = list(self._outs)
        if kept.n_residuals:
            can = isinstance(module, XlaModule)
            found = module.replaced(self._outs, kept.forward) if can else None
        if found is None:
            return []
        with self._outs[0].graph.as_default():
            # What the gradient reads becomes a result of the function, which is differentiated
            # with it: derivatives of gradients go through the inputs alone.
            return [tf.stop_gradient(x) for x in found]


def _is_outside(graph: Any) -> bool:
    """Whether the gradient of a function's graph is written into that of another function."""
    here = tf.compat.v1.get_default_graph()
    return here is not graph and type(here) is type(graph) is _Graph
