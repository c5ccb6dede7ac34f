"""Functions whose variables have become arguments."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any, final

import tensorflow as tf
from tensorflow.python.eager import context  # no public name: the functions of the process
from tensorflow.python.framework.convert_to_constants import (  # no public name
    convert_variables_to_constants_v2,
)

from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.tf._foreign.functions import TensorFlowFunction, captured_of
from tracebridge.tf._foreign.graphs import Graph, Tensors, alone, first_line, quiet


@final
class Free(TensorFlowFunction):
    """``of`` with its variables and constants as tensors like the others.

    ``graph``: of ``of``, whose derivatives are then those of this one: TensorFlow differentiates
    what it has imported, but does not take variables out of derivatives of loops.
    """

    def __init__(self, of: TensorFlowFunction, graph: Graph) -> None:
        super().__init__(of.label, (None,) * len(of.slots), of.inexact)
        self._of = of
        used = {id(t) for t in graph.captured}
        own = [(i, captured_of(v)) for i, v in enumerate(of.slots) if v is not None]
        own = [(i, t) for i, t in own if id(t) in used]
        _check_all_given(of.name, graph, {id(t) for _, t in own})
        self._places = [i for i, v in enumerate(of.slots) if v is None] + [i for i, _ in own]
        try:
            with alone(), quiet():
                self._body = Body(graph, [t for _, t in own])
        except Exception as error:
            msg = f"{of.name}: variables cannot become arguments: {first_line(error)}"
            hint = "call it at known sizes, or write it with the values as arguments"
            raise ArgumentSpecError(msg, hint=hint) from error

    def call(self, *tensors: Any) -> Tensors:
        # Tapes record calls of functions, but no imports; and a function remembers how it was
        # differentiated, which is another way for XLA.
        function = tf.function(self._body.imported, autograph=False)
        return tuple(function(*[tensors[i] for i in self._places]))

    def free(self) -> TensorFlowFunction:
        return self

    def say_once(self, message: str) -> None:
        self._of.say_once(message)

    @property
    def is_vmappable(self) -> bool:
        return self._of.is_vmappable

    def fingerprinted(self) -> Any:
        """What is in fingerprints of programs with this function."""
        return "free", self._of


def _check_all_given(name: str, graph: Graph, given: set[int]) -> None:
    for variable in graph.variables:
        if id(variable.handle) not in given:
            msg = f"{name} reads the variable {variable.name!r}, at sizes that are not known"
            hint = "name it in variables=..., so that its value becomes an argument"
            raise ArgumentSpecError(msg, hint=hint)


@final
class Body:
    """A graph of the tensors of ``graph`` and of the values of ``captured``.

    What reads a handle, in branches, loops and inner functions too, gets the value: TensorFlow
    does that when it freezes a graph, and here the frozen values are arguments again.
    """

    def __init__(self, graph: Graph, captured: Sequence[Any]) -> None:
        concrete = graph.concrete
        frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False)
        name_of = {id(outer): inner.op.name for outer, inner in concrete.graph.captures}
        names = [t.op.name for t in frozen.inputs] + [name_of[id(t)] for t in captured]
        definition = frozen.graph.as_graph_def()
        # Their nodes would stay in the graph, and XLA does not know placeholders.
        for node in [n for n in definition.node if n.name in set(names)]:
            definition.node.remove(node)
        read = {i.lstrip("^").partition(":")[0] for n in definition.node for i in n.input}
        self._definition = definition
        self._inputs = {f"{name}:0": i for i, name in enumerate(names) if name in read}
        self._outputs = [t.name for t in frozen.outputs]
        # Nobody calls the frozen function, and TensorFlow would keep what is inside.
        _forget([f.signature.name for f in definition.library.function])

    def imported(self, *tensors: Any) -> Tensors:
        """Its results in the graph that is being made."""
        definition = _with_own_functions(self._definition, f"_{next(_IMPORTS)}")
        names = [f.signature.name for f in definition.library.function]
        registry: Any = context.context()
        for function in definition.library.function:
            # XLA looks there, and imports tell the graph only.
            registry.add_function_def(function)
        weakref.finalize(tf.compat.v1.get_default_graph(), _release, names).atexit = False
        return tuple(
            tf.graph_util.import_graph_def(
                definition,
                input_map={name: tensors[i] for name, i in self._inputs.items()},
                return_elements=self._outputs,
                name="free",
            )
        )


def _release(names: Sequence[str]) -> None:
    """Take back what was added; graphs of imports take back what is theirs when they end."""
    registry: Any = context.context()
    for name in names:
        if registry.has_function(name):
            registry.remove_function(name)


def _forget(names: Sequence[str]) -> None:
    registry: Any = context.context()
    for name in names:
        while registry.has_function(name):
            registry.remove_function(name)


_IMPORTS = itertools.count()


def _with_own_functions(definition: Any, suffix: str) -> Any:
    """A graph whose inner functions have names of their own.

    TensorFlow names what it derives from branches after them: two derivatives would share it.
    """
    found = type(definition)()
    found.CopyFrom(definition)
    functions = found.library.function
    names = {f.signature.name: f.signature.name + suffix for f in functions}
    for function in functions:
        function.signature.name = names[function.signature.name]
    for gradient in found.library.gradient:
        gradient.function_name = names[gradient.function_name]
        gradient.gradient_func = names[gradient.gradient_func]
    for node in itertools.chain(found.node, *[f.node_def for f in functions]):
        node.op = names.get(node.op, node.op)
        for value in node.attr.values():
            for called in (*value.list.func, *([value.func] if value.HasField("func") else [])):
                called.name = names.get(called.name, called.name)
    return found
