"""Graphs of TensorFlow functions at given types: what they use, and how they are run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import tensorflow as tf

from tracebridge.core.config.state import enter_scope, leave_scope, outside_of_traces
from tracebridge.core.dtypes.canonicalize import canonicalize, narrowed
from tracebridge.core.errors.exchange_errors import UnsupportedExchangeDtypeError
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.interop.tf_adapter import ROWS
from tracebridge.interop.turns import Turn
from tracebridge.tf._xla_call_module import tf_dtype

Tensors = tuple[Any, ...]

# Operations that draw from generators of TensorFlow, so that a second call gives other numbers.
_DRAWING = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    }
)
# How the names of those begin that change a variable, a generator or a table.
_WRITING = (
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "AssignVariableOp",
    "LookupTableInsert",
    "ResourceApply",
    "ResourceScatter",
    "ResourceSparseApply",
    "RngReadAndSkip",
    "RngSkip",
    "StatefulRandom",
    "StatefulStandardNormal",
    "StatefulTruncatedNormal",
    "StatefulUniform",
)
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
    they are off.
    """

    __slots__ = ("_call", "_concrete", "_name", "avals", "captured", "out_avals", "specs")

    def __init__(
        self,
        name: str,
        call: Callable[..., Tensors],
        avals: Sequence[ShapedArray],
        expected: Sequence[ShapedArray] | None = None,
    ) -> None:
        self._name = name
        self._call = call
        self.avals = tuple(avals)
        self.specs = [tf.TensorSpec(_static(name, a), tf_dtype(a.dtype)) for a in avals]
        self.out_avals: tuple[ShapedArray, ...] = () if expected is None else tuple(expected)
        known = expected is not None

        def run(*tensors: Any) -> list[Any]:
            outs = call(*tensors)
            if not known:
                self.out_avals = tuple([_aval(name, i, y) for i, y in enumerate(outs)])
            if len(outs) != len(self.out_avals):
                msg = f"{name}: the function returned {len(outs)} tensors"
                raise CallbackError(msg, expected=str(len(self.out_avals)))
            pairs = enumerate(zip(outs, self.out_avals, strict=True))
            return [_fitted(name, i, y, a) for i, (y, a) in pairs]

        with _tracing():
            try:
                self._concrete = tf.function(run, autograph=False).get_concrete_function(
                    *self.specs
                )
            except (CallbackError, ArgumentSpecError):
                raise
            except Exception as error:
                raise CallbackError(f"{name}: the function raised {first_line(error)}") from error
        self.captured: list[Any] = list(self._concrete.captured_inputs)

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """The results at eager tensors."""
        return list(self._concrete(*tensors))

    @property
    def variables(self) -> list[Any]:
        """The variables that the function uses, those of functions inside too."""
        return list(self._concrete.graph.variables)

    def compiled(self) -> bytes:
        """The function as a program for XLA, in HLO.

        Raises:
            Exception: it cannot be compiled; TensorFlow raises errors of many kinds.
        """
        with _tracing():
            whole = tf.function(self._concrete, jit_compile=True, autograph=False)
            program = whole.experimental_get_compiler_ir(*self.specs)
            if _BOUNDED.search(program(stage="hlo")):
                # XLA fills up to the bound, and believes what is said of shapes.
                raise ValueError("shapes inside depend on values")
            return program(stage="hlo_serialized")

    def operations(self) -> set[str]:
        """The names of all operations, also of those in functions inside."""
        definition = self._concrete.graph.as_graph_def()
        found = {node.op for node in definition.node}
        for function in definition.library.function:
            found |= {node.op for node in function.node_def}
        return found

    def writes(self) -> str:
        """An operation that changes a variable, or ""."""
        return next((o for o in sorted(self.operations()) if o.startswith(_WRITING)), "")

    def draws(self) -> str:
        """An operation that draws random numbers, or ""."""
        return next((o for o in sorted(self.operations()) if o in _DRAWING), "")


def _static(name: str, aval: ShapedArray) -> tuple[int, ...]:
    """The shape of an argument.

    Raises:
        ArgumentSpecError: a size is not known.
    """
    if not all([type(d) is int for d in aval.shape]):
        msg = f"{name}: an argument of type {aval.str_short()} has sizes that are not known"
        raise ArgumentSpecError(msg, hint="TensorFlow compiles for given sizes: use static shapes")
    return aval.shape


def _aval(name: str, index: int, y: Any) -> ShapedArray:
    """The type of a result, as the engine has it."""
    try:
        dtype = canonicalize(ROWS.ours(y.dtype.name))
    except UnsupportedExchangeDtypeError as error:
        msg = (
            f"{name}: result {index} is a tensor of dtype {y.dtype.name}, which arrays do not have"
        )
        raise CallbackError(msg, hint="return numbers, such as tf.strings.length(x)") from error
    shape = y.shape
    if shape.rank is None or None in shape.as_list():
        msg = f"{name}: the shape of result {index} depends on values: {shape}"
        hint = "declare the types by output_shape_dtype=..., or pad to a size that is known"
        raise CallbackError(msg, hint=hint)
    return ShapedArray(tuple(shape.as_list()), dtype)


def _fitted(name: str, index: int, y: Any, aval: ShapedArray) -> Any:
    """A result in the type that programs expect."""
    y = tf.convert_to_tensor(y)
    wanted = tf_dtype(aval.dtype)
    ours = ROWS.rows.get(y.dtype.name)
    fits = ours is not None and narrowed(ours) == narrowed(aval.dtype)
    if not fits or not y.shape.is_compatible_with(aval.shape):
        raise CallbackError(
            f"{name}: result {index} has another type than expected",
            got=f"{y.dtype.name} of shape {y.shape}",
            expected=aval.str_short(),
        )
    if y.dtype != wanted:
        y = tf.cast(y, wanted)
    return y if y.shape.is_fully_defined() else tf.ensure_shape(y, aval.shape)


def first_line(error: BaseException) -> str:
    """What happened, without the traceback that TensorFlow writes into messages."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    # An error of a function inside begins with "in user code:" and ends with what happened.
    inside = bool(lines) and lines[0].startswith("in user code")
    text = lines[-1].strip() if inside else (lines[0] if lines else "")
    return text if inside else f"{type(error).__name__}: {text}"
