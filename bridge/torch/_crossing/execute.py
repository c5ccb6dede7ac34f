"""Running a program on torch tensors: tensors in, tensors out, no Array in between.

On the CPU an argument enters as a buffer over its memory, found by address in 0.3 us or made in
2.6 us; a result leaves as a capsule in about 1 us, without copies. Numbers, and tensors of at most
4 KB at addresses that are not known, are copied into buffers that wait for them, 0.4 us, or 1 us
where a large program has used the caches; memory.py has all of these. The
functions are generated, as in core/runtime/calls/execute.py: their source depends only on how many
arguments and results there are and how each one crosses. On other devices both ways are capsules,
ordered by streams.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast, final

import torch

import tracebridge.core.lax as lax
from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core._jaxlib.xla import collect_garbage
from tracebridge.core.config.settings import current_settings
from tracebridge.core.control.calls.compiler_options import lifted_options
from tracebridge.core.dtypes.dtypes import bool_, uint8
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.runtime.programs.compile import compile_jaxpr
from tracebridge.core.runtime.programs.program import Program
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.util.caching import BoundedCache
from tracebridge.interop.devices import CPU, CUDA, placement_of
from tracebridge.interop.layout import ALIGNMENT
from tracebridge.interop.torch_adapter import ROWS, check_has_values
from tracebridge.torch._crossing import memory
from tracebridge.torch._crossing.direct import direct_run
from tracebridge.torch._crossing.on_device import DeviceRun

Run = Callable[[Sequence[Any]], list[torch.Tensor]]
MAX_UNROLLED = 200
_FACTORIES: BoundedCache[Any] = BoundedCache("torch call templates", 512)
_from_capsule = torch._C._from_dlpack

_SEEN = 32  # addresses of each small argument among which one that comes again is noticed

# How an argument crosses: over its own memory, copied, or as a Python number.
LARGE, SMALL, NUMBER = "large", "small", "number"


def placement_for(device: torch.device) -> SingleDeviceSharding:
    """The engine's placement of a torch device.

    Raises:
        ExchangeError: the engine has no such device.
        BackendNotFoundError: jaxlib's plugin for it is not installed.
    """
    if device.type == "cpu":
        return placement_of(CPU, 0)
    index: int | None = cast("int | None", device.index)  # the stubs forget None
    if index is None:
        index = torch.cuda.current_device()
    # An unknown type of device gets a code that no device has.
    return placement_of(CUDA if device.type == "cuda" else -1, index)


def boundary(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` with bool inputs as bytes: torch has bools other than 0 and 1, XLA has not."""
    if not any([a.dtype == bool_ for a in jaxpr.in_avals]):
        return jaxpr
    cached = jaxpr.cache.get("torch boundary")
    if cached is None:
        avals = [a.update(dtype=uint8) if a.dtype == bool_ else a for a in jaxpr.in_avals]

        def run(*xs: Any) -> list[Any]:
            values = [
                lax.ne(x, lax.full_like(x, 0)) if a.dtype == bool_ else x
                for x, a in zip(xs, jaxpr.in_avals, strict=True)
            ]
            return eval_jaxpr(jaxpr, current_trace().process, values)

        cached = jaxpr.cache["torch boundary"] = stage(run, avals, jaxpr.debug, locate=False)
    return cached


def make_run(
    jaxpr: Jaxpr, name: str, where: SingleDeviceSharding, numbers: Sequence[bool] = ()
) -> Run:
    """``run(leaves)`` for a program: dense plain tensors (and Python numbers) to new tensors.

    ``numbers`` says which leaves are Python numbers (default: none).

    Raises:
        UnsupportedExchangeDtypeError: a result has a dtype that torch does not have.
    """
    for aval in jaxpr.out_avals:
        ROWS.name(aval.dtype)  # or its error
    is_number = tuple(numbers) or (False,) * jaxpr.n_in
    whole, options = lifted = lifted_options(boundary(jaxpr))
    if where.device.platform == "cpu" and not options and not any(is_number):
        settings = current_settings()

        def later() -> Run:
            with settings.again():
                return _by_xla(jaxpr, lifted, name, where, is_number)

        found = direct_run(whole, later)
        if found is not None:
            return found
    return _by_xla(jaxpr, lifted, name, where, is_number)


def _by_xla(
    jaxpr: Jaxpr,
    lifted: tuple[Jaxpr, Any],
    name: str,
    where: SingleDeviceSharding,
    is_number: tuple[bool, ...],
) -> Run:
    """``make_run`` for any program; ``lifted``: what XLA compiles, and its options."""
    whole, options = lifted
    program = compile_jaxpr(whole, name, where, compiler_options=options)
    avals = [a.strong for a in boundary(jaxpr).in_avals]
    if where.device.platform != "cpu":
        return DeviceRun(program, jaxpr.in_avals, avals, is_number).run
    n_out = len(program.out_avals)
    ways = [_way(avals[i], is_number[i]) for i in program.kept]
    if not n_out:
        # Nothing to wait for: who gets the memory back must not disturb the program.
        return _CopyingRun(program, avals).run
    if max(len(ways), n_out) > MAX_UNROLLED:
        return _LoopedRun(program, ways, avals).run
    small = tuple([memory.leaves_small(a) for a in program.out_avals])
    key = (tuple(ways), program.kept, small, len(program.constants))
    factory = _FACTORIES.get(key)
    if factory is None:
        factory = _compile_factory(*key)
        _FACTORIES.set(key, factory)
    return factory(
        program.executable.execute_sharded,
        program.handlers(False),
        program.constants,
        [memory.Borrowed.of(avals[i], where) for i in program.kept],
        _stage_maker(program, ways, avals),
        [memory.way_out(a) for a in program.out_avals],
    )


def _way(aval: ShapedArray, is_number: bool) -> str:
    if is_number:
        return NUMBER
    return SMALL if 0 < aval.size * aval.dtype.itemsize <= memory.SMALL_BYTES else LARGE


def _stage_maker(
    program: Program[Any], ways: Sequence[str], avals: Sequence[ShapedArray]
) -> Callable[[], memory.Stage]:
    staged = [
        (avals[i], way == NUMBER) for i, way in zip(program.kept, ways, strict=True) if way != LARGE
    ]
    return functools.partial(memory.make_stage, staged, program.placement)


# The storage may have become too small for its tensor: n{i} bytes, of w{i} each, must be there.
_LARGE = """\
        x = xs[{i}]
        if storage_of(x).nbytes() - x.storage_offset() * w{i} < n{i}: refuse(x)
        address = x.data_ptr()
        b{i} = known{i}(address)
        if b{i} is None: b{i} = enter{i}(address)
"""
_ENTRIES = {
    LARGE: _LARGE,
    # Copied, until the same memory comes for the third time, as that of parameters does.
    SMALL: """\
        x = xs[{i}]
        if storage_of(x).nbytes() - x.storage_offset() * w{i} < n{i}: refuse(x)
        address = x.data_ptr()
        b{i} = known{i}(address)
        if b{i} is None:
            if ~address in seen and not address % alignment: b{i} = enter{i}(address)
            else:
                if len(seen) > {room}: seen.clear()
                seen.add(~address if address in seen else address)
                b{i}, room, _ = stage[{k}]
                copy_memory(room, address, n{i})
""",
    NUMBER: """\
        b{i}, scalar, _ = stage[{k}]
        scalar[()] = xs[{i}]
""",
}


def _compile_factory(
    ways: tuple[str, ...], kept: tuple[int, ...], small: tuple[bool, ...], n_consts: int
) -> Any:
    lines = ["def factory(execute, handlers, constants, tables, make_stage, ways_out):"]
    lines += [f"    c{i} = constants[{i}]" for i in range(n_consts)]
    entries: list[str] = []
    n_staged = 0
    for place, (i, way) in enumerate(zip(kept, ways, strict=True)):
        lines += [f"    known{i}, enter{i}, n{i}, w{i} = tables[{place}].parts()"]
        entries += [_ENTRIES[way].format(i=i, k=n_staged, room=_SEEN * len(ways))]
        n_staged += way != LARGE
    lines += [f"    leave{i} = ways_out[{i}]" for i, s in enumerate(small) if not s]
    lines += ["    stages = []", "    take, give_back = stages.pop, stages.append"]
    lines += ["    seen = set()"]
    lines += ["    def run(xs):"]
    if n_staged:
        # A stage is of one call at a time: threads and callbacks may run the same function.
        lines += ["        try: stage = take()", "        except IndexError: stage = make_stage()"]
    # Small results of former calls that have died wait for somebody to free them.
    lines += [*entries, "        collect()"]
    outs = [f"o{i}" for i in range(len(small))]
    arguments = ", ".join([f"c{i}" for i in range(n_consts)] + [f"b{i}" for i in kept])
    call = f"execute([{arguments}]).consume_with_handlers(handlers)"
    lines += [f"        {', '.join(outs)}, = {call}"]
    leaving = [
        f"from_capsule(to_capsule({o}))" if s else f"leave{i}({o})"
        for i, (o, s) in enumerate(zip(outs, small, strict=True))
    ]
    lines += [f"        results = [{', '.join(leaving)}]"]
    # What leaves waits for its result: nobody reads the stage or borrowed memory any more.
    lines += ["        give_back(stage)"] if n_staged else []
    lines += ["        return results", "    return run"]
    scope: dict[str, Any] = {
        "alignment": ALIGNMENT,
        "copy_memory": memory.copy_memory,
        "storage_of": memory.storage_of,
        "refuse": check_has_values,
        "collect": collect_garbage,
        "to_capsule": door.unversioned_capsule,
        "from_capsule": _from_capsule,
    }
    exec(compile("\n".join(lines), "<tracebridge call>", "exec"), scope)  # noqa: S102 (the source is made of integers and fixed words)
    return scope["factory"]


@final
class _LoopedRun:
    """The same for calls with very many arguments or results."""

    __slots__ = ("large", "make_stage", "numbers", "program", "small", "stages", "ways_out")

    def __init__(
        self, program: Program[Any], ways: Sequence[str], avals: Sequence[ShapedArray]
    ) -> None:
        self.program = program
        self.make_stage = _stage_maker(program, ways, avals)
        self.stages: list[memory.Stage] = []
        self.ways_out = [memory.way_out(a) for a in program.out_avals]
        # Each with its place among the buffers.
        self.large: list[tuple[Any, ...]] = []
        self.small: list[tuple[Any, ...]] = []
        self.numbers: list[tuple[int, int, int]] = []
        start = len(program.constants)
        n_staged = 0
        for place, (i, way) in enumerate(zip(program.kept, ways, strict=True), start):
            parts = memory.Borrowed.of(avals[i], program.placement).parts()
            if way == LARGE:
                self.large.append((place, i, *parts))
                continue
            if way == SMALL:
                self.small.append((place, i, n_staged, *parts[2:]))
            else:
                self.numbers.append((place, i, n_staged))
            n_staged += 1

    def run(self, xs: Sequence[Any]) -> list[torch.Tensor]:
        program = self.program
        storage_of, copy_memory = memory.storage_of, memory.copy_memory
        try:
            stage = self.stages.pop()
        except IndexError:
            stage = self.make_stage()
        buffers = [*program.constants, *[None] * len(program.kept)]
        for place, i, known, enter, n, width in self.large:
            x = xs[i]
            if storage_of(x).nbytes() - x.storage_offset() * width < n:
                check_has_values(x)
            address = x.data_ptr()
            buffer = known(address)
            buffers[place] = enter(address) if buffer is None else buffer
        for place, i, k, n, width in self.small:
            x = xs[i]
            if storage_of(x).nbytes() - x.storage_offset() * width < n:
                check_has_values(x)
            buffers[place], address, _ = stage[k]
            copy_memory(address, x.data_ptr(), n)
        for place, i, k in self.numbers:
            buffers[place], scalar, _ = stage[k]
            scalar[()] = xs[i]
        collect_garbage()
        outs = program.executable.execute_sharded(buffers).consume_with_handlers(
            program.handlers(False)
        )
        results = [leave(o) for leave, o in zip(self.ways_out, outs, strict=True)]
        self.stages.append(stage)
        return results


@final
class _CopyingRun:
    """For programs without results, which nobody can wait for: arguments are copied."""

    __slots__ = ("avals", "program")

    def __init__(self, program: Program[Any], avals: Sequence[ShapedArray]) -> None:
        self.program = program
        self.avals = avals

    def run(self, xs: Sequence[Any]) -> list[torch.Tensor]:
        program = self.program
        buffers = list(program.constants)
        for i in program.kept:
            buffers.append(memory.copied(self.avals[i], program.placement, xs[i]))
        program.executable.execute_sharded(buffers).consume_with_handlers([])
        return []
