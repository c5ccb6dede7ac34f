"""Programs that are nothing but kernels, called without XLA: torch's memory in, torch's memory out.

Between a call of torch and machine code lie a buffer of jaxlib for each argument, XLA's own call,
and a capsule for each result: 13 us, twice that where a kernel of some megabytes has used the
caches before. Here results are empty tensors, and machine code gets addresses. Where torch sees
more in a call than its memory (transformations, modes, profilers, traces), the program goes through
XLA.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import profiler

from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.kernels.machine import n_threads
from tracebridge.core.lowering.direct import KernelCall, direct_program
from tracebridge.core.util.caching import BoundedCache
from tracebridge.interop.torch_adapter import TORCH_DTYPES, check_has_values, modes_active
from tracebridge.torch._crossing import memory

_MOST_ARRAYS = 32
_FACTORIES: BoundedCache[Any] = BoundedCache("torch templates of direct calls", 128)

Run = Callable[[Sequence[Any]], list[torch.Tensor]]


def direct_run(jaxpr: Jaxpr, make: Callable[[], Run]) -> Run | None:
    """``run(leaves)`` by machine code alone; None if the program is not made of kernels.

    ``make``: the way through XLA, made when a call has to take it, whatever options are in force.
    """
    program = direct_program(jaxpr)
    if program is None or jaxpr.n_in + len(program.made) > _MOST_ARRAYS:
        return None
    read = sorted({p for call in program.calls for p in call.operands if p < jaxpr.n_in})
    places = tuple([(call.operands, call.results) for call in program.calls])
    key = tuple(read), jaxpr.n_in, places, program.outs
    factory = _FACTORIES.get(key)
    if factory is None:
        factory = _compile_factory(*key)
        _FACTORIES.set(key, factory)
    return factory(
        [_function(call) for call in program.calls],
        [(ctypes.c_int64 * 3)(*call.shares) for call in program.calls],
        [(a.size * a.dtype.itemsize, a.dtype.itemsize) for a in jaxpr.in_avals],
        [(a.shape, TORCH_DTYPES[a.dtype]) for a in program.made],
        functools.cache(make),
    )


def _function(call: KernelCall) -> Any:
    """The machine code of a kernel: of addresses, those of its shares last, and of threads."""
    n = len(call.operands) + len(call.results) + 1
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n, ctypes.c_int64)(call.address)


def _compile_factory(
    read: tuple[int, ...],
    n_in: int,
    calls: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...],
    outs: tuple[int, ...],
) -> Any:
    """``factory(functions, shares, sizes, made, make)``, which gives ``run``."""
    lines = ["def factory(functions, shares, sizes, made, make):"]
    lines += [f"    n{i}, w{i} = sizes[{i}]" for i in read]
    for k in range(len(calls)):
        lines += [f"    call{k}, shares{k} = functions[{k}], address_of(shares[{k}])"]
    results = [p for _, places in calls for p in places]
    lines += [f"    shape{p}, dtype{p} = made[{p - n_in}]" for p in results]
    lines += [
        "    def run(xs):",
        "        if (",
        "            transforms_active() or modes_active() or function_modes()",
        "            or profiler._is_profiler_enabled or traced() is not None",
        "        ):",
        "            return make()(xs)",
    ]
    for i in read:
        lines += [
            f"        x = xs[{i}]",
            # The storage may have become too small for its tensor.
            f"        if storage_of(x).nbytes() - x.storage_offset() * w{i} < n{i}: refuse(x)",
            f"        a{i} = x.data_ptr()",
        ]
    for p in results:
        lines += [f"        t{p} = empty(shape{p}, dtype=dtype{p}, device=cpu)"]
        lines += [f"        a{p} = t{p}.data_ptr()"]
    for k, (operands, places) in enumerate(calls):
        given = ", ".join([f"a{p}" for p in (*operands, *places)])
        lines += [f"        call{k}({given}, shares{k}, threads)"]
    lines += [f"        return [{', '.join([f't{p}' for p in outs])}]"]
    # The numbers live as long as the function.
    lines += ["    run.shares = shares", "    return run"]
    scope: dict[str, Any] = {
        "address_of": ctypes.addressof,
        "cpu": torch.device("cpu"),
        "empty": torch.empty,
        "function_modes": torch._C._len_torch_function_stack,
        "modes_active": modes_active,
        "profiler": profiler,
        "refuse": check_has_values,
        "storage_of": memory.storage_of,
        "threads": n_threads(),
        "traced": torch._C._get_tracing_state,
        "transforms_active": torch._C._are_functorch_transforms_active,
    }
    exec(compile("\n".join(lines), "<tracebridge kernels>", "exec"), scope)  # noqa: S102 (the source is made of integers and fixed words)
    return scope["factory"]
