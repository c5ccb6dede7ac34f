"""The operator ``tracebridge::call(Tensor[] xs, str h) -> Tensor[]``, with all its rules.

One operator serves all functions; the string names a family of programs. It composes with
torch.compile, torch.export, torch.func, forward-mode duals, autograd of any order, fake tensors and
tracing. A kernel for the key Autograd is written by hand: rules registered with
``torch.library.register_autograd`` fail under torch.func and are wrong under forward mode.

Everything here relies on private functions of torch; tests/integration/torch/test_contract.py
asserts each of them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from tracebridge._derived.dependence import Paths, attached, paths_of, reached
from tracebridge._derived.families import Family, Vjp, is_pinned, pin
from tracebridge._derived.forward_only import NoSplit, split_if_possible
from tracebridge._derived.handles import (
    Mask,
    bwd_handle,
    fwd_handle,
    jvp_handle,
    ruled_handle,
    vjp_handle,
    vmap_handle,
)
from tracebridge._derived.names import parts_of
from tracebridge._derived.residuals import NO_DERIVATIVE
from tracebridge._derived.settings import settings_of_graph
from tracebridge.core.config.settings import NO_CHANGE, Settings
from tracebridge.core.config.state import state
from tracebridge.core.config.values import fast_path_allowed
from tracebridge.interop.frameworks import when_imported
from tracebridge.interop.torch_adapter import (
    TORCH_DTYPES,
    modes_active,
    torch_adapter,
)
from tracebridge.torch._crossing.dense import BATCHED, is_dense, ready
from tracebridge.torch._crossing.numbers import aval_of
from tracebridge.torch._crossing.symbolic import has_symbolic
from tracebridge.torch._eager import autograd
from tracebridge.torch._eager.through_operator import avals_for_trace
from tracebridge.torch._eager.visible import flops_of, named_apply, profiler, run_seen
from tracebridge.torch._graphs.dtensors import DTENSORS, dtensor_class, is_distributed
from tracebridge.torch._graphs.known import KNOWN, guarded, shorten
from tracebridge.torch._graphs.roots import resolve
from tracebridge.torch._graphs.saved import ensure_known, program_for_graph

if TYPE_CHECKING:
    from tracebridge.torch._contexts import OperatorContext

_library = torch.library.Library("tracebridge", "DEF")
_library.define(
    "call(Tensor[] xs, str h) -> Tensor[]",
    # XLA allocates memory and uses streams of its own: neither can be captured.
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.cudagraph_unsafe),
)
CALL = torch.ops.tracebridge.call.default
shorten(CALL)
# The same with the program, for graphs that leave the process.
_library.define(
    "call_saved(Tensor[] xs, str h, str program) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.cudagraph_unsafe),
)
CALL_SAVED = torch.ops.tracebridge.call_saved.default
shorten(CALL_SAVED)
# A copy that no compiler of torch takes for needless: the original is written to afterwards.
_library.define("snapshot(Tensor x) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
SNAPSHOT = torch.ops.tracebridge.snapshot.default


# the kernels -------------------------------------------------------------------------------------


def _kernel(xs: Sequence[torch.Tensor], h: str) -> list[torch.Tensor]:
    """Memory in, memory out: all transformations have been peeled off."""
    family = resolve(h)
    dense: list[Any] = [ready(_as_tensor(x)) for x in xs]
    for x in dense:
        if x is None:
            # Words the error.
            torch_adapter.import_(xs[dense.index(None)])
    with torch.no_grad():
        return list(autograd.apply_plain(family, dense))


def _enter(xs: Sequence[torch.Tensor], h: str, program: str = "") -> list[torch.Tensor]:
    """The rule of the key Autograd: plain tensors that want nothing go straight to the program."""
    if forward_ad._current_level < 0 and not modes_active():
        found = guarded(xs, h)
        if found is not None and (found[1] is None or not torch.is_grad_enabled()):
            return found[2].run(xs)
    if autograd.is_special() or not all([is_dense(x) for x in xs]):
        return _under_settings(_autograd, xs, h, program)
    if torch.is_grad_enabled() and any([x.requires_grad for x in xs]):
        return _under_settings(_autograd, xs, h, program)
    return _run(xs, h)


def _enter_below(xs: Sequence[torch.Tensor], h: str) -> list[torch.Tensor]:
    """The rule of the keys of devices."""
    found = guarded(xs, h)
    if found is not None:
        return found[2].run(xs)
    if all([is_dense(x) for x in xs]):
        return _run(xs, h)
    return _under_settings(_kernel, xs, h)


def _run(xs: Sequence[torch.Tensor], h: str) -> list[torch.Tensor]:
    """The program of a handle on dense plain tensors."""
    key = (h, *[(x.dtype, x.shape, x.device) for x in xs]) if state() is None else None
    if key is not None:
        found = KNOWN.known.get(key)
        if found is not None and not profiler._is_profiler_enabled:
            KNOWN.guard(h, xs, found)
            return found[0].run(xs)
    settings = settings_of_graph(h)
    with settings:
        compiled = autograd.compiled_for_plain(resolve(h), xs)
        if profiler._is_profiler_enabled:
            return list(run_seen(compiled.family.name, compiled.run, xs))
        outs = list(compiled.run(xs))
    # Handles that no graph names belong to functions that may go.
    if key is not None and is_pinned(h) and settings is NO_CHANGE and fast_path_allowed():
        KNOWN.add(key, (compiled, None))
    return outs


def _as_tensor(x: torch.Tensor) -> torch.Tensor:
    """A tensor of a subclass that changes no operator, as the tensor that it is."""
    if type(x) in autograd.EXACT or torch._C._dispatch_keys(x).has(torch._C.DispatchKey.Python):
        return x
    with torch._C.DisableTorchFunctionSubclass():
        return x.as_subclass(torch.Tensor)


def _fake(xs: Sequence[torch.Tensor], h: str) -> list[torch.Tensor]:
    """Shapes and dtypes of the results."""
    family = resolve(h)
    pin(h, family)
    device = autograd.common_device(list(xs), family.name)
    try:
        found = _result_shapes(family, xs)
    except NO_DERIVATIVE:
        if not isinstance(family, Vjp):
            raise
        # A graph of the forward pass has a backward pass, too. Who runs that gets the error.
        wanted = [x for x, a in zip(xs, family.active, strict=False) if a]
        return [torch.empty(x.shape, dtype=x.dtype, device=device) for x in wanted]
    return [torch.empty(shape, dtype=TORCH_DTYPES[dtype], device=device) for shape, dtype in found]


def _result_shapes(family: Family, xs: Sequence[torch.Tensor]) -> list[tuple[Any, Any]]:
    """Shapes and dtypes of the results; shapes may hold SymInts."""
    avals, sizes = avals_for_trace(family, xs)
    outs = family.program(avals).out_avals
    if sizes is None:
        return [(a.shape, a.dtype) for a in outs]
    return [(tuple([sizes.value(d) for d in a.shape]), a.dtype) for a in outs]


def _vmap(
    info: Any, in_dims: tuple[Any, ...], xs: Sequence[torch.Tensor], h: str
) -> tuple[list[torch.Tensor], list[int]]:
    """The batched family; all its results are batched in front."""
    del info
    outs = _call(list(xs), vmap_handle(h, in_dims[0]))
    return outs, [0] * len(outs)


def _legacy_vmap(xs: Sequence[torch.Tensor], h: str) -> list[torch.Tensor]:
    """Under the vmap of ``torch.autograd.grad(is_grads_batched=True)``, which is an older one."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    batched = torch._C._dispatch_key_parse("Batched")
    dims = [0 if torch._C._dispatch_keys(x).has(batched) else None for x in xs]
    # The third argument is the size to expand to where there is no batch axis, which is not here.
    inner = [
        x if d is None else torch._VF._remove_batch_dim(x, level, 1, 0)
        for x, d in zip(xs, dims, strict=True)
    ]
    outs = CALL(inner, vmap_handle(h, dims))
    return [torch._VF._add_batch_dim(o, 0, level) for o in outs]


def _call(xs: Sequence[torch.Tensor], h: str) -> list[torch.Tensor]:
    """The operator, with the program of the family in a graph that leaves the process."""
    if torch.compiler.is_exporting() and parts_of(h).digest:
        family = resolve(h)
        program = program_for_graph(family, avals_for_trace(family, xs)[0])
        if program:
            return CALL_SAVED(xs, h, program)
    return CALL(xs, h)


def _autograd(xs: Sequence[torch.Tensor], h: str, program: str = "") -> list[torch.Tensor]:
    """Forward mode, reverse mode, or neither."""
    functorch = torch._C._are_functorch_transforms_active()
    if forward_ad._current_level >= 0 or functorch:
        duals: list[Any] = [torch._VF._unpack_dual(x, level=0) for x in xs]
        if any([tangent is not None for _, tangent in duals]):
            if not functorch:
                active, paths = _wanted(xs, h)
                if any(active):
                    # The node keeps the duals themselves: gradients have tangents then.
                    return list(_node_of(h)(h, active, paths, *xs))
            return _forward_mode(duals, h)
    active, paths = _wanted(xs, h)
    if any(active):
        if functorch:
            with enable_single_level_autograd_function():
                return list(_node_of(h)(h, active, paths, *xs))
        return list(_node_of(h)(h, active, paths, *xs))
    with torch._C._AutoDispatchBelowAutograd():
        return CALL_SAVED(xs, h, program) if program else CALL(xs, h)


def _wanted(xs: Sequence[torch.Tensor], h: str) -> tuple[Mask, Paths]:
    """The inputs that get gradients, and which results they come from."""
    active = tuple([x.requires_grad for x in xs])
    if not torch.is_grad_enabled() or not any(active):
        return (False,) * len(active), ()
    family = resolve(h)
    paths = paths_of(family.program(avals_for_trace(family, xs)[0]))
    return reached(active, paths, (True,) * len(paths)), paths


def _forward_mode(duals: Sequence[Any], h: str) -> list[torch.Tensor]:
    primals = [primal for primal, _ in duals]
    outs, tangents = _tangents(primals, [tangent for _, tangent in duals], h)
    if any([_is_legacy_batched(o) for o in outs]) and not any(map(_is_legacy_batched, primals)):
        # Only tangents are batched, and torch takes duals of one value with many tangents only
        # if the value is not.
        outs = CALL(primals, h)
    return [
        o if tangent is None else torch._VF._make_dual(o, tangent, level=0)
        for o, tangent in zip(outs, tangents, strict=True)
    ]


def _tangents(
    primals: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None], h: str
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Results and their tangents; a result of integers has none."""
    nonzero = tuple([tangent is not None for tangent in tangents])
    given = [tangent for tangent in tangents if tangent is not None]
    outs = _call([*primals, *given], jvp_handle(h, nonzero))
    # Results of the jvp program: all primals, then a tangent for each inexact one.
    n_out = _results_of_jvp(outs)
    rest = iter(outs[n_out:])
    return outs[:n_out], [next(rest) if _is_inexact(o) else None for o in outs[:n_out]]


def _is_legacy_batched(x: torch.Tensor) -> bool:
    return torch._C._dispatch_keys(x).has(BATCHED)


def _results_of_jvp(outs: Sequence[torch.Tensor]) -> int:
    """How many of the results of a jvp program are primals: n + (inexact among n) == len."""
    total = 0
    for n, o in enumerate(outs):
        if n + total == len(outs):
            return n
        total += _is_inexact(o)
    return len(outs)


def _is_inexact(x: torch.Tensor) -> bool:
    return x.dtype.is_floating_point or x.dtype.is_complex


@final
class Node(torch.autograd.Function):
    """Reverse mode for all tensors that are not plain memory. Applied by ``_node_of``."""

    @staticmethod
    def forward(
        ctx: OperatorContext, h: str, active: Mask, paths: Paths, *xs: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.h, ctx.active, ctx.paths = h, active, paths
        # No graph of torch holds the handle, so nothing else keeps the family until backward.
        ctx.family = resolve(h)
        ctx.settings = Settings()
        ctx.set_materialize_grads(False)
        functorch = torch._C._are_functorch_transforms_active()
        # Which residuals are kept depends on sizes, so a graph for all sizes keeps none, and nor
        # do calls on shards, whose sizes are others than those of the whole.
        duals = forward_ad._current_level >= 0 and not functorch
        ctx.recompute = functorch or duals or has_symbolic(xs) or is_distributed(xs)
        parts = None
        if not ctx.recompute:
            avals = tuple([aval_of(x) for x in xs])
            parts = split_if_possible(resolve(h), active, avals)
            # What has no gradients needs nothing; the backward pass finds out why.
            ctx.recompute = isinstance(parts, NoSplit)
        # For jvp, which torch calls next if an input is a dual.
        ctx.inputs = xs if duals else ()
        if parts is None or isinstance(parts, NoSplit):
            ctx.save_for_backward(*xs)
            # forward runs under no_grad: without these lines the outer levels of torch.func would
            # record nothing, and grad of grad would be zero.
            with (
                torch.enable_grad(),
                forward_ad._set_fwd_grad_enabled(True),
                torch._C._AutoDispatchBelowAutograd(),
            ):
                outs = _call(list(xs), ruled_handle(h, active) if functorch else h)
            n_out = len(outs)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                outs = _call(list(xs), fwd_handle(h, active))
            n_out = len(outs) - parts.n_residuals
            ctx.save_for_backward(*xs, *[outs[i] for i in parts.results], *outs[n_out:])
        # A result without a gradient may have a tangent.
        kept = [_is_inexact(o) for o in outs[:n_out]] if duals else attached(active, paths)
        ctx.mark_non_differentiable(*[o for o, k in zip(outs, kept, strict=False) if not k])
        return tuple(outs[:n_out])

    @staticmethod
    def jvp(ctx: OperatorContext, *tangents: Any) -> tuple[Any, ...]:
        inputs, ctx.inputs = ctx.inputs, ()
        primals = [torch._VF._unpack_dual(x, level=0)[0] for x in inputs]
        # The first inputs of the node are no tensors.
        return tuple(_tangents(primals, tangents[3:], ctx.h)[1])

    @staticmethod
    def backward(ctx: OperatorContext, *grads: Any) -> tuple[Any, ...]:
        active: Mask = ctx.active
        mask = tuple([g is not None for g in grads])
        if not any(mask):
            return (None,) * (len(active) + 3)
        cotangents = [g for g in grads if g is not None]
        wanted = reached(active, ctx.paths, mask)
        saved = list(ctx.saved_tensors)
        # Compiled autograd lets Dynamo read these lines, and differentiates what it finds.
        again = [*saved[: len(active)], *cotangents]
        if torch.compiler.is_dynamo_compiling():
            results = CALL(again, vjp_handle(ctx.h, wanted, mask))
        else:
            with ctx.settings.again():
                if (
                    ctx.recompute
                    or torch.is_grad_enabled()
                    or torch._C._are_functorch_transforms_active()
                ):
                    results = _call(again, vjp_handle(ctx.h, wanted, mask))
                else:
                    results = _call([*saved, *cotangents], bwd_handle(ctx.h, active, mask))
                    places = [w for a, w in zip(active, wanted, strict=True) if a]
                    results = [g for g, w in zip(results, places, strict=True) if w]
        remaining_results = iter(results)
        return (None, None, None, *[next(remaining_results) if w else None for w in wanted])


def _node_of(h: str) -> Any:
    return named_apply(Node, resolve(h).name)


def _flops(xs: Sequence[torch.Tensor], h: str, *, out_val: Any = None) -> int:
    """The formula of ``torch.utils.flop_counter``."""
    del out_val
    with settings_of_graph(h):
        return flops_of(resolve(h), tuple([aval_of(x) for x in xs]))


def _distributed(xs: Sequence[torch.Tensor], h: str) -> list[torch.Tensor]:
    """On DTensors: the operator on shards."""
    distributed = importlib.import_module("tracebridge.torch._graphs.distributed")
    with settings_of_graph(h):
        family = resolve(h)
        return distributed.call_distributed(
            family,
            xs,
            lambda local: CALL(local, h),
            lambda: [(shape, TORCH_DTYPES[dtype]) for shape, dtype in _result_shapes(family, xs)],
        )


def _under_settings(
    rule: Callable[..., Any], xs: Sequence[torch.Tensor], h: str, *program: str
) -> Any:
    """What ``rule`` gives under the options of the graph that calls the operator."""
    with settings_of_graph(h):
        return rule(xs, h, *program)


def _of_graph(rule: Callable[[Sequence[torch.Tensor], str], Any]) -> Any:
    return functools.partial(_under_settings, rule)


def _flops_saved(xs: Sequence[torch.Tensor], h: str, program: str, *, out_val: Any = None) -> int:
    del program
    return _flops(xs, h, out_val=out_val)


def _of_saved(rule: Callable[..., Any], *, whole: bool = False) -> Any:
    """``rule`` for a graph that holds the program; ``whole``: it takes that, too."""

    def run(xs: Sequence[torch.Tensor], h: str, program: str) -> Any:
        ensure_known(h, program)
        return rule(xs, h, program) if whole else rule(xs, h)

    return run


def _vmap_saved(info: Any, in_dims: Any, xs: Sequence[torch.Tensor], h: str, program: str) -> Any:
    ensure_known(h, program)
    return _vmap(info, in_dims, xs, h)


_library.impl("call", _enter_below, "CPU")
_library.impl("call", _of_graph(_kernel), "CUDA")
_library.impl("call", _legacy_vmap, "Batched")
_library.impl("call", _enter, "Autograd")
torch.library.register_fake("tracebridge::call", _of_graph(_fake), lib=_library)
register_flop_formula(torch.ops.tracebridge.call, get_raw=True)(_flops)
torch.library.register_vmap("tracebridge::call", _vmap, lib=_library)
_library.impl("call_saved", _of_saved(_enter_below), "CPU")
_library.impl("call_saved", _of_saved(_of_graph(_kernel)), "CUDA")
_library.impl("call_saved", _of_saved(_legacy_vmap), "Batched")
_library.impl("call_saved", _of_saved(_enter, whole=True), "Autograd")
torch.library.register_fake("tracebridge::call_saved", _of_saved(_of_graph(_fake)), lib=_library)
register_flop_formula(torch.ops.tracebridge.call_saved, get_raw=True)(_flops_saved)
torch.library.register_vmap("tracebridge::call_saved", _vmap_saved, lib=_library)
_library.impl("snapshot", torch.clone, "CompositeExplicitAutograd")
torch.library.register_fake("tracebridge::snapshot", torch.empty_like, lib=_library)
torch.library.register_vmap(
    "tracebridge::snapshot", lambda _, in_dims, x: (x.clone(), in_dims[0]), lib=_library
)


def _add_rules_for_dtensors() -> None:
    rules: dict[str, Callable[..., Any]] = {"call": _distributed, "snapshot": torch.clone}
    for name, rule in rules.items():
        torch.library.register_torch_dispatch(
            f"tracebridge::{name}",
            dtensor_class(),
            lambda _cls, _op, _types, args, _kwargs, rule=rule: rule(*args),
            lib=_library,
        )


when_imported(DTENSORS, _add_rules_for_dtensors)
