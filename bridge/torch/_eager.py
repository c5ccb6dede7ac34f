"""The fast path: plain eager tensors go straight into executables, and autograd is one node.

``call(family, leaves)`` decides. Tensors that are more than memory (fake, functorch, subclasses,
duals), and calls under a dispatch mode, go through the operator of _operator.py, which composes
with everything and costs some 30 us more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch.autograd import forward_ad

from tracebridge.core.config.scopes import fast_path_allowed, state, tracing_key
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.debug import check_finite
from tracebridge.interop.dtypes import FROM_TORCH, row_from
from tracebridge.interop.torch_adapter import (
    DTYPES,
    EXACT,
    TORCH_DTYPES,
    modes_active,
    torch_adapter,
)
from tracebridge.torch._dense import Places, make_dense, ready
from tracebridge.torch._dependence import attached, paths_of, reached
from tracebridge.torch._execute import Run, make_run, placement_for
from tracebridge.torch._forward_only import split_if_possible
from tracebridge.torch._names import types_of
from tracebridge.torch._programs import Family, Mask, resolve, settings_of, vjp_handle
from tracebridge.torch._residuals import from_values
from tracebridge.torch._symbolic import aval_of_text

MAX_RUNS = 4096  # of one family
transforms_active = torch._C._are_functorch_transforms_active
grad_enabled = torch.is_grad_enabled
is_compiling = torch.compiler.is_dynamo_compiling


def is_special() -> bool:
    """Whether this thread is in a state in which tensors may be more than they seem."""
    if transforms_active() or modes_active() > 0 or forward_ad._current_level >= 0:
        return True
    # torch.jit.trace records operators; what bypasses them would be a constant of its graph.
    return torch._C._get_tracing_state() is not None  # pyright: ignore[reportUnnecessaryComparison] - the stubs forget None


def aval_of(x: torch.Tensor) -> ShapedArray:
    """Shape and dtype of a tensor.

    Raises:
        UnsupportedExchangeDtypeError: the engine has no such dtype.
    """
    dtype = DTYPES.get(x.dtype)
    if dtype is None:
        dtype = row_from(FROM_TORCH, str(x.dtype).removeprefix("torch."), "torch").ours
    return ShapedArray(tuple([int(d) for d in x.shape]), dtype)


@final
class Compiled:
    """A family at dtypes, shapes and a device: executables for each kind of call."""

    __slots__ = ("avals", "detached", "family", "jaxpr", "nodes", "numbers", "run", "where")

    def __init__(
        self, family: Family, avals: tuple[ShapedArray, ...], where: Any, numbers: Mask
    ) -> None:
        self.family = family
        self.avals = avals
        self.where = where
        self.numbers = numbers
        self.jaxpr = family.program(avals)
        with settings_of(self.jaxpr):
            self.run = checked(make_run(self.jaxpr, family.name, where, numbers), family.name)
        self.nodes: dict[Mask, Node] = {}
        # Sets of inputs that no result depends on: calls that want these gradients have no node.
        self.detached: set[Mask] = set()

    def clear(self) -> None:
        """Drop the executables of graphs that still wait for their backward pass."""
        for node in list(self.nodes.values()):
            node.backwards.clear()

    def node(self, active: Mask) -> Node | None:
        """The autograd node for gradients of the inputs ``active``; None if it had none to give."""
        found = self.nodes.get(active)
        if found is None and active not in self.detached:
            with self.family.lock:
                found = self.nodes.get(active)
                if found is None:
                    if not any(attached(active, paths_of(self.jaxpr))):
                        self.detached.add(active)
                        return None
                    with settings_of(self.jaxpr):
                        found = self.nodes[active] = Node(self, active)
        return found


@final
class Node:
    """What the autograd function needs for one set of inputs that want gradients."""

    __slots__ = (
        "active",
        "attached",
        "backwards",
        "compiled",
        "detached",
        "forward",
        "has_numbers",
        "in_graph",
        "n_extra",
        "n_out",
        "parts",
        "paths",
        "saved_inputs",
        "sources",
    )

    def __init__(self, compiled: Compiled, active: Mask) -> None:
        self.compiled = compiled
        self.paths = paths_of(compiled.jaxpr)
        self.n_out = len(self.paths)
        # The inputs that get a gradient, and the results whose cotangents they come from.
        self.active = reached(active, self.paths, (True,) * self.n_out)
        self.attached = attached(active, self.paths)
        self.detached = [i for i, here in enumerate(self.attached) if not here]
        self.sources = [i for i, here in enumerate(self.attached) if here]
        family = compiled.family
        self.parts = split_if_possible(family, self.active, compiled.avals)
        if self.parts.n_residuals:
            self.forward = checked(
                make_run(self.parts.forward, family.name, compiled.where, compiled.numbers),
                family.name,
            )
        else:
            self.forward = compiled.run
        # Numbers cannot be saved as tensors: they stay in the context.
        extra = [i for i in self.parts.redo if i not in self.parts.inputs]
        self.saved_inputs = [i for i in (*self.parts.inputs, *extra) if not compiled.numbers[i]]
        self.n_extra = len(extra)
        self.has_numbers = any(compiled.numbers)
        # By the results that have cotangents, and which of these are given as one value.
        self.backwards: dict[tuple[Mask, Places], Run] = {}
        self.in_graph = self._describe()

    def _describe(self) -> tuple[Any, ...]:
        """For ``_graph_backward``: where each input of the pullback comes from, and its handle.

        Nothing but constants, which Dynamo can build into a graph.
        """
        compiled = self.compiled
        sources: list[tuple[str, Any, torch.dtype]] = []
        for i, aval in enumerate(compiled.avals):
            dtype = TORCH_DTYPES[aval.dtype]
            if compiled.numbers[i]:
                sources.append(("number", i, dtype))
            elif i in self.saved_inputs:
                sources.append(("saved", self.saved_inputs.index(i), dtype))
            else:
                sources.append(("unused", aval.shape, dtype))
        types = types_of(compiled.avals)
        return tuple(sources), self.active, self.paths, compiled.family.handle, types

    def everything(
        self, leaves: Sequence[torch.Tensor], values: Places = ()
    ) -> Sequence[torch.Tensor]:
        """Gradients from all saved tensors and a cotangent of each result that can have one.

        The cotangents at ``values`` are the one value of all their elements.
        """
        if self.n_extra:
            n = len(self.parts.inputs)
            leaves = [*leaves[:n], *leaves[n + self.n_extra :]]
        run = self.backwards.get((self.attached, values))
        return (self.backward(self.attached, values) if run is None else run)(leaves)

    def reached(self, cotangents: Mask) -> Mask:
        """The inputs that get a gradient from these cotangents."""
        if cotangents == self.attached:
            return self.active
        return reached(self.active, self.paths, cotangents)

    def backward(self, cotangents: Mask, values: Places) -> Run:
        """The executable ``(saved values, cotangents) -> gradients`` of ``reached`` inputs."""
        key = cotangents, values
        found = self.backwards.get(key)
        if found is None:
            with settings_of(self.compiled.jaxpr):
                found = self.backwards[key] = self._compile_backward(cotangents, values)
        return found

    def _compile_backward(self, cotangents: Mask, values: Places) -> Run:
        compiled = self.compiled
        program = self.parts.backward_for(cotangents)
        pairs = zip(self.active, self.reached(cotangents), strict=True)
        program, _ = dce_jaxpr(program, tuple([here for a, here in pairs if a]), keep_in=True)
        if values:
            n_saved = program.n_in - sum(cotangents)
            program = from_values(program, {n_saved + i for i in values})
        numbers = [compiled.numbers[i] for i in self.parts.inputs]
        numbers += [False] * (program.n_in - len(numbers))
        name = f"{compiled.family.name}_backward"
        return checked(make_run(program, name, compiled.where, tuple(numbers)), name)


def gradients(results: Sequence[torch.Tensor], wanted: Mask) -> tuple[Any, ...]:
    """What the autograd function returns: one entry for the node, one for each leaf."""
    if all(wanted):
        return (None, *results)
    found = iter(results)
    return (None, *[next(found) if w else None for w in wanted])


def checked(run: Run, name: str) -> Run:
    """``run``, with the checks that debugging options ask for."""

    def run_checked(leaves: Sequence[Any]) -> list[torch.Tensor]:
        results = run(leaves)
        check_finite([torch_adapter.import_(r) for r in results], name)
        return results

    return run if fast_path_allowed() else run_checked


@final
class Call(torch.autograd.Function):
    """One call with gradients. Applied by ``apply_call``, never by ``Call.apply``."""

    @staticmethod
    def forward(ctx: Any, node: Node, *leaves: Any) -> tuple[torch.Tensor, ...]:
        outs = node.forward(leaves)
        n_out = node.n_out
        parts = node.parts
        ctx.node = node
        # Numbers cannot be saved as tensors.
        ctx.numbers = (
            [None if isinstance(x, torch.Tensor) else x for x in leaves]
            if node.has_numbers
            else None
        )
        ctx.save_for_backward(
            *[leaves[i] for i in node.saved_inputs],
            *[outs[i] for i in parts.results],
            *outs[n_out:],
        )
        ctx.set_materialize_grads(False)
        if node.detached:
            ctx.mark_non_differentiable(*[outs[i] for i in node.detached])
        return tuple(outs[:n_out])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        node: Node = ctx.node
        saved = ctx.saved_tensors
        if is_compiling():
            return (None, *_graph_backward(node.in_graph, saved, ctx.numbers, grads))
        try:
            return _gradients_of(node, saved, ctx.numbers, grads)
        except Exception as error:
            hide_internal_frames(error)
            raise


apply_call = super(torch.autograd.Function, Call).apply  # pyright: ignore[reportAttributeAccessIssue] - of torch._C, no stubs


def _gradients_of(
    node: Node, saved: Sequence[torch.Tensor], numbers: Sequence[Any] | None, grads: Sequence[Any]
) -> tuple[Any, ...]:
    """What the backward pass gives torch: None, then a gradient or None for each leaf."""
    if numbers is None and not grad_enabled() and not is_special():
        given = [grads[i] for i in node.sources] if node.detached else grads
        leaves = [*saved, *given]
        values = make_dense(leaves, len(saved))
        if values is not None:
            # The common case: all results have a cotangent, all tensors are plain.
            return gradients(node.everything(leaves, values), node.active)
    mask = tuple([g is not None for g in grads])
    if not any(mask):
        return (None,) * (len(node.active) + 1)
    given = [g for g in grads if g is not None]
    results = _general_backward(node, saved, numbers, given, mask)
    return gradients(results, node.reached(mask))


def _general_backward(
    node: Node,
    saved: Sequence[torch.Tensor],
    numbers: Sequence[Any] | None,
    given: Sequence[torch.Tensor],
    mask: Mask,
) -> Sequence[torch.Tensor]:
    """A backward pass for some results, or with unusual tensors, or itself differentiated."""
    if grad_enabled() or is_special():
        return _backward_again(node, saved, numbers, given, mask)
    dense: list[Any] = [*saved, *given]
    values = make_dense(dense, len(saved))
    if values is None:
        return _backward_again(node, saved, numbers, given, mask)
    n_saved, n_inputs = len(saved), len(node.saved_inputs)
    found = dict(zip(node.saved_inputs, dense, strict=False))
    inputs = [found[i] if i in found else numbers[i] for i in node.parts.inputs]  # type: ignore[index]  # who is not saved is a number
    return node.backward(mask, values)([*inputs, *dense[n_inputs:n_saved], *dense[n_saved:]])


# What may be larger than the dtype holds is rounded to infinity by a cast, refused by ``full``.
_EXACT_FIRST = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def scalar_tensor(x: Any, dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """A Python number as a tensor without axes. Dynamo reads these lines."""
    if dtype in _EXACT_FIRST:
        return torch.full((), x, dtype=_EXACT_FIRST[dtype], device=device).to(dtype)
    return torch.full((), x, dtype=dtype, device=device)


def _pullback_inputs(
    sources: Sequence[Any], saved: Sequence[Any], numbers: Any, device: torch.device
) -> list[torch.Tensor]:
    """The inputs of the function, as far as its pullback needs them. Dynamo reads these lines."""
    leaves: list[torch.Tensor] = []
    for kind, place, dtype in sources:
        if kind == "saved":
            leaves.append(saved[place])
        elif kind == "number":
            leaves.append(scalar_tensor(numbers[place], dtype, device))
        else:
            # Any memory of that shape does, and this takes none.
            leaves.append(torch.zeros((), dtype=dtype, device=device).expand(place))
    return leaves


def _graph_backward(
    described: tuple[Any, ...], saved: Sequence[Any], numbers: Any, grads: Sequence[Any]
) -> list[Any]:
    """A backward pass that compiled autograd is tracing; Dynamo reads these lines."""
    sources, active, paths, handle, types = described
    mask = [g is not None for g in grads]
    if not any(mask):
        return [None] * len(active)
    wanted = reached(active, paths, mask)
    given = [g for g in grads if g is not None]
    leaves = _pullback_inputs(sources, saved, numbers, given[0].device)
    captured = _captured(handle, types)
    results = iter(OPERATOR[0]([*leaves, *given], vjp_handle(captured, wanted, mask)))
    return [next(results) if w else None for w in wanted]


@torch._dynamo.assume_constant_result
def _captured(handle: str, types: tuple[str, ...]) -> str:
    """The handle for a graph that is kept: with the fingerprint of the program at these types."""
    return resolve(handle).captured(tuple([aval_of_text(text) for text in types]))


def _backward_again(
    node: Node,
    saved: Sequence[torch.Tensor],
    numbers: Sequence[Any] | None,
    given: Sequence[torch.Tensor],
    mask: Mask,
) -> Sequence[torch.Tensor]:
    """A backward pass as a differentiable function of the inputs and the cotangents."""
    compiled = node.compiled
    leaves = _pullback_inputs(node.in_graph[0], saved, numbers, given[0].device)
    # Of the same program, whatever options are in force by now, or on this thread.
    with settings_of(compiled.jaxpr):
        return call(compiled.family.vjp(node.reached(mask), mask), [*leaves, *given])


def call(family: Family, xs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Apply a family to tensors, in whatever state torch is."""
    if is_special() and xs:
        return apply_operator(xs, family)
    dense: list[Any] = [ready(x) for x in xs]
    if any([x is None for x in dense]):
        return apply_operator(xs, family)
    return apply_plain(family, dense)


def apply_plain(family: Family, xs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Apply a family to dense plain tensors."""
    key: Any = tuple([(x.dtype, x.shape, x.device) for x in xs])
    if state() is not None:
        key = (key, tracing_key(), fast_path_allowed())
    compiled = family.runs.get(key)
    if compiled is None:
        compiled = compile_for(family, xs, [aval_of(x) for x in xs], (False,) * len(xs), key)
    return apply_compiled(compiled, xs)


def compile_for(
    family: Family, leaves: Sequence[Any], avals: Sequence[ShapedArray], numbers: Mask, key: Any
) -> Compiled:
    """The executables of a family for these leaves, remembered under ``key``."""
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    where = placement_for(common_device(tensors, family.name))
    with family.lock:
        compiled = family.runs.get(key)
        if compiled is None:
            if len(family.runs) >= MAX_RUNS:
                family.runs.clear()
            compiled = family.runs[key] = Compiled(family, tuple(avals), where, numbers)
    return compiled


def apply_compiled(compiled: Compiled, leaves: Sequence[Any]) -> Sequence[torch.Tensor]:
    """Run, with a node of autograd where a leaf wants a gradient."""
    if grad_enabled():
        active = tuple([type(x) in EXACT and x.requires_grad for x in leaves])
        if any(active):
            return apply_node(compiled, active, leaves)
    return compiled.run(leaves)


def apply_node(compiled: Compiled, active: Mask, leaves: Sequence[Any]) -> Sequence[torch.Tensor]:
    """Run with a node of autograd for the leaves ``active``."""
    node = compiled.nodes.get(active) or compiled.node(active)
    if node is None:
        return compiled.run(leaves)
    return apply_call(node, *leaves)


def common_device(tensors: Sequence[torch.Tensor], name: str) -> torch.device:
    """The one device of all tensors.

    Raises:
        ExchangeError: they are on several devices.
    """
    if not tensors:
        return torch.device("cpu")
    devices = {x.device for x in tensors}
    if len(devices) > 1:
        msg = f"{name}: tensors are on several devices: {', '.join(sorted(map(str, devices)))}"
        raise ExchangeError(msg, hint="move them to one device with x.to(device)")
    return tensors[0].device


# Filled by _operator.py, which needs this module: the operator, and a function that applies it.
OPERATOR: list[Any] = []


def apply_operator(xs: Sequence[torch.Tensor], family: Family) -> list[torch.Tensor]:
    """Apply a family through torch's dispatcher."""
    return OPERATOR[1](xs, family)
