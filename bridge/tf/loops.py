"""Programs as operations that ``tf.vectorized_map`` and ``tape.jacobian`` vectorize.

TensorFlow rewrites the body of such a loop operation by operation. It asks an operation of ours
for its own rule, which is the ``vmap`` of the program; nothing is registered for operations that
others make. Loaded models have no such rule: TensorFlow loops over them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import tensorflow as tf

from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.config.settings import Settings
from tracebridge.core.config.values import option
from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.export.portable import portable_program
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lowering.embedding import CONSUMER_TARGET
from tracebridge.core.symbolic.dims import common_scope, is_static
from tracebridge.core.symbolic.scope import SymbolicScope
from tracebridge.core.util.caching import BoundedCache
from tracebridge.tf._xla_call_module import PLATFORMS, CallModule, stablehlo_target
from tracebridge.tf.recording import not_recording

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.tf.keeping import Module, Write

_LOOPS = "tensorflow.python.ops.parallel_for.pfor"
_MAX_PROGRAMS = 16

Rule = Callable[[Any], list[Any]]
"""What TensorFlow calls for an operation: a loop and inputs to results."""


class Iterations(NamedTuple):
    """Which values differ in each iteration, and the number of them, None where it is unknown."""

    stacked: tuple[bool, ...]
    size: int | None


def _loop_functions() -> tuple[Callable[..., Any], type[Exception]] | None:
    """What wraps a converted tensor, and the error that makes TensorFlow loop."""
    try:
        pfor = importlib.import_module(_LOOPS)
        found = pfor.wrap, pfor.ConversionNotImplementedError
    except (ImportError, AttributeError):
        found = None
    return found


_LOOP_FUNCTIONS = _loop_functions()


def set_rule(outs: Sequence[Any], rule: Callable[[Any, Iterations, list[Any]], list[Any]]) -> None:
    """Let ``rule`` be what TensorFlow calls for the operation of ``outs`` in the body of a loop.

    It gets the loop, what varies in it, and the inputs of the operation for all iterations. It
    returns pairs of the results for all iterations and whether they vary.
    """
    if _LOOP_FUNCTIONS is None or tf.executing_eagerly():
        return
    wrap, give_up = _LOOP_FUNCTIONS

    def convert(loop: Any) -> list[Any]:
        if any([x.is_sparse_stacked for x in loop.inputs]):
            raise give_up("the program has sparse inputs")
        size = tf.get_static_value(loop.pfor.loop_len_vector)
        stacked = tuple([x.is_stacked for x in loop.inputs])
        iterations = Iterations(stacked, None if size is None else int(size[0]))
        try:
            results = rule(loop, iterations, [x.t for x in loop.inputs])
        except TracebridgeError as error:  # such as sizes that are not known; a loop knows them
            raise give_up(str(error)) from error
        return [wrap(out, varies) for out, varies in results]

    outs[0].op.pfor_converter = convert


@final
class Vectorized:
    """The rule of a program's operation: values alone, their derivatives are of its caller."""

    __slots__ = ("_jaxpr", "_modules", "_name", "_names", "_settings", "_write")

    def __init__(self, jaxpr: Jaxpr, name: str, names: Sequence[str], write: Write) -> None:
        self._jaxpr = jaxpr
        self._name = name
        self._names = names
        self._write = write
        self._settings = Settings()
        self._modules: BoundedCache[Module] = BoundedCache(
            f"vectorized programs of {name}", _MAX_PROGRAMS
        )

    def __call__(self, loop: Any, iterations: Iterations, inputs: list[Any]) -> list[Any]:
        """The results of all iterations."""
        del loop
        first = len(inputs) - self._jaxpr.n_in  # constants of the program stand before the inputs
        own = iterations._replace(stacked=iterations.stacked[first:])
        module = self._modules.get(own)
        if module is None:
            with self._settings.again():
                mapped = jaxpr_of_all(self._jaxpr, own)
                module = self._write(mapped, f"vectorized {self._name}", self._names)
            self._modules.set(own, module)
        with not_recording():
            return [(out, any(own.stacked)) for out in module(inputs[first:])]


def jaxpr_of_all(jaxpr: Jaxpr, iterations: Iterations) -> Jaxpr:
    """The program of all iterations; its results are stacked where any input is."""
    stacked, size = iterations
    avals = [a.strong for a in jaxpr.in_avals]
    if not any(stacked):
        return jaxpr
    n: Any = size if size is not None else _new_size([a.shape for a in avals])
    batched = [a.update((n, *a.shape)) if s else a for a, s in zip(avals, stacked, strict=True)]

    def one(*xs: Any) -> tuple[Any, ...]:
        return tuple(eval_jaxpr(jaxpr, current_trace().process, xs))

    def flat(*values: Any) -> list[Any]:
        return list(vmap(one, [0 if s else None for s in stacked])(*values))

    return stage(flat, batched, locate=False)


def _new_size(shapes: Sequence[Sequence[Any]]) -> Any:
    """An unknown number of iterations, beside the sizes of a program."""
    symbolic = [d for shape in shapes for d in shape if not is_static((d,))]
    scope: Any = common_scope(*symbolic) if symbolic else SymbolicScope(least=0)
    used = {name for d in symbolic for name in d.variables()}
    name = "iterations"
    while name in used:
        name += "_"
    return scope.variable(name)


def module_of(
    jaxpr: Jaxpr,
    name: str,
    names: Sequence[str],
    *,
    platforms: Sequence[str] = PLATFORMS,
    disabled_checks: Sequence[str] = (),
    allowed: Sequence[str] = (),
) -> Module:
    """A program as a TensorFlow operation. ``allowed``: custom calls that it may have."""
    portable = portable_program(
        jaxpr,
        name,
        target=stablehlo_target(),
        names=names,
        platforms=platforms,
        allowed=(CONSUMER_TARGET, *allowed),
        located=option("source_locations"),
    )
    call = CallModule(portable, names, disabled_checks)

    write = functools.partial(
        module_of, platforms=platforms, disabled_checks=disabled_checks, allowed=allowed
    )
    rule = Vectorized(jaxpr, name, names, write)

    return XlaModule(call, rule)


@final
class XlaModule:
    """An artifact as a function of tensors, which loops of TensorFlow know how to batch."""

    __slots__ = ("operation", "rule")

    def __init__(self, operation: CallModule, rule: Vectorized) -> None:
        self.operation = operation
        self.rule = rule

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """The results at ``tensors``."""
        outs = self.operation(tensors)
        if outs:
            set_rule(outs, self.rule)
        return outs

    def replaced(self, outs: Sequence[Any], wider: Module) -> list[Any] | None:
        """``outs`` and the further results of ``wider``, which takes the place of this one.

        None where it cannot.
        """
        if not isinstance(wider, XlaModule):
            return None
        more = self.operation.replaced(outs, wider.operation)
        if more is not None:
            set_rule(more, wider.rule)
        return more
