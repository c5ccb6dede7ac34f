"""Graphs of TensorFlow functions at given types: what they use, and how they are run."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import tensorflow as tf

from tracebridge.core.config.state import enter_scope, leave_scope, outside_of_traces
from tracebridge.core.dtypes.canonicalize import canonicalize, narrowed
from tracebridge.core.errors.exchange_errors import UnsupportedExchangeDtypeError
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.tracer_errors import TracerArrayConversionError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.interop.tf_adapter import ROWS
from tracebridge.interop.turns import Turn
from tracebridge.tf._xla_call_module import tf_dtype, tf_shape

Tensors = tuple[Any, ...]

# Operations that draw from generators of TensorFlow, so that a second call gives other numbers.
_DRAWING = frozenset(
    {
        "FixedUnigramCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "LogUniformCandidateSampler",
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomCrop",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "Skipgram",
        "ThreadUnsafeUnigramCandidateSampler",
        "TruncatedNormal",
        "UniformCandidateSampler",
    }
)
# How the names of those begin that change a variable, a generator, a table or a file.
_WRITING = (
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "AssignVariableOp",
    "IteratorGetNext",
    "LookupTableImport",
    "LookupTableInsert",
    "LookupTableRemove",
    "QueueDequeue",
    "QueueEnqueue",
    "Resource",
    "RngReadAndSkip",
    "RngSkip",
    "StatefulRandom",
    "StatefulStandardNormal",
    "StatefulTruncatedNormal",
    "StatefulUniform",
    "Write",
)
# Of operations on resources these only read; others assign, count, scatter or apply gradients.
_READING = ("ResourceAccumulatorNum", "ResourceGather")
_CONTROL = frozenset({"Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"})
# A size in a program for XLA that is known by its bound only, such as "f32[<=3]".
_BOUNDED = re.compile(r"\w\[(?:<?=?\d+,)*<=\d")

# While a function runs with values for its variables, all threads see these.
of_variables = Turn()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """The state of TensorFlow and of the engine that a call sees: no trace, graph or tape."""
    scope = enter_scope(outside_of_traces)
    try:
        with tf.init_scope():
            yield
    finally:
        leave_scope(scope)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A block in which TensorFlow does not log what it cannot do: that means something here."""
    logger = tf.get_logger()
    logger.addFilter(_drop)
    try:
        yield
    finally:
        logger.removeFilter(_drop)


def _drop(record: object) -> bool:
    del record
    return False


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    """The state in which graphs are made: ``init_scope`` would turn off the tapes in them."""
    scope = enter_scope(outside_of_traces)
    try:
        with tf.__internal__.eager_context.eager_mode():
            yield
    finally:
        leave_scope(scope)


@final
class Graph:
    """``call`` at tensors of types ``avals``, as a graph of TensorFlow.

    ``expected``: the types of the results; by default those that it has, without 64 bits where
    they are off. ``for_xla``: whether it is only compiled. ``runs_now``: whether shapes may depend
    on values; ``unsized`` then is the error that programs with it get.
    """

    __slots__ = (
        "_call", "_concrete", "_for_xla", "_name", "avals", "captured", "out_avals", "specs",
        "unsized",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        call: Callable[..., Tensors],
        avals: Sequence[ShapedArray],
        expected: Sequence[ShapedArray] | None = None,
        *,
        for_xla: bool = False,
        runs_now: bool = False,
    ) -> None:
        self.unsized: CallbackError | None = None
        self._name = name
        self._call = call
        self._for_xla = for_xla
        self.avals = tuple(avals)
        self.specs = [tf.TensorSpec(tf_shape(a.shape), tf_dtype(a.dtype)) for a in avals]
        self.out_avals: tuple[ShapedArray, ...] = () if expected is None else tuple(expected)
        self._concrete: Any = None
        if expected is None:
            found: list[Any] = []
            self._concrete = self._traced(lambda *tensors: self._first(found, tensors))
            if len(found) != len(self.out_avals):
                # Functions inside that were made for any size say nothing of the shapes.
                expected = self._types_behind(found, runs_now)
        if expected is not None:
            self._concrete = self._traced(lambda *tensors: self._fitted(call(*tensors)))
        self.captured: list[Any] = list(self._concrete.captured_inputs)

    def _traced(self, run: Callable[..., list[Any]]) -> Any:
        with _tracing():
            try:
                function = tf.function(run, autograph=False, jit_compile=self._for_xla or None)
                return function.get_concrete_function(*self.specs)
            except (CallbackError, ArgumentSpecError):
                raise
            except Exception as error:
                msg = f"{self._name}: the function raised {first_line(error)}"
                raise CallbackError(msg, hint=_way_out(error)) from error

    def _first(self, found: list[Any], tensors: Tensors) -> list[Any]:
        """The results, which are put into ``found`` too: in the types of ``out_avals`` if known."""
        outs = [tf.convert_to_tensor(y) for y in self._call(*tensors)]
        found[:] = outs
        if not all([y.shape.is_fully_defined() for y in outs]):
            for i, y in enumerate(outs):
                _dtype(self._name, i, y)
            return outs
        self.out_avals = tuple(
            [
                ShapedArray(tuple(y.shape.as_list()), _dtype(self._name, i, y))
                for i, y in enumerate(outs)
            ]
        )
        return self._fitted(outs)

    def _fitted(self, outs: Sequence[Any]) -> list[Any]:
        if len(outs) != len(self.out_avals):
            msg = f"{self._name}: the function returned {len(outs)} tensors"
            raise CallbackError(msg, expected=str(len(self.out_avals)))
        pairs = enumerate(zip(outs, self.out_avals, strict=True))
        return [_fitted(self._name, i, y, a) for i, (y, a) in pairs]

    def _types_behind(self, outs: Sequence[Any], runs_now: bool) -> tuple[ShapedArray, ...] | None:
        """The types of the results ``outs`` as compiled, None where only values tell them."""
        try:
            self.out_avals = self._compiled_types(outs)
        except CallbackError as error:
            if not runs_now:
                raise
            self.unsized = error
            return None
        return self.out_avals

    def _compiled_types(self, outs: Sequence[Any]) -> tuple[ShapedArray, ...]:
        """The types of the results ``outs``, as TensorFlow compiles them for XLA.

        Raises:
            CallbackError: they depend on values, or it cannot be compiled.
        """
        unknown = [i for i, y in enumerate(outs) if not y.shape.is_fully_defined()]
        try:
            shapes = _result_shapes(self._program()("hlo"))
        except Exception as error:
            raise _depends_on_values(self._name, unknown[0], outs[unknown[0]]) from error
        if len(shapes) != len(outs) or None in shapes:
            raise _depends_on_values(self._name, unknown[0], outs[unknown[0]])
        return tuple(
            [
                ShapedArray(shape, _dtype(self._name, i, y))
                for i, (y, shape) in enumerate(zip(outs, shapes, strict=True))
            ]
        )

    def _program(self) -> Callable[[str], Any]:
        """What TensorFlow makes of it for XLA: a function from a stage to a program."""
        with _tracing():
            whole = tf.function(self._concrete, jit_compile=True, autograph=False)
            program = whole.experimental_get_compiler_ir(*self.specs)

        def at(stage: str) -> Any:
            # Without the name of a device TensorFlow draws a random number to find one: from the
            # generator of the user, and in the graph that the user is making.
            with _tracing(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "device_name is being deprecated")
                return program(stage=stage, device_name=tf.constant(0.0).device)

        return at

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """The results at eager tensors."""
        return list(self._concrete(*tensors))

    @property
    def concrete(self) -> Any:
        """The concrete function, which takes ``captured`` behind its tensors."""
        return self._concrete

    @property
    def variables(self) -> list[Any]:
        """The variables that the function uses, those of functions inside too."""
        return list(self._concrete.graph.variables)

    def traced_for_xla(self) -> Graph:
        """The same graph without what XLA does not know: optional values, lists of any length.

        TensorFlow makes these in derivatives of branches and loops.
        """
        if self._for_xla:
            return self
        return Graph(self._name, self._call, self.avals, self.out_avals, for_xla=True)

    def has_optionals(self) -> bool:
        """Whether there are optional values, as in derivatives of branches."""
        return any([o.startswith("Optional") for o in self.operations()])

    def has_lists(self) -> bool:
        """Whether there are lists of tensors, as in derivatives of loops."""
        return any([o.startswith("TensorList") for o in self.operations()])

    def has_control_flow(self) -> bool:
        """Whether there are branches or loops: XLA takes some forms of them only."""
        return not _CONTROL.isdisjoint(self.operations())

    def compiled(self) -> bytes:
        """The function as a program for XLA, in HLO.

        Raises:
            Exception: it cannot be compiled; TensorFlow raises errors of many kinds.
        """
        program = self._program()
        if _BOUNDED.search(program("hlo")):
            # XLA fills up to the bound, and believes what is said of shapes.
            raise ValueError("shapes inside depend on values")
        return program("hlo_serialized")

    def operations(self) -> set[str]:
        """The names of all operations, also of those in functions inside."""
        definition = self._concrete.graph.as_graph_def()
        found = {node.op for node in definition.node}
        for function in definition.library.function:
            found |= {node.op for node in function.node_def}
        return found

    def writes(self) -> str:
        """An operation that changes a variable or something else that stays, or ""."""
        found = [o for o in sorted(self.operations()) if o.startswith(_WRITING)]
        return next((o for o in found if not o.startswith(_READING)), "")

    def draws(self) -> str:
        """An operation that draws random numbers, or ""."""
        return next((o for o in sorted(self.operations()) if o in _DRAWING), "")


def _dtype(name: str, index: int, y: Any) -> Any:
    """The dtype of a result, as the engine has it."""
    try:
        return canonicalize(ROWS.ours(y.dtype.name))
    except UnsupportedExchangeDtypeError as error:
        msg = (
            f"{name}: result {index} is a tensor of dtype {y.dtype.name}, which arrays do not have"
        )
        raise CallbackError(msg, hint="return numbers, such as tf.strings.length(x)") from error


def _depends_on_values(name: str, index: int, y: Any) -> CallbackError:
    msg = f"{name}: the shape of result {index} depends on values: {y.shape}"
    hint = "declare the types by output_shape_dtype=..., or pad to a size that is known"
    return CallbackError(msg, hint=hint)


def _result_shapes(hlo: str) -> list[tuple[int, ...] | None]:
    """The shapes of the results of a program in HLO; None for one with a size that is a bound."""
    layout = hlo.partition("entry_computation_layout={")[2].partition("\n")[0]
    found: list[tuple[int, ...] | None] = []
    for text in re.findall(r"\w+\[([\d,<=]*)\]", layout.partition(")->")[2]):
        bounded = "<" in text
        found.append(None if bounded else tuple([int(d) for d in text.split(",") if d]))
    return found


def _fitted(name: str, index: int, y: Any, aval: ShapedArray) -> Any:
    """A result in the type that programs expect."""
    y = tf.convert_to_tensor(y)
    wanted = tf_dtype(aval.dtype)
    ours = ROWS.rows.get(y.dtype.name)
    fits = ours is not None and narrowed(ours) == narrowed(aval.dtype)
    shape = tf.TensorShape(tf_shape(aval.shape))
    if not fits or not y.shape.is_compatible_with(shape):
        raise CallbackError(
            f"{name}: result {index} has another type than expected",
            got=f"{y.dtype.name} of shape {y.shape}",
            expected=aval.str_short(),
        )
    if y.dtype != wanted:
        y = tf.cast(y, wanted)
    return y if y.shape.is_fully_defined() else tf.ensure_shape(y, shape)


def _way_out(error: BaseException) -> str:
    """What to do about an error of the function."""
    # Autograph makes an error of its own, with the text.
    if isinstance(error, TracerArrayConversionError) or "on a traced value" in str(error):
        return "pass traced values that the function uses as arguments of it"
    return ""


def first_line(error: BaseException) -> str:
    """What happened, without the traceback that TensorFlow writes into messages."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    # An error of a function inside begins with "in user code:"; frames, and what happened, follow.
    if lines and lines[0].startswith("in user code"):
        named = [line for line in lines if re.match(r"    \w[\w.]*: ", line)]
        return (named[-1] if named else lines[-1]).strip()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
