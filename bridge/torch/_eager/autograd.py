"""The fast path: plain eager tensors go straight into executables, and autograd is one node.

``call(family, leaves)`` decides. Tensors that are more than memory (fake, functorch, subclasses,
duals), and calls under a dispatch mode, go through the operator of _operator.py, which composes
with everything and costs some 30 us more.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import torch
from torch.autograd import forward_ad

from tracebridge._derived.dependence import reached
from tracebridge._derived.families import Family, settings_of
from tracebridge._derived.handles import Mask, vjp_handle
from tracebridge.core.config.state import state
from tracebridge.core.config.values import fast_path_allowed, tracing_key
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.interop.torch_adapter import (
    EXACT,
    is_ready,
    modes_active,
)
from tracebridge.torch._crossing.dense import Places, is_dense, make_dense, ready
from tracebridge.torch._crossing.execute import placement_for
from tracebridge.torch._crossing.in_graphs import constant_in_graphs
from tracebridge.torch._crossing.numbers import aval_of, scalar_tensor
from tracebridge.torch._crossing.symbolic import aval_of_text
from tracebridge.torch._eager.guards import any_nested
from tracebridge.torch._eager.late import late_leaves
from tracebridge.torch._eager.levels import Levels
from tracebridge.torch._eager.nodes import Compiled, Node, gradients
from tracebridge.torch._eager.short import short_apply
from tracebridge.torch._eager.stages import run_and_free
from tracebridge.torch._eager.through_operator import apply_operator
from tracebridge.torch._eager.transforms import apply_transformed
from tracebridge.torch._eager.visible import named_apply, profiler, run_seen
from tracebridge.torch._graphs.roots import resolve

if TYPE_CHECKING:
    from tracebridge.torch._contexts import CallContext

transforms_active = torch._C._are_functorch_transforms_active
grad_enabled = torch.is_grad_enabled
is_compiling = torch.compiler.is_dynamo_compiling


def is_special() -> bool:
    """Whether this thread is in a state in which tensors may be more than they seem."""
    return transforms_active() or is_recorded()


def is_recorded() -> bool:
    """Whether tensors may be more than they seem, transformations of torch.func aside."""
    if modes_active() > 0 or forward_ad._current_level >= 0:
        return True
    # torch.jit.trace records operators; what bypasses them would be a constant of its graph.
    return torch._C._get_tracing_state() is not None  # pyright: ignore[reportUnnecessaryComparison] - the stubs forget None


@final
class Call(torch.autograd.Function):
    """One call with gradients. Applied by ``apply_node``, never by ``Call.apply``."""

    @staticmethod
    def forward(ctx: CallContext, node: Node, *leaves: Any) -> tuple[torch.Tensor, ...]:
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
    def backward(ctx: CallContext, *grads: Any) -> tuple[Any, ...]:
        node: Node = ctx.node
        if is_compiling():
            return (None, *_graph_backward(node.in_graph, ctx.saved_tensors, ctx.numbers, grads))
        try:
            if node.frees and not grad_enabled() and not is_special():
                return _freeing_gradients(ctx, grads)
            return _gradients_of(node, ctx.saved_tensors, ctx.numbers, grads)
        except Exception as error:
            hide_internal_frames(error)
            raise


@final
class LateCall(torch.autograd.Function):
    """``Call`` where gradients of leaves that have one are computed when torch adds them.

    The tensors given to torch lead to these leaves through nodes of their own: see late.py.
    """

    @staticmethod
    def forward(
        ctx: CallContext, node_and_originals: tuple[Node, Sequence[Any]], *leaves: Any
    ) -> Any:
        node, originals = node_and_originals
        ctx.late = [x is not y for x, y in zip(leaves, originals, strict=True)]
        return Call.forward(ctx, node, *originals)

    @staticmethod
    def backward(ctx: CallContext, *grads: Any) -> tuple[Any, ...]:
        if is_compiling() or grad_enabled() or is_special():
            return Call.backward(ctx, *grads)
        try:
            return _late_gradients(ctx, grads)
        except Exception as error:
            hide_internal_frames(error)
            raise


def _late_gradients(ctx: CallContext, grads: Sequence[Any]) -> tuple[Any, ...]:
    """``_gradients_of`` with some gradients that are not computed yet."""
    node: Node = ctx.node
    saved, numbers = ctx.saved_tensors, ctx.numbers
    mask = tuple([g is not None for g in grads])
    given = [g for g in grads if g is not None]
    dense = _dense(node, saved, numbers, given) if given else None
    runs = None if dense is None else node.late_runs(mask, dense[1])
    if dense is None or runs is None:
        del saved, dense
        return _freeing_gradients(ctx, grads)
    wanted = node.reached(mask)
    late = [i for i, here in zip(ctx.late, wanted, strict=True) if here]
    places = {k for k, is_late in enumerate(late) if is_late}
    return gradients(runs(dense[0], places, given[0].device), wanted)


def _freeing_gradients(ctx: CallContext, grads: Sequence[Any]) -> tuple[Any, ...]:
    """``_gradients_of`` where this function has the only names of the saved tensors."""
    node: Node = ctx.node
    mask = tuple([g is not None for g in grads])
    cotangents = [g for g in grads if g is not None]
    found = _dense(node, ctx.saved_tensors, ctx.numbers, cotangents) if cotangents else None
    if found is None:
        return _gradients_of(node, ctx.saved_tensors, ctx.numbers, grads)
    leaves, values = found
    run = node.backward(mask, values)
    del found
    return gradients(run_and_free(run, leaves, ctx.maybe_clear_saved_tensors), node.reached(mask))


def _gradients_of(
    node: Node, saved: Sequence[torch.Tensor], numbers: Sequence[Any] | None, grads: Sequence[Any]
) -> tuple[Any, ...]:
    """What the backward pass gives torch: None, then a gradient or None for each leaf."""
    if numbers is None and not grad_enabled() and not is_special():
        cotangents = [grads[i] for i in node.sources] if node.detached else grads
        node.check(saved)
        leaves = [*saved, *cotangents]
        values = make_dense(leaves, len(saved))
        if values is not None:
            # The common case: all results have a cotangent, all tensors are plain.
            return gradients(node.everything(leaves, values), node.active)
    mask = tuple([g is not None for g in grads])
    if not any(mask):
        return (None,) * (len(node.active) + 1)
    cotangents = [g for g in grads if g is not None]
    results = _general_backward(node, saved, numbers, cotangents, mask)
    return gradients(results, node.reached(mask))


def _general_backward(
    node: Node,
    saved: Sequence[torch.Tensor],
    numbers: Sequence[Any] | None,
    cotangents: Sequence[torch.Tensor],
    mask: Mask,
) -> Sequence[torch.Tensor]:
    """A backward pass for some results, or with unusual tensors, or itself differentiated."""
    if grad_enabled() or is_special():
        return _backward_again(node, saved, numbers, cotangents, mask)
    dense = _dense(node, saved, numbers, cotangents)
    if dense is None:
        return _backward_again(node, saved, numbers, cotangents, mask)
    leaves, values = dense
    return node.backward(mask, values)(leaves)


def _dense(
    node: Node,
    saved: Sequence[torch.Tensor],
    numbers: Sequence[Any] | None,
    cotangents: Sequence[torch.Tensor],
) -> tuple[list[Any], Places] | None:
    """The inputs of a backward program, and which cotangents are one value; None if unusual."""
    node.check(saved)
    dense: list[Any] = [*saved, *cotangents]
    values = make_dense(dense, len(saved))
    if values is None:
        return None
    n_saved, n_inputs = len(saved), len(node.saved_inputs)
    found = dict(zip(node.saved_inputs, dense, strict=False))
    inputs = [found[i] if i in found else numbers[i] for i in node.parts.inputs]  # type: ignore[index]  # who is not saved is a number
    return [*inputs, *dense[n_inputs:n_saved], *dense[n_saved:]], values


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
    cotangents = [g for g in grads if g is not None]
    leaves = _pullback_inputs(sources, saved, numbers, cotangents[0].device)
    captured = _captured(handle, types)
    results = iter(
        torch.ops.tracebridge.call.default(
            [*leaves, *cotangents], vjp_handle(captured, wanted, mask)
        )
    )
    return [next(results) if w else None for w in wanted]


@constant_in_graphs
def _captured(handle: str, types: tuple[str, ...]) -> str:
    """The handle for a graph that is kept: with the fingerprint of the program at these types."""
    return resolve(handle).captured(tuple([aval_of_text(text) for text in types]))


def _backward_again(
    node: Node,
    saved: Sequence[torch.Tensor],
    numbers: Sequence[Any] | None,
    cotangents: Sequence[torch.Tensor],
    mask: Mask,
) -> Sequence[torch.Tensor]:
    """A backward pass as a differentiable function of the inputs and the cotangents."""
    node.check(saved)
    compiled = node.compiled
    leaves = _pullback_inputs(node.in_graph[0], saved, numbers, cotangents[0].device)
    # Of the same program, whatever options are in force by now, or on this thread.
    with settings_of(compiled.jaxpr):
        return call(compiled.family.vjp(node.reached(mask), mask), [*leaves, *cotangents])


def call(family: Family, xs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Apply a family to tensors, in whatever state torch is."""
    if transforms_active():
        if xs:
            recorded = is_recorded()
            return apply_operator(xs, family) if recorded else apply_transformed(family, xs, call)
    elif is_recorded():
        if xs:
            return apply_operator(xs, family)
    elif state() is None and not profiler._is_profiler_enabled and not any_nested(xs):
        for check, wanted, compiled in Levels.of(family, call).plain:
            if check(*xs):
                if wanted is None or not grad_enabled():
                    return compiled.run(xs)
                return apply_node(compiled, wanted, xs)
    if not all([is_ready(x) for x in xs]):
        dense: list[Any] = [ready(x) for x in xs]
        if any([x is None for x in dense]):
            return apply_operator(xs, family)
        if any([a is not b for a, b in zip(xs, dense, strict=True)]):
            return apply_plain(family, dense)
    compiled = compiled_for_plain(family, xs)
    if xs and state() is None and not profiler._is_profiler_enabled:
        Levels.of(family, call).guard(compiled, xs)
    return apply_compiled(compiled, xs)


def levels_of(family: Family) -> Levels:
    """The known calls of a family under torch.func."""
    return Levels.of(family, call)


def apply_plain(family: Family, xs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Apply a family to dense plain tensors."""
    return apply_compiled(compiled_for_plain(family, xs), xs)


def compiled_for_plain(family: Family, xs: Sequence[torch.Tensor]) -> Compiled:
    """The executables of a family for dense plain tensors."""
    key: Any = tuple([(x.dtype, x.shape, x.device) for x in xs])
    if state() is not None:
        key = (key, tracing_key(), fast_path_allowed())
    compiled = family.runs.get(key)
    if compiled is None:
        compiled = compile_for(family, xs, [aval_of(x) for x in xs], (False,) * len(xs), key)
    return compiled


def compile_for(
    family: Family, leaves: Sequence[Any], avals: Sequence[ShapedArray], numbers: Mask, key: Any
) -> Compiled:
    """The executables of a family for these leaves, remembered under ``key``."""
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    where = placement_for(common_device(tensors, family.name))
    with family.lock:
        compiled = family.runs.get(key)
        if compiled is None:
            compiled = Compiled(family, tuple(avals), where, numbers)
            family.runs.set(key, compiled)
            family.compiled(compiled.avals)
    return compiled


def apply_compiled(compiled: Compiled, leaves: Sequence[Any]) -> Sequence[torch.Tensor]:
    """Run, with a node of autograd where a leaf wants a gradient."""
    if grad_enabled():
        active = tuple([type(x) in EXACT and x.requires_grad for x in leaves])
        if any(active):
            return apply_node(compiled, active, leaves)
    if profiler._is_profiler_enabled:
        return run_seen(compiled.family.name, compiled.run, leaves)
    return compiled.run(leaves)


def apply_node(compiled: Compiled, active: Mask, leaves: Sequence[Any]) -> Sequence[torch.Tensor]:
    """Run with a node of autograd for the leaves ``active``."""
    node = compiled.nodes.get(active) or compiled.node(active)
    if node is None:
        return compiled.run(leaves)
    if node.large:
        late = late_leaves(node.large, leaves, node.huge)
        if late is not None:
            return named_apply(LateCall, compiled.family.name)((node, leaves), *late)
    return (node.apply or _name(node))(*leaves)


def _name(node: Node) -> Any:
    """The ``apply`` of a node that runs for the first time."""
    found = short_apply(node, _in_full)
    if found is None:
        found = functools.partial(named_apply(Call, node.compiled.family.name), node)
    node.apply = found
    return found


def _in_full(node: Node, saved: Sequence[torch.Tensor], grads: Sequence[Any]) -> tuple[Any, ...]:
    """The backward pass of a node whose leaves are tensors, whatever it is given."""
    if is_compiling():
        return tuple(_graph_backward(node.in_graph, saved, None, grads))
    results = _gradients_of(node, saved, None, grads)[1:]
    if not grad_enabled() and not is_special():
        leaves = [*node.read(saved), *[grads[i] for i in node.sources]]
        if all([x is not None and is_dense(x) for x in leaves]):
            node.guard(leaves)
    return results


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
