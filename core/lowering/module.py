"""Whole modules: a Jaxpr as ``@main`` of a StableHLO module."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.dtypes.dtypes import itemsize_bits
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.interpreters.dce import dce_jaxpr, wants_dce
from tracebridge.core.interpreters.low import low_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import Effects, no_effects, ordered_effects
from tracebridge.core.ir.jaxpr import jaxprs_in_params
from tracebridge.core.ir.traverse import distinct_applications
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.rows.row_kernel import row_kernel_p
from tracebridge.core.kernels.steps.batch_kernel import batch_kernel_p
from tracebridge.core.kernels.steps.scan_kernel import scan_kernel_p
from tracebridge.core.lowering.context import PLATFORM_INDEX, LoweringContext
from tracebridge.core.lowering.emitters import is_brief, is_small
from tracebridge.core.lowering.locations import Locations
from tracebridge.core.lowering.rewrites.whole_programs import as_main
from tracebridge.core.lowering.symbolic import define_dims, has_symbolic_dims
from tracebridge.core.lowering.tiles import is_faster_without_tiles
from tracebridge.core.lowering.tokens import RUNTIME_TOKEN, create_tokens
from tracebridge.core.mlir.attrs import i32, string
from tracebridge.core.mlir.context import building
from tracebridge.core.mlir.shardy import define_mesh
from tracebridge.core.mlir.types import is_static, tensor_type

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.sharding.mesh import Mesh

# Array constants up to this many bytes stand in the program; larger ones are passed as arguments,
# because dense attributes are copied several times on their way through the compiler.
MAX_EMBEDDED_BYTES = 1024
_PLATFORM_INDEX = ShapedArray((), np.int32)
_KERNELS = frozenset({row_kernel_p, batch_kernel_p, scan_kernel_p})


@final
class LoweredModule:
    """A module with what is needed to call it.

    ``kept``: which inputs main still takes. ``hoisted``: Array constants that main takes before
    them. ``callbacks``: host functions by index. ``effects``: those of the program; main takes
    an empty array for each ordered one before all other arguments, and gives one after all
    results. ``inspections``: functions of the placement, to be called when it is known.
    ``keepalives``: objects that have to live as long as what is compiled. ``largest``: bytes of the
    largest value that an equation gives. ``without_tiles``: whether XLA is to leave out its emitter
    for tiles; ``without_emitters``: all of its newer emitters (``emitters.py``).
    """

    __slots__ = (
        "callbacks",
        "effects",
        "hoisted",
        "inspections",
        "keepalives",
        "kept",
        "largest",
        "module",
        "name",
        "without_emitters",
        "without_tiles",
    )

    def __init__(
        self,
        module: Any,
        name: str,
        kept: tuple[int, ...],
        hoisted: tuple[Any, ...],
        callbacks: list[Any],
        effects: Effects = no_effects,
        inspections: Sequence[Any] = (),
        keepalives: Sequence[Any] = (),
        without_tiles: bool = False,
        largest: float = math.inf,
        without_emitters: bool = False,
    ) -> None:
        self.module = module
        self.name = name
        self.kept = kept
        self.hoisted = hoisted
        self.callbacks = callbacks
        self.effects = effects
        self.inspections = tuple(inspections)
        self.keepalives = tuple(keepalives)
        self.without_tiles = without_tiles
        self.without_emitters = without_emitters
        self.largest = largest

    def as_text(self) -> str:
        """The StableHLO text."""
        with building():
            return str(self.module)


def lower_module(
    jaxpr: Jaxpr,
    name: str,
    platform: str,
    *,
    keep_unused: bool = False,
    donated: Sequence[int] = (),
    embed_constants: bool = False,
    platforms: Sequence[str] = (),
    names: Sequence[str] = (),
    axis_env: tuple[tuple[Any, int], ...] = (),
    n_replicas: int = 1,
    mesh: Mesh | None = None,
    manual: bool = False,
    located: bool = False,
    result_names: Sequence[str] = (),
    of_library: bool = False,
) -> LoweredModule:
    """Lower ``jaxpr`` to a module with a public function ``main``.

    ``donated`` are inputs whose memory results may reuse. With ``embed_constants`` no constant
    becomes an argument. With several ``platforms`` main has a leading ``i32`` argument, the number
    of the one that it runs on. With symbolic dimensions all inputs stay, and ``names`` are what
    messages about their sizes call them. ``axis_env`` are named axes, outermost first, of replicas
    of the program. ``mesh`` is what XLA is to split the program over; ``manual``: it is split
    already. With ``located`` operations have locations, results the attributes ``result_names``.
    ``of_library``: it is a function of the library, whose loops are short.
    """
    jaxpr = _needed(low_jaxpr(jaxpr))
    symbolic = has_symbolic_dims(jaxpr.in_avals)
    kept = _kept_inputs(jaxpr, keep_unused or symbolic)
    hoisted = () if embed_constants else tuple(_large_constants(jaxpr))
    ordered = ordered_effects(jaxpr.effects)
    tokens = [RUNTIME_TOKEN] * len(ordered)
    with building():
        ir = mlir.ir
        module = ir.Module.create()
        module.operation.attributes["sym_name"] = string(_module_name(name))
        module.operation.attributes["mhlo.num_replicas"] = i32(n_replicas)
        module.operation.attributes["mhlo.num_partitions"] = i32(1)
        ctx = LoweringContext(module, platform)
        ctx.axis_env, ctx.n_replicas, ctx.mesh = axis_env, n_replicas, mesh
        _over(ctx, mesh, manual)
        if located:
            ctx.locations = Locations(name, jaxpr.debug.arg_names, result_names)
        ctx.unique_name("main")
        ctx.platforms = tuple(platforms)
        types = [tensor_type(_PLATFORM_INDEX)] if len(ctx.platforms) > 1 else []
        n_first = len(types) + len(tokens)
        types += [tensor_type(a) for a in (*tokens, *[h.aval for h in hoisted])]
        types += [tensor_type(jaxpr.in_avals[i]) for i in kept]
        out_types = [tensor_type(a) for a in (*jaxpr.out_avals, *tokens)]
        aliases = _aliases(jaxpr, kept, donated)
        block = _main(ctx, jaxpr, kept, types, out_types, aliases)
        with ir.InsertionPoint(block):
            if len(ctx.platforms) > 1:
                ctx.define_dim(PLATFORM_INDEX, block.arguments[0])
            arguments = list(block.arguments)[n_first:]
            create_tokens(ctx, ordered)
            for array, value in zip(hoisted, arguments, strict=False):
                ctx.bind_constant(array, value)
            if symbolic:
                with _at_function(ctx, jaxpr):
                    inputs = define_dims(ctx, jaxpr.in_avals, arguments[len(hoisted) :], names)
                arguments[len(hoisted) :] = inputs
            jaxpr = _fill_main(ctx, jaxpr, kept, arguments[len(hoisted) :], bool(aliases))
    if not located:
        _warn_of_waste(jaxpr, name, [i for i in donated if i in kept and i not in aliases])
    held = ctx.callbacks, jaxpr.effects, ctx.inspections, ctx.keepalives
    return LoweredModule(module, name, kept, hoisted, *held, *_about(jaxpr, ctx, of_library))


def _over(ctx: LoweringContext, mesh: Mesh | None, manual: bool) -> None:
    """Set up a program over a mesh, or one for each device of it."""
    if mesh is None:
        return
    if manual:
        ctx.manual, ctx.n_replicas = mesh.axis_names, mesh.size
    else:
        define_mesh(ctx.module, mesh)


def _about(jaxpr: Jaxpr, ctx: LoweringContext, of_library: bool) -> tuple[bool, float, bool]:
    """What a compiler wants to know: which emitters are left out, and the largest value."""
    rewrite = ctx.rewrites.get("cpu")
    if ctx.platform != "cpu" or rewrite is None:
        return False, math.inf, False
    largest = _largest(jaxpr, rewrite)
    without_emitters = is_small(jaxpr) or (of_library and is_brief(jaxpr, largest))
    return is_faster_without_tiles(jaxpr), largest, without_emitters


def _largest(jaxpr: Jaxpr, rewrite: Callable[[Jaxpr], Jaxpr]) -> float:
    """Bytes of the largest value in memory; infinite if a size has a name only.

    What kernels have between their operands and results is in no memory: programs are looked at as
    they are lowered, which ``rewrite`` remembers.
    """
    avals = set[ShapedArray]()
    todo = [jaxpr]
    seen: dict[int, Jaxpr] = {}  # by their numbers, which are theirs while they live
    while todo:
        program = todo.pop()
        if id(program) in seen:
            continue
        seen[id(program)] = program
        for app in distinct_applications(rewrite(program)):
            avals.update(app.outs)
            if app.primitive not in _KERNELS:
                todo.extend(jaxprs_in_params(app.params))
    largest = 0
    for aval in avals:
        if not all([type(n) is int for n in aval.shape]):
            return math.inf
        largest = max(largest, aval.size * itemsize_bits(aval.dtype) // 8)
    return largest


def _needed(jaxpr: Jaxpr) -> Jaxpr:
    """The program without equations that nothing needs, with all its inputs."""
    if not wants_dce(jaxpr):
        return jaxpr
    return dce_jaxpr(jaxpr, (True,) * len(jaxpr.outs), keep_in=True)[0]


def _main(
    ctx: LoweringContext,
    jaxpr: Jaxpr,
    kept: tuple[int, ...],
    types: list[Any],
    out_types: list[Any],
    aliases: dict[int, int],
) -> Any:
    """The function main, without its body: the block."""
    ir, located = mlir.ir, ctx.locations
    n_extra = len(types) - len(kept)
    attributes: dict[str, Any] = {
        "sym_name": string("main"),
        "sym_visibility": string("public"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, out_types)),
    }
    if aliases:
        attributes["arg_attrs"] = _argument_attributes(n_extra, kept, aliases)
    if located is not None and len(located.result_names) == len(out_types):
        attributes["res_attrs"] = located.results()
    with ir.InsertionPoint(ctx.module.body):
        main = ctx.create("func.func", attributes=attributes, regions=1)
    unknown = ir.Location.unknown()
    inputs = [unknown if located is None else located.of_argument(i) for i in kept]
    return main.regions[0].blocks.append(*types, arg_locs=[unknown] * n_extra + inputs)


def _fill_main(
    ctx: LoweringContext,
    jaxpr: Jaxpr,
    kept: tuple[int, ...],
    arguments: Sequence[object],
    takes_memory: bool,
) -> Jaxpr:
    """Emit main; the program that it is. ``takes_memory``: results have that of arguments."""
    jaxpr = as_main(jaxpr, takes_memory)
    # Importing it registers the rules for speed: that can wait for the first program.
    importlib.import_module("tracebridge.core.lowering.platforms")
    operands: list[Any] = [None] * jaxpr.n_in
    for i, value in zip(kept, arguments, strict=True):
        operands[i] = value
    outs = ctx.inline_jaxpr(jaxpr, operands)
    tokens = [ctx.splat(False, RUNTIME_TOKEN) for _ in ordered_effects(jaxpr.effects)]
    ctx.finish([*outs, *tokens], "func.return")
    return jaxpr


def _module_name(name: str) -> str:
    return "jit_" + "".join([c if c.isalnum() or c == "_" else "_" for c in name])


def _at_function(ctx: LoweringContext, jaxpr: Jaxpr) -> AbstractContextManager[object]:
    """Operations of the program as a whole stand, where such lines are kept, where it begins."""
    if ctx.locations is None:
        return contextlib.nullcontext()
    where: AbstractContextManager[object] = ctx.locations.of_function(jaxpr.debug)
    return where


def _kept_inputs(jaxpr: Jaxpr, keep_unused: bool) -> tuple[int, ...]:
    """Inputs that some equation or result uses."""
    if keep_unused:
        return tuple(range(jaxpr.n_in))
    used: set[int] = set(jaxpr.outs)
    for _, idx in jaxpr.equations:
        used.update(idx)
    return tuple([i for i in range(jaxpr.n_in) if i in used])


def _large_constants(jaxpr: Jaxpr) -> list[Any]:
    return [c for c in jaxpr.consts if type(c) is not Literal and not _can_be_embedded(c)]


def _can_be_embedded(array: Any) -> bool:
    """Whether an Array is small, and this process has all of it."""
    if array.aval.size * array.aval.dtype.itemsize > MAX_EMBEDDED_BYTES:
        return False
    return getattr(array, "is_fully_addressable", True)


def _aliases(jaxpr: Jaxpr, kept: tuple[int, ...], donated: Sequence[int]) -> dict[int, int]:
    """Donated input -> result that may take its memory.

    Rather one of the same shape and dtype, else one of as many bytes.
    """
    free = dict.fromkeys(range(len(jaxpr.outs)))
    aliases: dict[int, int] = {}
    for fits in (_equal, _as_large):
        for i in donated:
            if i not in kept or i in aliases:
                continue
            aval = jaxpr.in_avals[i]
            position = next((k for k in free if fits(aval, jaxpr.out_avals[k])), None)
            if position is not None:
                aliases[i] = position
                del free[position]
    return aliases


def _equal(aval: ShapedArray, out: ShapedArray) -> bool:
    return out.shape == aval.shape and out.dtype == aval.dtype


def _as_large(aval: ShapedArray, out: ShapedArray) -> bool:
    """Whether arrays of whole bytes take as much memory, which must be some."""
    if min(itemsize_bits(aval.dtype), itemsize_bits(out.dtype)) < 8 or not is_static(aval):
        return False
    n_bytes = aval.size * aval.dtype.itemsize
    return is_static(out) and 0 < n_bytes == out.size * out.dtype.itemsize


def _warn_of_waste(jaxpr: Jaxpr, name: str, wasted: Sequence[int]) -> None:
    """Warn of donated inputs whose memory no result can take."""
    if wasted:
        shown = [f"{jaxpr.debug.argument(i)} ({jaxpr.in_avals[i].str_short()})" for i in wasted]
        warn_user(
            f"Some donated buffers were not usable: {', '.join(shown)} of {name}; no result of "
            "the same size is left that could take their memory"
        )


def _argument_attributes(n_hoisted: int, kept: tuple[int, ...], aliases: dict[int, int]) -> Any:
    ir = mlir.ir
    rows = [ir.DictAttr.get({})] * n_hoisted
    for i in kept:
        entry = {"tf.aliasing_output": i32(aliases[i])} if i in aliases else {}
        rows.append(ir.DictAttr.get(entry))
    return ir.ArrayAttr.get(rows)
