"""A graph under construction: what rules emit operations with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import fx
from torch.fx.proxy import GraphAppendingTracer

from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import stored
from tracebridge.core.ir.values import Literal
from tracebridge.core.lowering.blocks import on_blocks
from tracebridge.core.runtime.arrays.array import Array, as_stored
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.torch._aten.carriers import DType, carrier, host_bits, number, real_of
from tracebridge.torch._aten.finish import finished

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

aten = torch.ops.aten

# What rules are given: Python numbers in the place of literals where they ask for them.
Operand = fx.Proxy | bool | int | float | complex

RULES: dict[str, Rule] = {}
# The name under which there is what writes all other equations; see definition.py.
OTHERS = "others"


@final
class Rule:
    """How the equations of one primitive are written.

    ``emit(b, *operands, **params)`` gives a Proxy, or a list of them where the primitive has
    several results. With ``numbers`` it takes Python numbers in the place of literals.
    """

    __slots__ = ("emit", "numbers")

    def __init__(self, emit: Callable[..., Any], numbers: bool) -> None:
        self.emit = emit
        self.numbers = numbers


def rule(*names: str, numbers: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: the function writes the equations of the primitives ``names``."""

    def register(emit: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            RULES[name] = Rule(emit, numbers)
        return emit

    return register


@final
class SizeOps:
    """Arithmetic of ``dims_evaluate`` on sizes inside a graph."""

    constant = staticmethod(int)

    @staticmethod
    def add(a: Any, b: Any) -> Any:
        return a + b

    @staticmethod
    def mul(a: fx.Proxy, b: Any) -> Any:
        return a * b

    @staticmethod
    def floordiv(a: fx.Proxy, b: Any) -> Any:
        return a // b

    @staticmethod
    def mod(a: fx.Proxy, b: Any) -> Any:
        return a % b

    @staticmethod
    def max(a: fx.Proxy, b: Any) -> Any:
        return _call_on_sizes(torch.sym_max, a, b)

    @staticmethod
    def min(a: fx.Proxy, b: Any) -> Any:
        return _call_on_sizes(torch.sym_min, a, b)


def _call_on_sizes(function: Callable[..., Any], a: Any, b: Any) -> Any:
    tracer = a.tracer if isinstance(a, fx.Proxy) else b.tracer
    return tracer.create_proxy("call_function", function, (a, b), {})


@final
class Builder:
    """Writes one Jaxpr, and those inside it, into a graph.

    ``avals`` and ``outs`` are those of the equation that is written just now; ``aval`` is the
    only result. ``sizes`` has the value of each dimension variable.
    """

    def __init__(self, device: torch.device, sizes: dict[str, Any] | None = None) -> None:
        self.graph = fx.Graph()
        self.root = torch.nn.Module()
        self.tracer = GraphAppendingTracer(self.graph)
        self.device = device
        self.sizes: dict[str, Any] = {} if sizes is None else sizes
        self.avals: tuple[ShapedArray, ...] = ()
        self.outs: tuple[ShapedArray, ...] = ()
        # The operands as the program has them: literals are known numbers.
        self.literals: Sequence[Any] = ()
        self.declared: Sequence[ShapedArray] = ()
        self.app: Any = None
        # Inside the rule of a derivative, whose own derivatives are those of what it computes.
        self.in_tangents = False
        self.is_inner = False  # of a loop or a branch
        self._constants: dict[int, tuple[Any, fx.Proxy]] = {}

    @property
    def aval(self) -> ShapedArray:
        """The only result."""
        return self.outs[0]

    # values ------------------------------------------------------------------------------------

    def placeholder(self, name: str) -> fx.Proxy:
        """The next input of the graph."""
        return fx.Proxy(self.graph.placeholder(name), self.tracer)

    def call(self, target: Callable[..., Any], *args: object, **kwargs: object) -> fx.Proxy:
        """The result of a function that does not write proxies itself."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_all(
        self, target: Callable[..., Any], count: int, *args: object, **kwargs: object
    ) -> list[fx.Proxy]:
        """The results of a function with ``count`` of them."""
        found: Any = self.call(target, *args, **kwargs)
        return [found[i] for i in range(count)]

    def full(self, shape: Sequence[Any], value: Any, dtype: torch.dtype) -> fx.Proxy:
        """A tensor of equal elements."""
        if isinstance(value, complex) and not _has_text(value):
            parts = [self.full(shape, part, real_of(dtype)) for part in (value.real, value.imag)]
            return self.call(aten.complex.default, *parts)
        if not shape:
            return self.call(aten.scalar_tensor.default, value, dtype=dtype, device=self.device)
        return self.call(aten.full.default, [*shape], value, dtype=dtype, device=self.device)

    def filled(self, value: object, aval: ShapedArray) -> fx.Proxy:
        """An array of the type ``aval`` with equal elements."""
        return self.full(self.shape(aval), number(value, aval.dtype), carrier(aval.dtype))

    def arange(self, n: Any, dtype: torch.dtype = torch.int64) -> fx.Proxy:
        """The integers below ``n``."""
        return self.call(aten.arange.default, n, dtype=dtype, device=self.device)

    def constant(self, array: object) -> fx.Proxy:
        """An array that is part of the program, as a buffer of the module."""
        found = self._constants.get(id(array))
        if found is None:
            # Of keys their words.
            if isinstance(array, Array) and is_extended(array.dtype):
                host = np.asarray(as_stored(array))
            else:
                host = np.asarray(array)
            tensor = host_bits(host).to(self.device)
            proxy = self.submodule("constant", tensor)
            found = self._constants[id(array)] = (array, proxy)  # keeps the array, and so its id
        return found[1]

    def submodule(self, name: str, value: torch.Tensor | torch.nn.Module) -> fx.Proxy:
        """A buffer or a graph inside the module, under a name that is free."""
        at = len([n for n in dir(self.root) if n.startswith(f"{name}_")])
        target = f"{name}_{at}"
        if isinstance(value, torch.Tensor):
            self.root.register_buffer(target, value)
        else:
            self.root.add_module(target, value)
        return self.tracer.create_proxy("get_attr", target, (), {})

    def size(self, dim: object) -> Any:
        """A dimension as an int, or as a size inside the graph."""
        return dim if type(dim) is int else dims_evaluate(dim, self.sizes, SizeOps)

    def shape(self, aval: ShapedArray | Sequence[object]) -> list[Any]:
        """The sizes of an aval (or of a shape) inside the graph."""
        sizes: Any = getattr(aval, "shape", aval)
        return [self.size(n) for n in sizes]

    def own(self, x: fx.Proxy) -> Any:
        """A copy in memory of its own, with the elements in order."""
        return self.call(aten.clone.default, x, memory_format=torch.contiguous_format)

    def convert(self, x: fx.Proxy, dtype: torch.dtype) -> Any:
        """``x`` with another dtype of torch, by its rules."""
        return self.call(aten._to_copy.default, x, dtype=dtype)

    # programs ----------------------------------------------------------------------------------

    def inline(self, jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
        """Write the equations of a Jaxpr; gives its results."""
        env: list[Any] = [*args, *jaxpr.consts]
        for app, idx in jaxpr.equations:
            operands = [env[i] for i in idx]
            result = self.equation(app, operands)
            if app.multiple:
                env.extend(result)
            else:
                env.append(result)
        return [self.tensor(env[i]) for i in jaxpr.outs]

    def tensor(self, value: object) -> Any:
        """A value as a proxy: literals and constants are written at their use."""
        if type(value) is Literal:
            return self.filled(value.value, value.aval)
        return value if isinstance(value, fx.Proxy) else self.constant(value)

    def equation(self, app: Application, operands: Sequence[Any]) -> Any:
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
            result = self._written(name, app, operands)
        finally:
            self.avals, self.outs, self.literals, self.declared, self.app = outer
        if result is not NotImplemented:
            return result
        raise without_counterpart(app)

    def _written(self, name: str, app: Application, operands: Sequence[Any]) -> Any:
        xs = [self.tensor(x) for x in operands]
        others = RULES[OTHERS]
        found = RULES.get(name, others)
        if found.numbers:
            xs = _with_numbers(xs, operands)
        result = found.emit(self, *xs, **app.params)
        if result is NotImplemented and found is not others:
            result = others.emit(self, *xs, **app.params)
        return result

    def traced(self, fun: Callable[..., Any], xs: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
        """Write a function of our own operations at arrays of types ``avals``."""
        jaxpr = stage(fun, list(avals), locate=False)
        return self.inline(jaxpr, xs)

    def is_key(self, i: int) -> bool:
        """Whether operand ``i`` is an array of keys, held by its words."""
        return is_extended(self.declared[i].dtype)

    def tensor_of(self, value: Operand, dtype: DType) -> Any:
        """A Python number as a scalar; tensors as they are."""
        return value if isinstance(value, fx.Proxy) else self.full([], value, carrier(dtype))

    def subgraph(
        self,
        write: Callable[[Builder, list[Any]], list[Any]],
        count: int,
        name: str,
        *,
        single: bool = False,
    ) -> fx.Proxy:
        """A graph of its own for an operation that runs it, with ``count`` inputs.

        With ``single`` it gives its only result itself instead of a tuple.
        """
        inner = Builder(self.device)
        xs = [inner.placeholder(f"x{i}") for i in range(count)]
        inner.in_tangents = self.in_tangents
        inner.is_inner = True
        inner.sizes = {name: inner.placeholder(f"size_{name}") for name in self.sizes}
        outs = write(inner, xs)
        # torch's loops and branches forbid results that are inputs, or one another.
        fresh = [inner.own(out) for out in outs]
        return self.submodule(name, inner.module(fresh[0] if single else tuple(fresh)))

    @property
    def more(self) -> tuple[Any, ...]:
        """The last operands of every operation that runs graphs: the symbolic sizes."""
        return tuple(self.sizes.values())

    def module(self, outs: Any) -> fx.GraphModule:
        """The finished graph with these results, any tree of proxies."""
        self.graph.output(_nodes(outs))
        return finished(self.root, self.graph)


def without_counterpart(app: Application) -> MissingRuleError:
    """The error of an equation that torch has no operations for."""
    name, dtypes = app.primitive.name, ", ".join([a.str_short() for a in app.avals])
    return MissingRuleError(
        name,
        message=f"to_graph_module: torch has no operations for {name!r} of {dtypes}",
        hint="use tracebridge.torch.wrap for this function, which runs it by XLA; or compute "
        "that part outside and pass its result as an argument",
    )


def _has_text(value: complex) -> bool:
    """Whether Python code can spell a complex number: not ``inf + nan j``, nor a part of -0.0."""
    parts = value.real, value.imag
    return all([math.isfinite(p) and (p != 0 or math.copysign(1, p) > 0) for p in parts])


def _with_numbers(xs: list[Any], operands: Sequence[Any]) -> list[Any]:
    """Scalar literals as Python numbers, where one operand at least is a tensor."""
    if all([type(o) is Literal for o in operands]):
        return xs
    found = list(xs)
    for i, o in enumerate(operands):
        if type(o) is Literal and not o.aval.ndim:
            value = number(o.value, o.aval.dtype)
            if not isinstance(value, complex) or _has_text(value):
                found[i] = value
    return found


def _nodes(outs: Any) -> Any:
    if isinstance(outs, fx.Proxy):
        return outs.node
    if isinstance(outs, dict):
        return {key: _nodes(value) for key, value in outs.items()}
    if isinstance(outs, tuple):
        # Named tuples become plain ones: their classes may be ours.
        return tuple([_nodes(o) for o in outs])
    return [_nodes(o) for o in outs] if isinstance(outs, list) else outs
