"""Pullbacks as functions of their own, with which graphs that are saved find their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import tensorflow as tf

from tracebridge.core.util.caching import BoundedCache
from tracebridge.tf._xla_call_module import tf_dtype, tf_shape
from tracebridge.tf.gradient import pull_all_orders, run_differentiable
from tracebridge.tf.program import Program

_MAX_PROGRAMS = 256

Last = Callable[[Program, Sequence[Any]], list[Any]]
"""Runs the pullback of the highest order."""


def pullback_functions(program: Program, order: int, last: Last) -> list[Any]:
    """The pullbacks of orders 1 to ``order`` as traced functions of flat tensors.

    There are fewer where a pullback has no derivatives. Gradients of graphs call them from now on.
    """
    first = program
    programs: list[Program] = []
    for _ in range(order):
        if not program.diff_in or not program.diff_out:
            break
        program = program.pullback
        programs.append(program)
    pulls: list[Any] = []

    def traced(k: int) -> Any:
        specs = [
            tf.TensorSpec(tf_shape(a.shape), tf_dtype(a.dtype)) for a in programs[k].jaxpr.in_avals
        ]

        @tf.function(input_signature=specs, autograph=False)  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
        def pull(*tensors: Any) -> list[Any]:
            if k + 1 < len(programs):
                return run_differentiable(programs[k], tensors, pull_all_orders)
            return last(programs[k], tensors)

        return pull

    pulls.extend([traced(k) for k in range(len(programs))])
    for owner, pull in zip([first, *programs], pulls, strict=False):
        owner.stored = pull
    for pull in reversed(pulls):
        pull.get_concrete_function()
    return pulls


class _Stored(NamedTuple):
    """Functions of a program to put into a graph, and the constants of those of all orders."""

    program: Program
    lower: list[Any]
    constants: list[Any]


@final
class StoredPullbacks:
    """Runs programs such that a graph has their pullbacks to an order, called or not.

    TensorFlow saves the gradients of what it finds in the functions of a graph, if these functions
    have what the gradients capture. So functions of the lower orders are put into the graph beside
    the program, and constants of all orders are captured there. The function of the highest order
    is found as what the gradient of the one before calls, and its own gradient is not.
    """

    __slots__ = ("_found", "_order")

    def __init__(self, name: str, order: int) -> None:
        self._order = order
        self._found: BoundedCache[_Stored] = BoundedCache(f"pullbacks of {name}", _MAX_PROGRAMS)

    def run(self, program: Program, tensors: Sequence[object]) -> list[Any]:
        """The results of ``program``, with gradients of any order in this process."""
        graph: Any = tf.compat.v1.get_default_graph()
        if tf.executing_eagerly() or not program.diff_in or not hasattr(graph, "capture"):
            return run_differentiable(program, tensors, pull_all_orders)
        stored = self._of(program)
        for function in stored.lower:
            function.get_concrete_function().add_to_graph(graph)
        for constant in stored.constants:
            graph.capture(constant)
        return run_differentiable(program, tensors, pull_all_orders)

    def _of(self, program: Program) -> _Stored:
        # The row has the program, so that the number is that of no other one.
        found = self._found.get(id(program))
        if found is None:
            with tf.init_scope():
                found = _stored(program, self._order)
            self._found.set(id(program), found)
        return found


def _stored(program: Program, order: int) -> _Stored:
    functions = pullback_functions(program, order, _last)
    constants = {id(t): t for f in functions for t in f.get_concrete_function().captured_inputs}
    return _Stored(program, functions[: order - 1], list(constants.values()))


def _last(program: Program, tensors: Sequence[Any]) -> list[Any]:
    return run_differentiable(program, tensors, pull_all_orders)
