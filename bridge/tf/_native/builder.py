"""A graph under construction: what rules write operations with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
import tensorflow as tf

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.dtypes import float0, is_extended
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import stored
from tracebridge.core.ir.values import Literal
from tracebridge.core.lowering.blocks import on_blocks
from tracebridge.core.runtime.arrays.array import Array, as_stored
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.tf._xla_call_module import tf_dtype, tf_shape

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

# TensorFlow has no stubs: its tensors have no type that a checker knows.
Tensor = Any
# A dtype of NumPy: one of ours.
DType = np.dtype[Any]

COMPUTED = frozenset(
    {
        float0,  # no tangent: held by booleans
        d.bool_,
        *(d.int8, d.int16, d.int32, d.int64, d.uint8, d.uint16, d.uint32, d.uint64),
        *(d.float16, d.bfloat16, d.float32, d.float64, d.complex64, d.complex128),
    }
)

RULES: dict[str, Rule] = {}
# The name under which there is what writes all other equations; see definition.py.
OTHERS = "others"


@final
class Rule:
    """How the equations of one primitive are written.

    ``emit(b, *operands, **params)`` gives a tensor, or a list of them where the primitive has
    several results; NotImplemented where TensorFlow has nothing for these operands. With
    ``spreads`` it takes operands of fewer elements, which TensorFlow repeats itself.
    """

    __slots__ = ("emit", "spreads")

    def __init__(self, emit: Callable[..., Any], spreads: bool) -> None:
        self.emit = emit
        self.spreads = spreads


def rule(*names: str, spreads: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: the function writes the equations of the primitives ``names``."""

    def register(emit: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            RULES[name] = Rule(emit, spreads)
        return emit

    return register


@final
class Spread:
    """An array that is to be repeated: ``x`` has the rank of ``shape``, and ones in it."""

    __slots__ = ("shape", "x")

    def __init__(self, x: Tensor, shape: Sequence[object]) -> None:
        self.x = x
        self.shape = shape


@final
class SizeOps:
    """Arithmetic of ``dims_evaluate`` on sizes inside a graph."""

    constant = staticmethod(int)

    @staticmethod
    def add(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    @staticmethod
    def mul(a: Tensor, b: Tensor) -> Tensor:
        return a * b

    @staticmethod
    def floordiv(a: Tensor, b: Tensor) -> Tensor:
        return a // b

    @staticmethod
    def mod(a: Tensor, b: Tensor) -> Tensor:
        return a % b

    @staticmethod
    def max(a: Tensor, b: Tensor) -> Tensor:
        return max(a, b) if is_static((a, b)) else tf.maximum(a, b)

    @staticmethod
    def min(a: Tensor, b: Tensor) -> Tensor:
        return min(a, b) if is_static((a, b)) else tf.minimum(a, b)


def number(like: Tensor, value: complex) -> Tensor:
    """A scalar of the dtype of a tensor."""
    return tf.constant(np.asarray(value), like.dtype)


def is_static(sizes: Sequence[object]) -> bool:
    """Whether all sizes are known."""
    return all([type(n) is int for n in sizes])


@final
class Missing(dict[str, str]):
    """Primitives that TensorFlow has no operations for, each with the types of its operands."""


@final
class Builder:
    """Writes one Jaxpr, and those inside it, into the graph that is built just now.

    ``avals`` and ``outs`` are those of the equation that is written just now; ``aval`` is the
    only result. ``sizes`` has the value of each dimension variable. What cannot be written is
    collected in ``missing``, and zeros take its place.
    """

    def __init__(self, sizes: dict[str, Tensor] | None = None) -> None:
        self.sizes: dict[str, Tensor] = {} if sizes is None else sizes
        self.avals: tuple[ShapedArray, ...] = ()
        self.outs: tuple[ShapedArray, ...] = ()
        # The operands as the program has them: literals are known numbers.
        self.literals: Sequence[object] = ()
        self.declared: Sequence[ShapedArray] = ()
        self.app: Any = None  # an Application while an equation is written
        self.missing = Missing()
        self._constants: dict[tuple[int, int], tuple[object, object, Tensor]] = {}

    @property
    def aval(self) -> ShapedArray:
        """The only result."""
        return self.outs[0]

    # values ------------------------------------------------------------------------------------

    def full(self, shape: Sequence[object], value: object, dtype: DType) -> Tensor:
        """An array of equal elements."""
        if dtype == float0:  # no tangent: as booleans
            return tf.zeros(self.shape(shape), tf.bool)
        element = tf.constant(np.asarray(value).astype(dtype), tf_dtype(dtype))
        return tf.broadcast_to(element, self.shape(shape)) if len(shape) else element

    def zeros(self, aval: ShapedArray) -> Tensor:
        """Zeros of the type ``aval``."""
        return self.full(aval.shape, 0, aval.dtype)

    def arange(self, n: object) -> Tensor:
        """The integers below ``n``, as ``int32``."""
        return tf.range(self.size(n), dtype=tf.int32)

    def constant(self, array: object) -> Tensor:
        """An array that is part of the program: one constant for each graph that uses it."""
        graph = tf.compat.v1.get_default_graph()
        key = id(array), id(graph)
        found = self._constants.get(key)
        if found is None:
            keys = isinstance(array, Array) and is_extended(array.dtype)
            host = np.asarray(
                as_stored(cast("Array", array)) if keys else array
            )  # of keys their words
            made = tf.constant(host, tf_dtype(host.dtype))
            # With what the key identifies, so that its numbers stay taken.
            found = self._constants[key] = (array, graph, made)
        return found[2]

    def size(self, dim: object) -> Any:
        """A dimension as an int, or as a scalar of ``int32`` inside the graph."""
        return dim if type(dim) is int else dims_evaluate(dim, self.sizes, SizeOps)

    def shape(self, aval: ShapedArray | Sequence[object]) -> list[Any]:
        """The sizes of an aval (or of a shape) inside the graph."""
        sizes: Any = getattr(aval, "shape", aval)
        return [self.size(n) for n in sizes]

    def reshape(self, x: Tensor, shape: Sequence[object]) -> Tensor:
        """``x`` with another shape; with -1 for an only unknown size, which all targets know."""
        sizes = [n if type(n) is int else -1 for n in shape]
        if sizes.count(-1) > 1 or 0 in sizes:
            return tf.reshape(x, self.shape(shape))
        return tf.reshape(x, sizes)

    # programs ----------------------------------------------------------------------------------

    def inline(self, jaxpr: Jaxpr, args: Sequence[object]) -> list[Any]:
        """Write the equations of a Jaxpr; gives its results."""
        env: list[Any] = [*args, *jaxpr.consts]
        for app, idx in jaxpr.equations:
            operands = [env[i] for i in idx]
            with tf.name_scope(app.primitive.name):
                result = self.equation(app, operands)
            if app.multiple:
                env.extend(result)
            else:
                env.append(result)
        return [self.tensor(env[i]) for i in jaxpr.outs]

    def tensor(self, value: object) -> Tensor:
        """A value as a tensor: literals and constants are written at their use."""
        if type(value) is Literal:
            return self.full(value.aval.shape, value.value, value.aval.dtype)
        if isinstance(value, Spread):
            return tf.broadcast_to(value.x, self.shape(value.shape))
        return value if isinstance(value, tf.Tensor) else self.constant(value)

    def equation(self, app: Application, operands: Sequence[object]) -> Any:
        """Write one equation."""
        name = app.primitive.name
        if app.primitive.moves_elements and app.outs and is_extended(app.outs[0].dtype):
            results = self.traced(partial(on_blocks, app), operands, [stored(a) for a in app.avals])
            return results if app.multiple else results[0]
        outer = self.avals, self.outs, self.literals, self.declared, self.app
        self.avals = tuple([stored(a) for a in app.avals])
        self.outs = tuple([stored(a) for a in app.outs])
        self.literals, self.declared, self.app = operands, app.avals, app
        try:
            result = self._written(name, app, operands) if self._computes(name) else NotImplemented
            if result is NotImplemented:
                dtypes = ", ".join([a.str_short() for a in app.avals])
                self.missing.setdefault(name, dtypes)
                result = [self.zeros(a) for a in self.outs]
                result = result if app.multiple else result[0]
            return self._known(result, app.multiple)
        finally:
            self.avals, self.outs, self.literals, self.declared, self.app = outer

    def _computes(self, name: str) -> bool:
        """Whether TensorFlow has operations on these dtypes; others it only stores."""
        return name == "convert_element_type" or all(
            [a.dtype in COMPUTED for a in (*self.avals, *self.outs)]
        )

    def _known(self, result: Any, multiple: bool) -> Any:
        """Results with what is known of their shapes; an assertion on the rule, too."""
        for x, aval in zip(result if multiple else [result], self.outs, strict=True):
            if not isinstance(x, Spread):
                x.set_shape(tf_shape(aval.shape))
        return result

    def _written(self, name: str, app: Application, operands: Sequence[object]) -> Any:
        others = RULES[OTHERS]
        found = RULES.get(name, others)
        whole = not any([isinstance(x, Spread) for x in operands])
        if found.spreads and not whole:
            result = self._spread(found, operands, app.params)
        else:
            result = found.emit(self, *[self.tensor(x) for x in operands], **app.params)
        if result is NotImplemented and found is not others:
            result = others.emit(self, *[self.tensor(x) for x in operands], **app.params)
        return result

    def _spread(self, found: Rule, operands: Sequence[object], params: dict[str, Any]) -> Any:
        """An equation some of whose operands TensorFlow repeats; the whole ones give the shape."""
        shape, full = self.outs[0].shape, None
        for i, (x, aval) in enumerate(zip(operands, self.avals, strict=True)):
            if aval.shape == shape:
                full = i
                if not isinstance(x, Spread):
                    break
        xs = [
            x.x if isinstance(x, Spread) and i != full else self.tensor(x)
            for i, x in enumerate(operands)
        ]
        return found.emit(self, *xs, **params)

    def traced(
        self, fun: Callable[..., Any], xs: Sequence[object], avals: Sequence[ShapedArray]
    ) -> list[Any]:
        """Write a function of our own operations at arrays of types ``avals``."""
        jaxpr = stage(fun, list(avals), locate=False)
        return self.inline(jaxpr, [self.tensor(x) for x in xs])

    def is_key(self, i: int) -> bool:
        """Whether operand ``i`` is an array of keys, held by its words."""
        return is_extended(self.declared[i].dtype)
