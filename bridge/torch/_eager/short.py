"""The autograd function of one node, written out for its inputs, saved tensors and results.

Loops over three tensors, attributes of the context and questions to each tensor would cost as much
as the programs of a small call. What is unusual is left to ``in_full``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.util.caching import BoundedCache
from tracebridge.interop.torch_adapter import modes_active
from tracebridge.torch._eager.nodes import Node
from tracebridge.torch._eager.visible import event_name

MAX_TENSORS = 200
_FACTORIES: BoundedCache[Any] = BoundedCache("torch nodes", 256)
_FUNCTION: Any = torch.autograd.Function
# All gradients, from the node, the saved tensors and the cotangents.
InFull = Callable[[Node, Any, Any], Any]


def short_apply(node: Node, in_full: InFull) -> Callable[..., Any] | None:
    """``apply(*leaves)`` of a node whose leaves are tensors; None for nodes that are too long.

    Nor for those that keep much: what is saved has to be freed while the backward pass runs.
    """
    parts, n_in = node.parts, len(node.active)
    n_all = n_in + node.n_out + parts.n_residuals
    if node.has_numbers or node.frees or n_all > MAX_TENSORS:
        return None
    key = (
        node.active, tuple(node.saved_inputs), node.n_extra, tuple(parts.results),
        node.attached, parts.n_residuals, node.early is not None,
    )  # fmt: skip
    factory = _FACTORIES.get(key)
    if factory is None:
        factory = _compile_factory(*key)
        _FACTORIES.set(key, factory)
    forward, backward = factory(node, in_full)
    rules = {
        "__module__": __name__,
        "forward": staticmethod(forward),
        "backward": staticmethod(backward),
    }
    named = type(_FUNCTION)(event_name(node.compiled.family.name), (_FUNCTION,), rules)
    return super(_FUNCTION, named).apply


def _compile_factory(
    active: tuple[bool, ...],
    saved_inputs: tuple[int, ...],
    n_extra: int,
    results: tuple[int, ...],
    attached: tuple[bool, ...],
    n_residuals: int,
    early: bool,
) -> Any:
    n_out = len(attached)
    arguments = ", ".join([f"a{i}" for i in range(len(active))])
    kept = [f"a{i}" for i in saved_inputs] + [f"outs[{i}]" for i in results]
    kept += [f"outs[{n_out + i}]" for i in range(n_residuals)]
    detached = [f"outs[{i}]" for i, here in enumerate(attached) if not here]
    saved = [f"s{i}" for i in range(len(kept))]
    cotangents = [f"g{i}" for i, here in enumerate(attached) if here]
    # The last saved inputs are there for the backward pass as a function only.
    n_inputs = len(saved_inputs)
    read = [*saved[: n_inputs - n_extra], *saved[n_inputs:]]
    leaves = ", ".join([*read, *cotangents])
    found = ", ".join([f"r{i}" for i, here in enumerate(active) if here])
    gradients = ", ".join([f"r{i}" if here else "None" for i, here in enumerate(active)])
    lines = [
        "def factory(node, in_full):",
        "    run, guarded, early = node.forward, node.guarded, node.early",
        f"    def forward(ctx, {arguments}):",
        *(_early_forward(arguments, n_out) if early else [f"        outs = run(({arguments},))"]),
        f"        ctx.save_for_backward({', '.join(kept)})",
        "        ctx.set_materialize_grads(False)",
        *([f"        ctx.mark_non_differentiable({', '.join(detached)})"] if detached else []),
        f"        return ({', '.join([f'outs[{i}]' for i in range(n_out)])},)",
        f"    def backward(ctx, {', '.join([f'g{i}' for i in range(n_out)])}):",
        "        saved = ctx.saved_tensors",
        "        try:",
        "            if not (is_compiling() or grad_enabled() or modes_active()",
        "                    or forward_ad._current_level >= 0):",
        *(_early_backward(cotangents, found, gradients) if early else []),
        *([f"                {', '.join(saved)}, = saved"] if saved else []),
        "                for check, backward_run in guarded:",
        f"                    if check({leaves}):",
        f"                        {found}, = backward_run(({leaves},))",
        f"                        return {gradients},",
        f"            return in_full(node, saved, ({', '.join([f'g{i}' for i in range(n_out)])},))",
        "        except Exception as error:",
        "            hide_internal_frames(error)",
        "            raise",
        "    return forward, backward",
    ]
    scope: dict[str, Any] = {
        "forward_ad": forward_ad,
        "grad_enabled": torch.is_grad_enabled,
        "hide_internal_frames": hide_internal_frames,
        "is_compiling": torch.compiler.is_dynamo_compiling,
        "modes_active": modes_active,
    }
    exec(compile("\n".join(lines), "<tracebridge node>", "exec"), scope)  # noqa: S102 (the source is made of integers and fixed words)
    return scope["factory"]


def _early_forward(arguments: str, n_out: int) -> list[str]:
    """Lines that give ``outs``, with gradients if they are to be computed now."""
    return [
        "        if early.wanted:",
        "            seed = ctx.seed = early.seed",
        f"            outs = early.run(({arguments},), seed)",
        f"            ctx.slopes = outs[{n_out}:]",
        "        else:",
        f"            outs = run(({arguments},))",
    ]


def _early_backward(cotangents: Sequence[str], found: str, gradients: str) -> list[str]:
    """Lines that hand such gradients out, once: who gets them may change them."""
    (cotangent,) = cotangents
    return [
        "                slopes = vars(ctx).pop('slopes', None)",
        f"                if slopes is not None and early.fits({cotangent}, ctx.seed):",
        f"                    {found}, = slopes",
        f"                    return {gradients},",
    ]
