"""Programs of functions at shapes with unknown sizes, which may be 0 where the trace allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import tensorflow as tf

from tracebridge._api.programs.make_jaxpr import trace_to_jaxpr
from tracebridge.core.config.wide import at_least
from tracebridge.core.control.calls.traced_call import Arguments
from tracebridge.core.dtypes.width import width_of, with_numbers
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import parameter_names
from tracebridge.core.ir.float0 import has_float0, is_float0
from tracebridge.core.symbolic.dims import is_static
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.tf import shapes as shape_rules
from tracebridge.tf.keeping import Write
from tracebridge.tf.loops import module_of
from tracebridge.tf.program import Program

_UNDECIDED = (InconclusiveDimensionError, ShapeMismatchError)

Shapes = list[tuple[Any, ...]]


class _StandIn(NamedTuple):
    """An argument of which only the aval is known. Unlike those of users it keeps 64 bits."""

    aval: ShapedArray


class Traced(NamedTuple):
    """A program with the structure of its results, and the shapes that it was traced for."""

    program: Program
    out_tree: PyTreeDef
    has_float0: bool
    shapes: Shapes

    def result(self, outs: Sequence[object]) -> Any:
        """The tree of results. What has no tangent, dtype float0, is False for TensorFlow."""
        out = self.out_tree.unflatten(outs)
        return tree_map(_without_float0, out) if self.has_float0 else out


def _without_float0(x: Any) -> Any:
    return tf.zeros(x.shape, tf.bool) if is_float0(x) else x


@final
class Request:
    """What is to be traced: a function at the leaves of ``(args, kwargs)``.

    ``dtypes``: of each leaf, and whether it is weakly typed. ``sizes``: the shapes of the leaves as
    far as they are known. ``specs`` and ``constraints`` are those of ``polymorphic_shapes``.
    ``write`` makes the artifacts.
    """

    def __init__(
        self,
        call: str,
        fun: Callable[..., object],
        tree: PyTreeDef,
        names: Sequence[str],
        dtypes: Sequence[tuple[np.dtype[Any], bool]],
        sizes: Sequence[shape_rules.TensorShape],
        specs: Sequence[str | None],
        constraints: Sequence[str],
        write: Write = module_of,
    ) -> None:
        self.call = call
        self.write = write
        self.fun = fun
        self.tree = tree
        self.names = names
        self.dtypes = dtypes
        self.sizes = sizes
        self.specs = specs
        self.constraints = constraints
        self.connected = False  # see Program

    def symbolic(self, least: int, note: str = "") -> Shapes:
        """The shapes of the avals, with symbols for sizes of at least ``least``."""
        if not shape_rules.is_dynamic(self.sizes, self.specs):
            return [tuple(size or ()) for size in self.sizes]
        given = self.sizes, self.specs, self.names, self.constraints
        return shape_rules.symbolic_shapes(self.call, *given, least, note)

    def trace(self) -> Traced:
        """The program for sizes of at least 0, or of at least 1 where it cannot be traced so.

        The same goes for its derivatives, which may need more than the function.

        Raises:
            InconclusiveDimensionError: the trace depends on other relations of unknown sizes.
        """
        shapes = self.symbolic(0)
        if all(map(is_static, shapes)):
            return self._at(shapes)
        strict = shape_rules.includes_zero(self.constraints)
        try:
            traced = self._at(shapes)
        except _UNDECIDED as error:
            if strict:
                raise shape_rules.undecided(self.call, error, shapes, self.names) from error
            return self.not_empty(error)
        reason = shape_rules.refuses_zero(shapes) if strict else None
        if reason is not None:
            raise shape_rules.undecided(self.call, reason, shapes, self.names)
        if not strict:
            traced.program.retrace = lambda error: self.not_empty(error).program
        return traced

    def not_empty(self, reason: Exception) -> Traced:
        """The program for sizes of at least 1, because of an error at sizes that may be 0."""
        note = (
            f": the trace needs it ({shape_rules.reason_of(reason)}). Give a size of 0 to a program"
            " of its own, with that size in its signature"
        )
        shapes = self.symbolic(1, note)
        try:
            return self._at(shapes)
        except _UNDECIDED as error:
            raise shape_rules.undecided(self.call, error, shapes, self.names) from error

    def alone(self) -> Traced:
        """The program for known sizes only."""
        return self._at([tuple(size or ()) for size in self.sizes])

    def _at(self, shapes: Shapes) -> Traced:
        avals = [
            ShapedArray(shape, dtype, weak_type=weak)
            for shape, (dtype, weak) in zip(shapes, self.dtypes, strict=True)
        ]
        leaves: list[Any] = [_StandIn(aval) for aval in avals]
        parameters = parameter_names(self.fun)
        arguments = Arguments(self.fun, leaves, self.tree, parameters=parameters)
        wide = width_of([a.dtype for a in avals if not a.weak_type])
        wide = with_numbers(wide, [a.dtype for a in avals if a.weak_type])
        with at_least(wide):
            jaxpr, out_tree = trace_to_jaxpr(self.call, self.fun, arguments)
            template = flatten(out_tree.unflatten([0] * out_tree.num_leaves))[0]
            program = Program(self.call, jaxpr, self.names, self.write)
            program.connected = self.connected
        return Traced(program, out_tree, has_float0(template), shapes)
