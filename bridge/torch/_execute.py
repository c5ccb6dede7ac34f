"""Running a program on torch tensors: tensors in, tensors out, no Array in between.

On the CPU an argument enters as a NumPy view of the tensor's memory, a result leaves as a capsule:
about 2.6 and 0.8 us, without copies. Parameters live long, and so do tensors that come a second
time in a row: their buffers are held, 0.3 us (see ``Held``). Tensors of at most 4 KB and numbers
are copied into buffers that wait for them, 0.4 us (see ``make_stage``). The functions are
generated, as in core/runtime/execute.py: their source depends only on how many arguments and
results there are and how each one crosses. On other devices both ways are capsules, ordered by
streams.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast, final

import numpy as np
import torch

import tracebridge.core.lax as lax
from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core._jaxlib.xla import (
    HostBufferSemantics,
    batched_device_put,
    collect_garbage,
)
from tracebridge.core.dtypes.dtypes import bool_, uint8
from tracebridge.core.errors.base import InternalError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.runtime.backends import on_fork
from tracebridge.core.runtime.compile import Program, compile_jaxpr
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.util.caching import BoundedCache, register_cache
from tracebridge.interop.devices import CPU, CUDA, placement_of
from tracebridge.interop.dtypes import CARRIERS, row_of
from tracebridge.interop.layout import ALIGNMENT, address_of
from tracebridge.interop.torch_adapter import DISGUISES, TORCH_DTYPES, CapsuleView, current_stream

Run = Callable[[Sequence[Any]], list[torch.Tensor]]
MAX_UNROLLED = 200
_FACTORIES: BoundedCache[Any] = BoundedCache("torch call templates", 512)
_from_capsule = torch._C._from_dlpack
swaps_parameters = torch.__future__.get_swap_module_params_on_conversion

# How an argument crosses: as its own dtype, as bytes (bool), disguised as an integer, or as a
# Python number.
PLAIN, BYTES, DISGUISED, NUMBER = "plain", "bytes", "disguised", "number"
# In front of one of these: its bytes are copied into a buffer that waits for it.
STAGED = "staged "
STAGED_BYTES = 4096  # copying more takes longer than looking for a held buffer


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
    found = jaxpr.cache.get("torch boundary")
    if found is None:
        avals = [a.update(dtype=uint8) if a.dtype == bool_ else a for a in jaxpr.in_avals]

        def run(*xs: Any) -> list[Any]:
            values = [
                lax.ne(x, lax.full_like(x, 0)) if a.dtype == bool_ else x
                for x, a in zip(xs, jaxpr.in_avals, strict=True)
            ]
            return eval_jaxpr(jaxpr, current_trace().process, values)

        found = jaxpr.cache["torch boundary"] = stage(run, avals, jaxpr.debug, locate=False)
    return found


def make_run(
    jaxpr: Jaxpr, name: str, where: SingleDeviceSharding, numbers: Sequence[bool] = ()
) -> Run:
    """``run(leaves)`` for a program: dense plain tensors (and Python numbers) to new tensors.

    ``numbers`` says which leaves are Python numbers (default: none).

    Raises:
        UnsupportedExchangeDtypeError: a result has a dtype that torch does not have.
    """
    for aval in jaxpr.out_avals:
        row_of(aval.dtype, "torch")
    program = compile_jaxpr(boundary(jaxpr), name, where)
    is_number = tuple(numbers) or (False,) * jaxpr.n_in
    ways = tuple([_way(a, n) for a, n in zip(jaxpr.in_avals, is_number, strict=True)])
    avals = [a.strong for a in boundary(jaxpr).in_avals]
    if where.device.platform != "cpu":
        return _DeviceRun(program, ways, avals).run
    n_out = len(program.out_avals)
    if max(len(ways), n_out) > MAX_UNROLLED:
        return _LoopedRun(program, ways, avals).run
    staged = {
        i: (avals[i], ways[i] == NUMBER)
        for i in program.kept
        if n_out and _is_staged(ways[i], avals[i])
    }
    used = tuple([STAGED + ways[i] if i in staged else ways[i] for i in program.kept])
    key = (used, program.kept, n_out, len(program.constants))
    factory = _FACTORIES.get(key)
    if factory is None:
        factory = _compile_factory(*key)
        _FACTORIES.set(key, factory)
    return factory(
        program.executable.execute_sharded,
        program.handlers(False),
        program.constants,
        avals,
        where.backend_sharding,
        [where.device],
        [_carrier(a) for a in avals],
        functools.partial(make_stage, staged, where),
    )


def _way(aval: ShapedArray, is_number: bool) -> str:
    if is_number:
        return NUMBER
    if aval.dtype == bool_:
        return BYTES
    return DISGUISED if TORCH_DTYPES[aval.dtype] in DISGUISES else PLAIN


def _carrier(aval: ShapedArray) -> Any:
    torch_dtype = TORCH_DTYPES[aval.dtype]
    if torch_dtype not in DISGUISES:
        return None
    return getattr(torch, CARRIERS[aval.dtype.itemsize].name)


# Per way: what the view is made of, and what its result needs.
_VIEWED = {
    PLAIN: ("{x}", ""),
    BYTES: ("{x}.detach().view(torch_uint8)", ""),
    DISGUISED: ("{x}.detach().view(carriers[{i}])", ".view(t{i})"),
}
_TENSOR = """\
        x{i} = xs[{i}]
        h = held(id(x{i}))
        if (
            h is not None and h.ref() is x{i} and h.address == x{i}.data_ptr()
            and h.aval is a{i} and h.sharding is sharding
        ):
            b{i} = h.buf
        elif type(x{i}) is not Parameter and last{i}() is not x{i}:
            view.tensor = {viewed}
            host = from_dlpack(view){after}
            b{i} = put(a{i}, sharding, [host], devices, False, False, SHARE, True)
            last{i} = ref(x{i})
        else:
            view.tensor = {detached}
            host = from_dlpack(view){after}
            b{i} = put(a{i}, sharding, [host], devices, False, False, SHARE, True)
            hold(x{i}, a{i}, sharding, b{i})
"""
_NUMBER = """\
        b{i} = put(a{i}, sharding, [array(xs[{i}], t{i})], devices, False, False, COPY, True)
"""


# The slots of a stage: buffer, then where to write and how much, or the scalar to set.
_STAGED = """\
        b{i}, address, size = stage[{i}]
        copy_memory(address, xs[{i}].data_ptr(), size)
"""
_STAGED_NUMBER = """\
        b{i}, scalar, _ = stage[{i}]
        scalar[()] = xs[{i}]
"""


def _enter(i: int, way: str) -> str:
    """The statements that make the buffer of argument ``i``."""
    if way.startswith(STAGED):
        return (_STAGED_NUMBER if way == STAGED + NUMBER else _STAGED).format(i=i)
    if way == NUMBER:
        return _NUMBER.format(i=i)
    viewed, after = _VIEWED[way]
    # A capsule holds its tensor: one of the tensor itself would keep that alive for ever.
    detached = viewed if way != PLAIN else "{x}.detach()"
    names = {"x": f"x{i}", "i": i}
    return _TENSOR.format(
        i=i,
        viewed=viewed.format(**names),
        detached=detached.format(**names),
        after=after.format(**names),
    )


def _compile_factory(
    used: tuple[str, ...], kept: tuple[int, ...], n_out: int, n_consts: int
) -> Any:
    staged = any([way.startswith(STAGED) for way in used])
    lines = [
        "def factory(execute, handlers, constants, avals, sharding, devices, carriers, make_stage):"
    ]
    lines += [f"    c{i} = constants[{i}]" for i in range(n_consts)]
    viewed = [i for i, way in zip(kept, used, strict=True) if way in _VIEWED]
    for i in kept:
        lines += [f"    a{i} = avals[{i}]", f"    t{i} = a{i}.dtype", f"    last{i} = nobody"]
    if staged:
        lines += ["    stages = []", "    take, give_back = stages.pop, stages.append"]
    lines += ["    def run(xs):"]
    if staged:
        # A stage is of one call at a time: threads and callbacks may run the same function.
        lines += ["        try: stage = take()", "        except IndexError: stage = make_stage()"]
    lines += ["        view = View()"] if viewed else []
    # Weak references to the tensors of the last call. A race of threads costs a view at most.
    lines += [f"        nonlocal last{i}" for i in viewed]
    lines += [_enter(i, way) for i, way in zip(kept, used, strict=True)]
    buffers = [f"b{i}" for i in kept]
    arguments = ", ".join([f"c{i}" for i in range(n_consts)] + buffers)
    call = f"execute([{arguments}]).consume_with_handlers(handlers)"
    outs = [f"o{i}" for i in range(n_out)]
    lines += [f"        {', '.join(outs)}, = {call}" if outs else f"        {call}"]
    # XLA drops its references to the tensors at its next transfer, which may be never.
    lines += [f"        del {', '.join(buffers)}"] if buffers else []
    lines += ["        host = None"] if viewed else []
    lines += ["        collect()"]
    lines += [f"        results = [{', '.join([f'from_capsule(to_capsule({o}))' for o in outs])}]"]
    # A capsule waits for its result: nobody reads the stage any more.
    lines += ["        give_back(stage)"] if staged else []
    lines += ["        return results", "    return run"]
    scope: dict[str, Any] = {
        "copy_memory": _copy_memory,
        "put": door.put_view,
        "hold": hold,
        "held": _HELD.get,
        "nobody": lambda: None,
        "ref": weakref.ref,
        "Parameter": torch.nn.Parameter,
        "SHARE": HostBufferSemantics.ZERO_COPY,
        "View": CapsuleView,
        "from_dlpack": np.from_dlpack,
        "array": np.array,
        "torch_uint8": torch.uint8,
        "COPY": HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL,
        "collect": collect_garbage,
        "to_capsule": door.unversioned_capsule,
        "from_capsule": _from_capsule,
    }
    exec("\n".join(lines), scope)  # noqa: S102 (the source is made of integers and fixed words)
    return scope["factory"]


def _memory_copier() -> Callable[[int, int, int], object]:
    """``memmove(to, from, size)`` that keeps Python's lock: giving that away costs more."""
    try:
        memmove = ctypes.PyDLL(None).memmove
    except (OSError, AttributeError, TypeError):
        return ctypes.memmove  # not all systems find the C library so
    memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    memmove.restype = None
    return memmove


_copy_memory = _memory_copier()


def _is_staged(way: str, aval: ShapedArray) -> bool:
    return way == NUMBER or 0 < aval.size * aval.dtype.itemsize <= STAGED_BYTES


def make_stage(
    staged: dict[int, tuple[ShapedArray, bool]], where: SingleDeviceSharding
) -> dict[int, tuple[Any, Any, int]]:
    """Buffers that small arguments are copied into: one call writes and reads them at a time.

    Making a buffer takes jaxlib 2 us, copying a kilobyte takes 0.1 us. Per argument: the buffer
    and the address and size of its memory, or for a number the array of it.
    """
    stage: dict[int, tuple[Any, Any, int]] = {}
    for i, (aval, is_number) in staged.items():
        size = aval.size * aval.dtype.itemsize
        block = np.empty(size + ALIGNMENT, np.uint8)
        start = -address_of(block) % ALIGNMENT
        host = block[start : start + size].view(aval.dtype).reshape(aval.shape)
        semantics = HostBufferSemantics.ZERO_COPY
        buf = batched_device_put(
            aval, where.backend_sharding, [host], [where.device], False, semantics
        )
        address = address_of(host)
        if buf.unsafe_buffer_pointer() != address:
            msg = "jaxlib has copied aligned memory"
            raise InternalError(msg)
        stage[i] = (buf, host if is_number else address, size)
    return stage


@final
class Held:
    """A buffer over the memory of a living tensor.

    It is used only while the tensor has the address, shape and dtype that it had. In between its
    memory may come and go (sharded training resizes storages); it is not read then. What is held
    keeps the memory alive, until the tensor dies or is seen with other memory.
    """

    __slots__ = ("address", "aval", "buf", "ref", "sharding")

    def __init__(self, ref: Any, address: int, aval: ShapedArray, sharding: Any, buf: Any) -> None:
        self.ref = ref
        self.address = address
        self.aval = aval
        self.sharding = sharding
        self.buf = buf


# id of a tensor -> its buffer
_HELD: dict[int, Held] = {}


def hold(x: torch.Tensor, aval: ShapedArray, sharding: Any, buf: Any) -> None:
    """Remember ``buf`` if it is over the memory of ``x``."""
    if swaps_parameters():
        return  # torch swaps no tensors that somebody has a weak reference to
    key, address = id(x), x.data_ptr()
    if not address or buf.unsafe_buffer_pointer() != address:
        return  # a copy of misaligned memory, which would not see later values

    def forget(ref: Any) -> None:
        entry = _HELD.get(key)
        if entry is not None and entry.ref is ref:
            del _HELD[key], entry
            # XLA frees the memory at its next transfer, which may be never.
            collect_garbage()

    _HELD[key] = Held(weakref.ref(x, forget), address, aval, sharding, buf)


@final
class _HeldBuffers:
    """What ``clear_caches`` sees of them."""

    __slots__ = ("__weakref__",)
    name = "buffers of torch tensors"

    def clear(self) -> None:
        """Let go of all memory."""
        _HELD.clear()
        collect_garbage()

    def __len__(self) -> int:
        return len(_HELD)


_HELD_BUFFERS = _HeldBuffers()
register_cache(_HELD_BUFFERS)
on_fork(_HELD.clear)


@final
class _LoopedRun:
    """The same for calls with very many arguments or results."""

    __slots__ = ("avals", "program", "ways")

    def __init__(self, program: Program, ways: Sequence[str], avals: Sequence[Any]) -> None:
        self.program = program
        self.ways = ways
        self.avals = avals

    def run(self, xs: Sequence[Any]) -> list[torch.Tensor]:
        program = self.program
        where = program.placement
        buffers = list(program.constants)
        for i in program.kept:
            aval, way = self.avals[i], self.ways[i]
            semantics = HostBufferSemantics.ZERO_COPY
            if way == NUMBER:
                host = np.array(xs[i], aval.dtype)
                semantics = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
            else:
                host = _view(xs[i], aval)
            buffers.append(
                batched_device_put(
                    aval, where.backend_sharding, [host], [where.device], False, semantics
                )
            )
        outs = program.executable.execute_sharded(buffers).consume_with_handlers(
            program.handlers(False)
        )
        del buffers
        collect_garbage()
        return [_from_capsule(door.to_capsule(o)) for o in outs]


def _view(x: torch.Tensor, aval: ShapedArray) -> np.ndarray[Any, Any]:
    view = CapsuleView()
    carrier = torch.uint8 if x.dtype == torch.bool else _carrier(aval)
    view.tensor = x if carrier is None else x.detach().view(carrier)
    host = np.from_dlpack(view)
    return host if carrier is None or x.dtype == torch.bool else host.view(aval.dtype)


@final
class _DeviceRun:
    """On a GPU: capsules both ways.

    Each argument makes XLA's stream wait for torch's current stream, each result makes torch's
    current stream wait for XLA. Since every call with an argument waits for torch first, memory
    that torch frees after its last use of a result is not handed out too early.
    """

    __slots__ = ("avals", "program", "ways")

    def __init__(self, program: Program, ways: Sequence[str], avals: Sequence[Any]) -> None:
        self.program = program
        self.ways = ways
        self.avals = avals

    def run(self, xs: Sequence[Any]) -> list[torch.Tensor]:
        program = self.program
        where = program.placement
        device = where.device
        with torch.cuda.device(device.local_hardware_id):
            stream = device.get_stream_for_external_ready_events()
            buffers = list(program.constants)
            for i in program.kept:
                buffers.append(self._enter(i, xs[i], where, stream))
            outs = program.executable.execute_sharded(buffers).consume_with_handlers(
                program.handlers(False)
            )
            consumer = current_stream(device)
            return [_from_capsule(door.to_capsule(o, consumer)) for o in outs]

    def _enter(self, i: int, x: Any, where: SingleDeviceSharding, stream: int) -> Any:
        aval = self.avals[i]
        # A parameter that has been moved here leaves its old memory.
        _HELD.pop(id(x), None)
        if self.ways[i] == NUMBER:
            return batched_device_put(
                aval, where.backend_sharding, [np.array(x, aval.dtype)], [where.device], False
            )
        tensor = x.detach()
        if self.ways[i] == BYTES:
            tensor = tensor.view(torch.uint8)
        return door.from_capsule(tensor.__dlpack__(stream=stream), where.device, stream)
