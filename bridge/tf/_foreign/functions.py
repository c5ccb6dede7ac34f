"""TensorFlow functions on flat tensors, and those derived from them by tapes."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
import tensorflow as tf

from tracebridge.core._jaxlib import mlir
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lowering.embedding import Embedded, OfConsumer, Read
from tracebridge.core.runtime.arrays.placement import choose_placement, is_spread
from tracebridge.core.runtime.arrays.transfer import put_host
from tracebridge.core.runtime.effects.host_callback import raise_callback_error
from tracebridge.interop.foreign_functions import FlatFunction, Indices, replaced
from tracebridge.interop.tf_adapter import ROWS, tf_adapter
from tracebridge.tf._foreign.graphs import (
    Graph,
    Tensors,
    alone,
    first_line,
    of_variables,
    quiet,
)
from tracebridge.tf._foreign.sizes import is_dynamic

Slots = tuple[Any, ...]
"""For each operand None, or what of the function's own it is: a variable or a constant tensor."""


class TensorFlowFunction(FlatFunction):
    """A function of TensorFlow's tensors, some of which are its variables and constants.

    Large constants are operands so that a program has each once, whatever is derived from it.
    """

    def __init__(self, label: str, slots: Slots, inexact: tuple[bool, ...]) -> None:
        super().__init__(label, len(slots), inexact)
        self.slots = slots
        self._graphs: dict[Any, Graph] = {}
        self._embedded: dict[Any, Embedded | OfConsumer | Exception] = {}

    @property
    def name(self) -> str:
        """For messages: what was called with what."""
        return f"call_tf({self.label})"

    @abc.abstractmethod
    def call(self, *tensors: Any) -> Tensors:
        """The results at the operands that are not the function's own; these it has."""

    @abc.abstractmethod
    def free(self) -> TensorFlowFunction:
        """The same function without variables and constants of its own: all are operands.

        Raises:
            ArgumentSpecError: it reads a variable that is no operand, or needs more than the
                value of one.
        """

    @abc.abstractmethod
    def say_once(self, message: str) -> None:
        """Warn, unless this function or one derived from the same one has said something."""

    def tensors_of(self, operands: Sequence[Any]) -> list[Any]:
        """The operands that are not the function's own."""
        return [x for x, v in zip(operands, self.slots, strict=True) if v is None]

    def graph(self, avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray]) -> Graph:
        """The function at operands of these types."""
        found = self._graphs.get(_types(avals, out_avals))
        if found is None:
            found = Graph(self.name, self.call, self.tensors_of(avals), out_avals)
            self.remember(avals, found)
        return found

    def remember(self, avals: Sequence[ShapedArray], graph: Graph) -> None:
        """Keep the graph for operands of these types."""
        self._graphs[_types(avals, graph.out_avals)] = graph

    # what the engine asks for ------------------------------------------------------------------

    def from_host(self, avals: Sequence[ShapedArray], *operands: Any) -> list[Any]:
        """Call with ndarrays of a running program."""
        types = [ShapedArray(x.shape, x.dtype) for x in operands]
        graph = self.graph(types, avals)
        with alone():
            outs = self._run(graph, [tf.constant(x) for x in operands])
            return [_to_ndarray(y) for y in outs]

    def evaluate(self, avals: Sequence[ShapedArray], arrays: Sequence[Any]) -> list[Any]:
        """Call with Arrays, on their device."""
        placement, _ = choose_placement([a._sig for a in arrays], self.name)
        try:
            if is_spread(placement):
                results = self.from_host(avals, *[np.asarray(a) for a in arrays])
                return [put_host(r, placement.replicated) for r in results]
            return self._evaluated(self.graph([a.aval for a in arrays], avals), arrays)
        except Exception as error:  # noqa: BLE001 - a function of the user may fail in any way
            raise_callback_error(self.name, error)

    def _evaluated(self, graph: Graph, arrays: Sequence[Any]) -> list[Any]:
        with alone():
            outs = self._run(graph, [tf_adapter.export(a) for a in arrays])
            # A result may be a constant of the function, or an argument.
            return [tf_adapter.import_(y, copy=True) for y in outs]

    def embedded(
        self, avals_in: Sequence[ShapedArray], avals_out: Sequence[ShapedArray]
    ) -> Embedded | OfConsumer | None:
        """The function as compiled by TensorFlow for XLA; None where it cannot be."""
        found = self._parts(avals_in, avals_out)
        if isinstance(found, Exception):
            self.say_once(
                f"{self.name}: TensorFlow cannot compile it, so that programs call back into "
                f"Python: {first_line(found)}"
            )
            return None
        return found

    def _parts(
        self, avals_in: Sequence[ShapedArray], avals_out: Sequence[ShapedArray]
    ) -> Embedded | OfConsumer | Exception:
        """What programs are made of, or why TensorFlow does not compile it."""
        key = _types(avals_in, avals_out)
        if key not in self._embedded:
            graph = self.graph(avals_in, avals_out)
            dynamic = is_dynamic((*avals_in, *avals_out))
            self._embedded[key] = (
                self._by_consumer(graph.traced_for_xla(), avals_in)
                if dynamic
                else self._compiled(graph)
            )
        return self._embedded[key]

    def tangents(self, wanted: Indices) -> TensorFlowFunction:
        """Forward mode, by two tapes: every operation with a gradient has it."""
        return Tangents(self, wanted)

    def pullback(self, wanted: Indices) -> TensorFlowFunction:
        """Reverse mode."""
        return Pullback(self, wanted)

    def batched(
        self, dims: tuple[int | None, ...], avals: Sequence[ShapedArray]
    ) -> TensorFlowFunction | None:
        """By ``tf.vectorized_map``; not where variables have a value for each element."""
        variables = zip(dims, self.slots, strict=True)
        if not self.is_vmappable or any([d is not None and v is not None for d, v in variables]):
            return None

        def make() -> TensorFlowFunction | None:
            batched = Batched(self, dims, (0,) * len(self.inexact), whole=True)
            try:
                with quiet():
                    graph = Graph(self.name, batched.call, self.tensors_of(avals))
            except Exception:  # noqa: BLE001 - what it does not take, it refuses in many ways
                return None
            batched.remember(avals, graph)
            return None if self._compiles_alone(dims, avals, batched, graph) else batched

        return self.once(("vmap", dims, tuple(avals)), make)

    def _compiles_alone(
        self,
        dims: tuple[int | None, ...],
        avals: Sequence[ShapedArray],
        batched: TensorFlowFunction,
        graph: Graph,
    ) -> bool:
        """Whether XLA takes the function, but not what TensorFlow makes of it for a batch."""
        outs = graph.out_avals
        if not graph.has_control_flow() or is_dynamic((*avals, *outs)):
            return False
        if not isinstance(batched._parts(avals, outs), Exception):
            return False
        element = [_without_axis(a, d) for a, d in zip(avals, dims, strict=True)]
        parts = self._parts(element, [_without_axis(a, 0) for a in outs])
        return not isinstance(parts, Exception)

    # how it is done ----------------------------------------------------------------------------

    def _run(self, graph: Graph, operands: Sequence[Any]) -> list[Any]:
        if not graph.variables:
            return graph(self.tensors_of(operands))
        both = zip(self.slots, operands, strict=True)
        pairs = [(v, x) for v, x in both if isinstance(v, tf.Variable)]
        with of_variables.taken(), _assigned(pairs):
            return graph(self.tensors_of(operands))

    def _compiled(self, graph: Graph) -> Embedded | Exception:
        """A graph as a part of a program, or why it is none."""
        try:
            return self._part(graph.traced_for_xla() if graph.has_optionals() else graph)
        except Exception as error:  # noqa: BLE001 - TensorFlow raises errors of many kinds
            reason = error
        if graph.has_lists():
            with contextlib.suppress(Exception):
                return self._part(graph.traced_for_xla())
        return reason

    def _part(self, graph: Graph) -> Embedded:
        places = [i for i, v in enumerate(self.slots) if v is None]
        given = {id(captured_of(v)): i for i, v in enumerate(self.slots) if v is not None}
        arguments: list[Any] = [*places]
        for tensor in graph.captured:
            place = given.get(id(tensor))
            arguments.append(self._captured(graph, tensor) if place is None else place)
        return Embedded(mlir.hlo_to_stablehlo(graph.compiled()), arguments)

    def _by_consumer(self, graph: Graph, avals: Sequence[ShapedArray]) -> OfConsumer:
        """The function as TensorFlow compiles it when sizes are known.

        Raises:
            ArgumentSpecError: it reads a variable that is no argument, or needs more than the
                value of one.
        """
        if any([t.dtype == tf.resource for t in graph.captured]):
            free = self.once("free", self.free)
            free_graph = free.graph(avals, graph.out_avals).traced_for_xla()
            return free._by_consumer(free_graph, avals)
        places = [i for i, v in enumerate(self.slots) if v is None]
        given = {id(v): i for i, v in enumerate(self.slots) if v is not None}
        arguments: list[Any] = [*places]
        for tensor in graph.captured:
            place = given.get(id(tensor))
            arguments.append(tensor.numpy() if place is None else place)
        return OfConsumer(graph.concrete, arguments, self.name)

    def _captured(self, graph: Graph, tensor: Any) -> Any:
        """What is no operand: a small constant, or a variable that is read."""
        if tensor.dtype != tf.resource:
            return tensor.numpy()
        variable = next((v for v in graph.variables if v.handle is tensor), None)
        if variable is None:
            raise TypeError(f"it uses {tensor!r}, which is no variable")
        aval = ShapedArray(tuple(variable.shape), ROWS.ours(variable.dtype.name))

        def read() -> list[np.ndarray[Any, Any]]:
            with alone(), of_variables.taken():
                return [_to_ndarray(variable.read_value())]

        name = f"{self.name} reads the variable {variable.name!r}"
        hint = "name it in variables=..., so that its value becomes an argument"
        return Read(read, aval, name, hint)


class Derived(TensorFlowFunction):
    """A function made of another one, ``of``, with further operands behind its own."""

    def __init__(
        self, of: Any, wanted: Indices, further: int, inexact: tuple[bool, ...], what: str
    ) -> None:
        super().__init__(f"{what} of {of.label}", (*of.slots, *[None] * further), inexact)
        self.of = of
        self.wanted = wanted

    def say_once(self, message: str) -> None:
        self.of.say_once(message)

    @property
    def is_vmappable(self) -> bool:
        return self.of.is_vmappable

    def fingerprinted(self) -> Any:
        """What is in fingerprints of programs with this function."""
        return type(self).__name__, self.wanted, self.of

    def recorded(self, tape: Any, args: Sequence[Any]) -> tuple[Tensors, list[Any]]:
        """The inexact results at ``args``, recorded; and what to differentiate by."""
        places = [i for i, v in enumerate(self.of.slots) if v is None]
        tensors = dict(zip(places, args, strict=True))
        sources: list[Any] = []
        for i in self.wanted:
            # What stands there already may be watched by a tape outside.
            source = self.of.slots[i] if i not in tensors else tf.identity(tensors[i])
            if i in tensors:
                tensors[i] = source
            tape.watch(source)
            sources.append(source)
        return self.of.inexact_of(self.of.call(*tensors.values())), sources


@final
class Pullback(Derived):
    """(operands, cotangents of inexact results) -> cotangents of the wanted operands.

    TensorFlow's gradients are the conjugates of ours.
    """

    def __init__(self, of: TensorFlowFunction, wanted: Indices) -> None:
        super().__init__(of, wanted, sum(of.inexact), (True,) * len(wanted), "gradient")

    def free(self) -> TensorFlowFunction:
        return self.of.once("free", self.of.free).vjp(self.wanted)

    def call(self, *tensors: Any) -> Tensors:
        n = len(tensors) - sum(self.of.inexact)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            outs, sources = self.recorded(tape, tensors[:n])
        grads = _gradients(tape, outs, sources, [_conj(c) for c in tensors[n:]])
        return tuple([_conj(g) for g in grads])


@final
class Tangents(Derived):
    """(operands, tangents of the wanted ones) -> tangents of the inexact results.

    The pullback is linear in its cotangents; this differentiates it.
    """

    def __init__(self, of: TensorFlowFunction, wanted: Indices) -> None:
        super().__init__(of, wanted, len(wanted), (True,) * sum(of.inexact), "tangents")

    def free(self) -> TensorFlowFunction:
        return self.of.once("free", self.of.free).jvp(self.wanted)

    def call(self, *tensors: Any) -> Tensors:
        n = len(tensors) - len(self.wanted)
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                outs, sources = self.recorded(inner, tensors[:n])
            weights = [tf.zeros_like(y) for y in outs]
            for weight in weights:
                outer.watch(weight)
            grads = _gradients(inner, outs, sources, weights)
        # Twice: conjugates of conjugates.
        return tuple(_gradients(outer, grads, weights, tensors[n:]))


@final
class Batched(Derived):
    """``of`` with a further axis at ``dims`` of the operands.

    ``outs``: where the results have it; with None they are added up. Derivatives are those of
    ``of``, batched: TensorFlow differentiates less of what it maps than it maps. ``whole``: raise
    where an operation would have to be called in a loop, which the engine does better.
    """

    def __init__(
        self,
        of: TensorFlowFunction,
        dims: tuple[int | None, ...],
        outs: tuple[int | None, ...],
        *,
        whole: bool = False,
    ) -> None:
        super().__init__(of, (), 0, of.inexact, "vmap")
        self._dims = dims
        self._whole = whole
        self._outs = outs

    def fingerprinted(self) -> Any:
        return "batched", self._dims, self._outs, self.of

    def free(self) -> TensorFlowFunction:
        of = self.of.once("free", self.of.free)
        return Batched(of, self._dims, self._outs, whole=self._whole)

    def tangents(self, wanted: Indices) -> TensorFlowFunction:
        dims = (*self._dims, *[self._dims[i] for i in wanted])
        return Batched(self.of.jvp(wanted), dims, self.inexact_of(self._outs))

    def pullback(self, wanted: Indices) -> TensorFlowFunction:
        dims = (*self._dims, *self.inexact_of(self._outs))
        return Batched(self.of.vjp(wanted), dims, tuple([self._dims[i] for i in wanted]))

    def call(self, *tensors: Any) -> Tensors:
        dims = self.tensors_of(self._dims)
        places = tuple([i for i, d in enumerate(dims) if d is not None])
        mapped = [_moved(tensors[i], dims[i], 0) for i in places]

        def element(values: Any) -> Any:
            return self.of.call(*replaced(tensors, places, values))

        found = tf.vectorized_map(element, tuple(mapped), fallback_to_while_loop=not self._whole)
        return tuple(
            [
                tf.reduce_sum(y, 0) if d is None else _moved(y, 0, d)
                for y, d in zip(found, self._outs, strict=True)
            ]
        )


def captured_of(slot: Any) -> Any:
    """What a graph captures of a variable or a constant."""
    return slot.handle if isinstance(slot, tf.Variable) else slot


def _without_axis(aval: ShapedArray, axis: int | None) -> ShapedArray:
    """The type of one element of a batch."""
    if axis is None:
        return aval
    return aval.update(shape=(*aval.shape[:axis], *aval.shape[axis + 1 :]))


def _types(avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray]) -> Any:
    return tuple([(a.shape, a.dtype) for a in (*avals, *out_avals)])


def _moved(x: Any, source: int, target: int) -> Any:
    """``x`` with an axis at another place."""
    if source == target:
        return x
    order = [i for i in range(x.shape.rank) if i != source]
    order.insert(target, source)
    return tf.transpose(x, order)


def _conj(x: Any) -> Any:
    return tf.math.conj(x) if x.dtype.is_complex else x


def _gradients(
    tape: Any, outs: Sequence[Any], sources: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """Gradients by ``sources``, zeros where nothing depends on them."""
    if not outs:
        return [tf.zeros_like(s) for s in sources]
    given = [tf.cast(c, y.dtype) for c, y in zip(cotangents, outs, strict=True)]
    found = tape.gradient(list(outs), list(sources), given)
    # Gradients of lookups are sparse.
    return [
        tf.zeros_like(s) if g is None else tf.convert_to_tensor(g)
        for s, g in zip(sources, found, strict=True)
    ]


@contextlib.contextmanager
def _assigned(pairs: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """A block in which variables have other values."""
    before = [v.read_value() for v, _ in pairs]
    try:
        for variable, value in pairs:
            variable.assign(value)
        yield
    finally:
        for (variable, _), value in zip(pairs, before, strict=True):
            variable.assign(value)


def _to_ndarray(y: Any) -> np.ndarray[Any, Any]:
    """The elements of an eager tensor, dense."""
    return np.ascontiguousarray(y.numpy()).reshape(y.shape)
