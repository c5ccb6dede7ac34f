"""``to_graph_module``: a function of arrays as a graph of torch's own operations."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as torch_tree

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.symbolic import symbolic_args_specs
from tracebridge._api.args.values import short_repr
from tracebridge._api.programs.make_jaxpr import make_jaxpr
from tracebridge.core.config.wide import at_least
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.transform_errors import JaxprTypeError
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.symbolic.scope import SymbolicScope
from tracebridge.core.symbolic.solve import size_name, solve_dim_variables
from tracebridge.torch._aten import families as _families  # pyright: ignore[reportUnusedImport]  # noqa: F401 - registers the rules
from tracebridge.torch._aten.builder import Builder, SizeOps, aten
from tracebridge.torch._aten.carriers import OF_TORCH, carrier, exact, is_carried, is_wide_unsigned
from tracebridge.torch._aten.finish import of_their_own
from tracebridge.torch._crossing.numbers import width_beside


def to_graph_module(
    fun: Any, example_args: Sequence[Any], dynamic_shapes: Sequence[Any] | None = None
) -> fx.GraphModule:
    """A function of arrays as a ``torch.fx.GraphModule`` of ATen operations.

    ``fun`` is traced once, and each of its operations is written as operations of torch that
    give the same results. The module needs neither XLA nor this package: ``torch.compile`` fuses
    it with what is around it, ``torch.export`` takes it, and its gradients are torch's. Constants
    of the function are its buffers. Results have memory of their own. A tensor of another shape
    than the example's is an ``AssertionError``.

    Loops and branches become torch's ``while_loop``, ``scan`` and ``cond``. Of loops torch has
    first derivatives; its second ones lack terms, so take one by ``grad`` in ``fun``. Rules of
    ``custom_jvp`` and ``custom_vjp`` functions give the first and the second derivatives; later
    ones are torch's derivatives of the rule. Where a rule guards a place at which it has no finite
    derivative itself, the second derivative is 0. A backward rule must be linear in the cotangents.

    The module can be pickled; with loops or branches its pickle needs this package to be read,
    while ``torch.export.save`` never does.

    Args:
        fun: function of arrays and of dicts, lists and tuples of them.
        example_args: its arguments: tensors, arrays, ``ShapeDtypeStruct`` or Python numbers, and
            dicts, lists and tuples of them. The module takes tensors of these dtypes and shapes.
        dynamic_shapes: for each argument None, or which of its sizes vary: a string such as
            ``"batch, _"``, a dict ``{axis: name}`` with a name or ``torch.export.Dim``, or a tree
            of those like the argument. Sizes of the same name are equal.

    Returns:
        The module. It takes the arguments of ``fun``, and gives its results as tensors.

    Raises:
        MissingRuleError: torch has no operations for one of those of ``fun``.
        CustomRuleError: a backward rule is not linear in the cotangents.
        JaxprTypeError: ``fun`` has effects, such as callbacks.
        ArgumentTypeError: an example is nothing of the kind above.
        ArgumentValueError: ``dynamic_shapes`` does not fit the arguments.

    >>> import torch
    >>> import tracebridge.numpy as tnp
    >>> import tracebridge.torch
    >>> f = lambda x: tnp.sin(x) * 2
    >>> module = tracebridge.torch.to_graph_module(f, (torch.ones(2),))
    >>> print(module.code.strip())
    def forward(self, x0):
        getattr_1 = x0.shape
        eq = getattr_1 == (2,);  getattr_1 = None
        _assert = torch._assert(eq, 'x0 has not the shape (2,) of this graph');  eq = _assert = None
        sin_default = torch.ops.aten.sin.default(x0);  x0 = None
        mul_tensor = torch.ops.aten.mul.Tensor(sin_default, 2.0);  sin_default = None
        return mul_tensor
    """
    check_callable("to_graph_module", fun)
    if not isinstance(example_args, tuple | list):
        msg = (
            f"to_graph_module: example_args is {short_repr(example_args)}, expected a tuple with "
            "one example for each argument"
        )
        raise ArgumentTypeError(msg)
    try:
        return _Writing(fun, tuple(example_args), dynamic_shapes).module()
    except Exception as error:
        hide_internal_frames(error)
        raise


class _Writing:
    """One call of ``to_graph_module``."""

    def __init__(self, fun: Any, args: tuple[Any, ...], dynamic_shapes: Any) -> None:
        self.fun = fun
        pairs, self.tree = torch_tree.tree_flatten_with_path(args)
        # torch counts None as a leaf.
        self.given = [leaf is not None for _, leaf in pairs]
        self.paths: list[Any] = [path for path, leaf in pairs if leaf is not None]
        self.leaves = [leaf for _, leaf in pairs if leaf is not None]
        self.count = len(args)
        devices = {x.device for x in self.leaves if isinstance(x, torch.Tensor)}
        if len(devices) > 1:
            msg = (
                f"to_graph_module: the examples are on several devices: {sorted(map(str, devices))}"
            )
            raise ArgumentValueError(msg, hint="move them to one device")
        self.b = Builder(devices.pop() if devices else torch.device("cpu"))
        self.structs = _with_names(
            [self._struct(i) for i in range(len(self.leaves))], args, dynamic_shapes
        )
        self.out_tree: Any = None
        self.is_result: list[bool] = []

    def module(self) -> fx.GraphModule:
        """The graph of the program of ``fun``."""
        dtypes = [x.dtype for x in self.leaves if isinstance(x, torch.Tensor)]
        with at_least(width_beside(dtypes)):
            jaxpr = make_jaxpr(self._flat)(*self.structs).jaxpr
        if jaxpr.effects:
            names = ", ".join(sorted({str(e) for e in jaxpr.effects}))
            msg = f"to_graph_module: graphs of torch have no effects, the function has {names}"
            raise JaxprTypeError(msg, hint="use tracebridge.torch.wrap for this function")
        inputs = self._inputs(jaxpr.in_avals)
        outs = self.b.inline(jaxpr, inputs)
        outs = [self._given(x, a) for x, a in zip(outs, jaxpr.out_avals, strict=True)]
        outs = of_their_own(outs, self.b.own)
        return self.b.module(_with_nones(outs, self.is_result, self.out_tree))

    def _flat(self, *leaves: Any) -> list[Any]:
        out = self.fun(*_with_nones(leaves, self.given, self.tree))
        outs, self.out_tree = torch_tree.tree_flatten(out)
        self.is_result = [o is not None for o in outs]
        return [o for o in outs if o is not None]

    def _struct(self, i: int) -> Any:
        leaf = self.leaves[i]
        if isinstance(leaf, torch.Tensor):
            dtype = OF_TORCH.get(leaf.dtype)
            if dtype is not None:
                return ShapeDtypeStruct(tuple(leaf.shape), dtype)
        elif isinstance(leaf, Array | np.ndarray | np.generic | ShapeDtypeStruct):
            exact(leaf.dtype)
            return ShapeDtypeStruct(leaf.shape, leaf.dtype)
        elif isinstance(leaf, bool | int | float | complex):
            return leaf
        where = "".join([str(key) for key in self.paths[i]])
        msg = f"to_graph_module: example_args{where} is {short_repr(leaf)}"
        raise ArgumentTypeError(
            msg, expected="a tensor of numbers, an array, a ShapeDtypeStruct or a number"
        )

    def _inputs(self, avals: Sequence[Any]) -> list[Any]:
        """The leaves of the arguments inside the graph, with symbolic sizes found."""
        b = self.b
        places = [b.placeholder(f"x{i}") for i in range(self.count)]
        tensors: list[Any] = []
        for path in self.paths:
            value = places[path[0].idx]
            for key in path[1:]:
                if isinstance(key, torch_tree.GetAttrKey):
                    value = b.call(getattr, value, key.name)
                else:
                    at = key.key if isinstance(key, torch_tree.MappingKey) else key.idx
                    value = b.call(operator.getitem, value, at)
            tensors.append(value)
        if any([type(n) is not int for a in avals for n in a.shape]):
            # torch.vmap has no rule for the operator that says a size.
            shapes = [b.call(getattr, x, "shape") for x in tensors]
            sizes = {
                size_name(i, axis): b.call(operator.getitem, shapes[i], axis)
                for i, a in enumerate(avals)
                for axis in range(a.ndim)
            }
            solution = solve_dim_variables([a.shape for a in avals])
            env = solution.bind(sizes, SizeOps)
            b.sizes = {name: env[name] for name in solution.sources}
        for i, (x, a) in enumerate(zip(tensors, avals, strict=True)):
            if not isinstance(self.leaves[i], bool | int | float | complex):
                self._check_shape(x, a, self.paths[i])
        return [self._taken(x, a, i) for i, (x, a) in enumerate(zip(tensors, avals, strict=True))]

    def _check_shape(self, x: Any, aval: Any, path: Any) -> None:
        """The graph refuses another shape: what it computes would be something else."""
        b = self.b
        where = f"x{path[0].idx}" + "".join([str(key) for key in path[1:]])
        shape = ", ".join([str(n) for n in aval.shape]) + "," * (aval.ndim == 1)
        has_it = b.call(operator.eq, b.call(getattr, x, "shape"), tuple(b.shape(aval)))
        b.call(torch._assert, has_it, f"{where} has not the shape ({shape}) of this graph")

    def _taken(self, x: Any, aval: Any, i: int) -> Any:
        """An input as the graph computes with it."""
        b, dtype = self.b, aval.dtype
        if isinstance(self.leaves[i], bool | int | float | complex):
            return b.call(aten.scalar_tensor.default, x, dtype=carrier(dtype), device=b.device)
        if is_wide_unsigned(dtype):
            return b.call(aten.view.dtype, x, torch.int64)
        return b.convert(x, carrier(dtype)) if is_carried(dtype) else x

    def _given(self, x: Any, aval: Any) -> Any:
        """A result in the dtype that it has for others."""
        dtype = aval.dtype
        if is_wide_unsigned(dtype):
            return self.b.call(aten.view.dtype, x, torch.uint64)
        return self.b.convert(x, exact(dtype)) if is_carried(dtype) else x


def _with_nones(leaves: Sequence[Any], here: Sequence[bool], tree: Any) -> Any:
    """The tree of these leaves, with None where nothing is here."""
    remaining = iter(leaves)
    return torch_tree.tree_unflatten([next(remaining) if h else None for h in here], tree)


def _with_names(structs: list[Any], args: tuple[Any, ...], dynamic_shapes: Any) -> list[Any]:
    """The stand-ins with names in the place of sizes that vary."""
    if dynamic_shapes is None:
        return structs
    if isinstance(dynamic_shapes, Mapping) or len(dynamic_shapes) != len(args):
        msg = (
            f"to_graph_module: dynamic_shapes is {short_repr(dynamic_shapes)}, expected one entry "
            f"for each of the {len(args)} arguments"
        )
        raise ArgumentValueError(msg)
    specs: list[Any] = []
    for arg, spec in zip(args, dynamic_shapes, strict=True):
        specs.extend(_specs(arg, spec))
    scope = SymbolicScope(strict=True)
    return [
        struct if spec is None else symbolic_args_specs(struct, spec, scope=scope)
        for struct, spec in zip(structs, specs, strict=True)
    ]


def _specs(arg: Any, spec: Any) -> list[str | None]:
    """One specification for each leaf of an argument."""
    leaves = [leaf for leaf in torch_tree.tree_leaves(arg) if leaf is not None]
    if spec is None or isinstance(spec, str) or _is_by_axis(spec):
        return [_text(leaf, spec) for leaf in leaves]
    if isinstance(arg, dict) and isinstance(spec, Mapping):
        return [s for name, part in arg.items() for s in _specs(part, spec.get(name))]
    if isinstance(arg, tuple | list) and isinstance(spec, tuple | list) and len(arg) == len(spec):
        return [s for part, own in zip(arg, spec, strict=True) for s in _specs(part, own)]
    msg = f"to_graph_module: dynamic_shapes has {short_repr(spec)} for {short_repr(arg)}"
    raise ArgumentValueError(
        msg, expected="None, a string, a dict {axis: name} or a tree like the argument"
    )


def _is_by_axis(spec: Any) -> bool:
    return isinstance(spec, Mapping) and all([isinstance(key, int) for key in spec])


def _text(leaf: Any, spec: Any) -> str | None:
    """``{0: "batch"}`` as ``"batch, _"``."""
    if spec is None or isinstance(spec, str):
        return spec
    shape: tuple[Any, ...] = tuple(getattr(leaf, "shape", ()))
    names = ["_"] * len(shape)
    for axis, name in spec.items():
        if not -len(shape) <= axis < len(shape):
            msg = f"to_graph_module: dynamic_shapes names axis {axis} of the shape {shape}"
            raise ArgumentValueError(msg)
        if name is None or name is torch.export.Dim.STATIC:
            continue
        text = name if isinstance(name, str) else getattr(name, "__name__", None)
        if isinstance(name, int) and name == shape[axis]:
            text = "_"
        if text is None:
            size = shape[axis]
            msg = f"to_graph_module: dynamic_shapes has {name!r} for axis {axis} of size {size}"
            raise ArgumentValueError(msg, expected="a name, a torch.export.Dim, or None")
        names[axis] = text
    return ", ".join(names)
