"""Calls of functions whose arguments have sizes that vary: padded to few sizes, masked inside.

The function is traced once, at symbolic sizes. Arguments are padded up to a bucket; the program of
a bucket gets the true sizes as numbers, and the masking interpreter keeps the padding out of sums,
maxima and the like. So there is one compilation for each bucket, and the results are those of the
unpadded call.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import torch

from tracebridge._api.args.values import public, short_repr
from tracebridge._api.programs.make_jaxpr import trace_to_jaxpr
from tracebridge.core.config.values import tracing_key
from tracebridge.core.control.calls.traced_call import Arguments
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, MissingRuleError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.shape_struct import struct_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.core.symbolic.scope import SymbolicScope
from tracebridge.core.transforms.masking import control, reductions, shapes
from tracebridge.core.transforms.masking.interpreter import Masker
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.caching import BoundedCache
from tracebridge.torch._crossing.structure import TENSOR

# Imported for the rules that they register.
RULE_MODULES = (control, reductions, shapes)

# Larger sizes are compiled as they are: doubling them costs more than it saves, and functions may
# have to know that products of sizes are in the range of integers.
_LARGEST = 1 << 20

_HINT = (
    "wrap(..., sizes_argname=) gives the sizes to the function, which then looks after the padding "
    "itself; without dynamic_shapes each size is compiled"
)

Axes = tuple[str | None, ...]
"""The names of the axes of one array; None where the size does not vary."""


class Varying(NamedTuple):
    """The options of ``wrap`` about sizes that vary."""

    shapes: tuple[Any, ...]  # for each positional argument
    buckets: tuple[tuple[str, tuple[int, ...]], ...]
    sizes_argname: str | None


def varying_of(call: str, dynamic_shapes: Any, buckets: Any, sizes_argname: Any) -> Varying | None:
    """The options, checked.

    Raises:
        ArgumentSpecError: they are not as ``wrap`` describes them.
    """
    if dynamic_shapes is None:
        if buckets is not None or sizes_argname is not None:
            msg = f"{call}: buckets and sizes_argname are about dynamic_shapes, which is None"
            raise ArgumentSpecError(msg)
        return None
    if not isinstance(dynamic_shapes, tuple | list):
        msg = f"{call}: dynamic_shapes is {short_repr(dynamic_shapes)}"
        raise ArgumentSpecError(msg, expected="a sequence with an entry for each argument")
    rows: list[tuple[str, tuple[int, ...]]] = []
    for name, given in dict(buckets or {}).items():
        sizes = tuple(sorted(given)) if isinstance(given, tuple | list) else ()
        if not sizes or not all([type(n) is int and n > 0 for n in sizes]):
            msg = f"{call}: buckets has {short_repr(given)} for {name!r}"
            raise ArgumentSpecError(msg, expected="a sequence of sizes")
        rows.append((name, sizes))
    return Varying(tuple(dynamic_shapes), tuple(rows), sizes_argname)


def bucket(size: int, buckets: Sequence[int] | None) -> int:
    """The size in memory: the next bucket; beyond them, the next multiple of the last one.

    Without buckets the next power of two.
    """
    if not buckets:
        return 1 << (size - 1).bit_length()
    place = bisect.bisect_left(buckets, size)
    return buckets[place] if place < len(buckets) else -(-size // buckets[-1]) * buckets[-1]


@final
class SizedCalls:
    """The calls of one wrapped function under ``Varying``."""

    def __init__(self, varying: Varying, wrap: Callable[[Any], Any]) -> None:
        self.varying = varying
        self.buckets = dict(varying.buckets)
        self.wrap = wrap
        self.programs: BoundedCache[tuple[SizedProgram, Any]] = BoundedCache(
            "torch programs of any size", 256, register=False
        )
        self.axes: BoundedCache[list[Axes]] = BoundedCache("torch axes", 256, register=False)

    def call(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Whether these sizes can be padded, and the results then."""
        leaves, key = owner.key_of(args, kwargs)
        leaves, kinds = owner.classify(leaves, key)
        tree, statics = key
        axes = self._axes_of(owner, args, tree, statics, leaves)
        sizes = _sizes(f"wrap({owner.__name__})", axes, leaves)
        # Arrays without elements have no last entry to repeat.
        if not sizes or not all([0 < n <= _LARGEST for n in sizes.values()]):
            return False, None
        padded = {name: bucket(n, self.buckets.get(name)) for name, n in sizes.items()}
        xs = [_padded(x, names, padded) for x, names in zip(leaves, axes, strict=True)]
        types = [
            (x.dtype, tuple([name or n for name, n in zip(names, x.shape, strict=True)]))
            if kind == TENSOR
            else kind
            for x, names, kind in zip(leaves, axes, kinds, strict=True)
        ]
        key = (tree, statics, tuple(types), tracing_key())
        found = self.programs.get(key)
        if found is None:
            program = self._program(owner, args, kwargs, tree, axes)
            found = program, self.wrap(program)
            self.programs.set(key, found)
        program, run = found
        return True, program.cut(run(sizes, *xs), sizes)

    def _axes_of(
        self, owner: Any, args: Any, tree: PyTreeDef, statics: Any, leaves: Sequence[Any]
    ) -> list[Axes]:
        ranks = tuple([len(getattr(x, "shape", ())) for x in leaves])
        key = (tree, statics, ranks)
        found = self.axes.get(key)
        if found is None:
            call = f"wrap({owner.__name__})"
            specs = self.varying.shapes
            if len(args) > len(specs):
                msg = f"{call}: dynamic_shapes has {len(specs)} entries for {len(args)} arguments"
                raise ArgumentSpecError(msg, expected="one entry for each positional argument")
            positional, keywords = tree.children()
            dynamic = owner.splitter.layout(len(args))[1]
            texts: list[Any] = []
            for i, child in zip(dynamic, positional.children(), strict=True):
                is_leaf = lambda s: s is None or _is_by_axis(s)  # noqa: E731 (shorter than a def)
                texts += flatten_axes(
                    call,
                    child,
                    specs[i],
                    is_leaf=is_leaf,
                    axes_name=f"dynamic_shapes[{i}]",
                    of_arguments=True,
                )
            texts += [None] * keywords.num_leaves
            found = [_parsed(call, spec, n) for spec, n in zip(texts, ranks, strict=True)]
            self.axes.set(key, found)
        return found

    def _program(
        self, owner: Any, args: Any, kwargs: Any, tree: PyTreeDef, axes: list[Axes]
    ) -> SizedProgram:
        owner.traces += 1
        fun, parameters = owner.bound(args, kwargs)
        return SizedProgram(fun, tree, axes, self.varying.sizes_argname, parameters)


@final
class SizedProgram:
    """``program(sizes, *padded leaves)`` -> padded results, for one kind of arguments."""

    def __init__(
        self,
        fun: Callable[..., Any],
        tree: PyTreeDef,
        axes: Sequence[Axes],
        sizes_argname: str | None,
        parameters: Any,
    ) -> None:
        functools.update_wrapper(self, fun, updated=())
        self.__name__ = name_of(fun)
        self.fun = fun
        self.tree = tree
        self.axes = axes
        self.sizes_argname = sizes_argname
        self.parameters = parameters
        self.traced: tuple[Jaxpr, PyTreeDef] | None = None

    def __call__(self, sizes: Mapping[str, Any], *leaves: Any) -> Any:
        values = [as_value(x) for x in leaves]
        padded: dict[str, int] = {}
        for value, names in zip(values, self.axes, strict=True):
            padded.update({k: n for k, n in zip(names, value.aval.shape, strict=True) if k})
        if self.traced is None:
            self.traced = self._trace(values, sizes)
        jaxpr, tree = self.traced
        if self.sizes_argname is None:
            try:
                return [public(o) for o in Masker(padded, sizes).run(jaxpr, values)]
            except MissingRuleError as error:
                raise MissingRuleError(error.primitive, error.rule, hint=_HINT) from None
        args, kwargs = self.tree.unflatten(leaves)
        outs, returned = flatten(self.fun(*args, **kwargs, **{self.sizes_argname: sizes}))
        assert returned == tree
        return outs

    def _trace(self, values: Sequence[Value], sizes: Mapping[str, Any]) -> tuple[Jaxpr, PyTreeDef]:
        """The function at symbolic sizes."""
        names = sorted({name for row in self.axes for name in row if name})
        scope = SymbolicScope([f"{name} <= {_LARGEST}" for name in names], strict=True)
        structs: list[Any] = []
        for value, row in zip(values, self.axes, strict=True):
            aval = value.aval
            shape = [
                scope.variable(name) if name else n for name, n in zip(row, aval.shape, strict=True)
            ]
            structs.append(struct_of(aval.update(shape=tuple(shape))))
        args, kwargs = self.tree.unflatten(structs)
        if self.sizes_argname is not None:
            numbers = {name: struct_of(as_value(n).aval) for name, n in sizes.items()}
            kwargs = {**kwargs, self.sizes_argname: numbers}
        leaves, tree = flatten((args, kwargs))
        arguments = Arguments(self.fun, leaves, tree, parameters=self.parameters)
        return trace_to_jaxpr("wrap", self.fun, arguments)

    def cut(self, outs: Sequence[torch.Tensor], sizes: Mapping[str, int]) -> Any:
        """The results without what padding made of them."""
        assert self.traced is not None  # the program has run
        jaxpr, tree = self.traced
        results: list[torch.Tensor] = []
        for out, aval in zip(outs, jaxpr.out_avals, strict=True):
            x = out
            for axis, dim in enumerate(aval.shape):
                n = dims_evaluate(dim, sizes)
                if n != x.shape[axis]:
                    x = x.narrow(axis, 0, n)
            results.append(x)
        return tree.unflatten(results)


def _is_by_axis(spec: Any) -> bool:
    return isinstance(spec, Mapping) and bool(spec) and all([type(k) is int for k in spec])


def _parsed(call: str, spec: Any, ndim: int) -> Axes:
    """The names of the axes of one array.

    Raises:
        ArgumentSpecError: it has another number of axes, or this is no list of names.
    """
    if spec is None:
        return (None,) * ndim
    if _is_by_axis(spec):
        known = {axis: getattr(name, "__name__", name) for axis, name in spec.items()}
        names = [known.pop(i, None) for i in range(ndim)]
        fits = not known
    else:
        names = [s.strip() for s in spec.split(",")] if isinstance(spec, str) else []
        names = [] if names == [""] else names
        fits = isinstance(spec, str) and len(names) == ndim
    names = [None if name == "_" else name for name in names]
    if not fits or not all([n is None or (isinstance(n, str) and n.isidentifier()) for n in names]):
        msg = f"{call}: dynamic_shapes has {spec!r} for an argument with {ndim} axes"
        raise ArgumentSpecError(
            msg, expected="names such as 'n, _', one for each axis, or {axis: name}"
        )
    return tuple(names)


def _sizes(call: str, axes: Sequence[Axes], leaves: Sequence[Any]) -> dict[str, int]:
    """The size of each name.

    Raises:
        ShapeMismatchError: axes of one name have different sizes.
    """
    sizes: dict[str, int] = {}
    for names, x in zip(axes, leaves, strict=True):
        for axis, name in enumerate(names):
            if name is not None and sizes.setdefault(name, int(x.shape[axis])) != x.shape[axis]:
                msg = f"{call}: the size {name!r} is {sizes[name]} and {int(x.shape[axis])}"
                raise ShapeMismatchError(msg, expected="equal sizes for a name of dynamic_shapes")
    return sizes


def _padded(x: Any, names: Axes, padded: Mapping[str, int]) -> Any:
    """``x`` with its last entries repeated: what is finite there is so in the padding."""
    if not any(names):
        return x
    tensor = x
    for axis, name in enumerate(names):
        missing = 0 if name is None else padded[name] - tensor.shape[axis]
        if missing:
            last = tensor.narrow(axis, tensor.shape[axis] - 1, 1).detach()
            shape = list(tensor.shape)
            shape[axis] = missing
            tensor = torch.cat([tensor, last.expand(shape)], axis)
    return tensor
