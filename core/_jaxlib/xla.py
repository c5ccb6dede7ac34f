"""Clients, devices, shardings, buffers, compilation and execution.

Buffers are jaxlib's `ArrayImpl`. An aval handed to these functions is duck-typed: it needs the
attributes `shape`, `dtype` and `weak_type`. A sharding handed to C++ is always an exact
`GSPMDSharding`: its hash and comparison stay in C++ and nothing of it reads Python attributes.
Thread-safety: the only state is the table of interned shardings, a plain dict changed by
`setdefault`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxlib import _hlo, _jax, utils, xla_client
from jaxlib.xla_client import (
    ArrayCopySemantics,
    ArrayImpl,
    Client,
    CompileOptions,
    Device,
    DeviceAssignment,
    DeviceList,
    DeviceTopology,
    GSPMDSharding,
    HloSharding,
    HostBufferSemantics,
    Layout,
    LoadedExecutable,
    Memory,
    OpSharding,
    PjRtLayout,
    Traceback,
    XlaComputation,
    XlaRuntimeError,
    batched_block_until_ready,
    register_custom_call_target,
)

from tracebridge.core._jaxlib.version import JAXLIB_VERSION

__all__ = [
    "NO_EMITTERS",
    "ArrayCopySemantics",
    "ArrayImpl",
    "Client",
    "CompileOptions",
    "CompiledMemoryStats",
    "Device",
    "DeviceAssignment",
    "DeviceList",
    "DeviceTopology",
    "ExecuteResults",
    "GSPMDSharding",
    "HloPrintOptions",
    "HloSharding",
    "HostBufferSemantics",
    "Layout",
    "LoadedExecutable",
    "Memory",
    "OpSharding",
    "PjRtLayout",
    "ResultHandler",
    "Traceback",
    "XlaComputation",
    "XlaRuntimeError",
    "approximate_top_k_size",
    "array_from_shards",
    "array_result_handler",
    "batched_block_until_ready",
    "batched_device_put",
    "buffer_to_numpy",
    "collect_garbage",
    "compile_and_load",
    "copy_to_devices",
    "deserialize_executable",
    "forget_devices",
    "get_traceback",
    "gspmd_sharding",
    "hlo_module_cost_analysis",
    "make_compile_options",
    "make_cpu_client",
    "make_plugin_client",
    "platform_of",
    "register_custom_call_target",
    "rewrap",
    "serialize_executable",
    "single_device_sharding",
    "start_copy_to_host",
    "view_on_cpu",
    "with_flag",
    "without_tiles",
]

CompiledMemoryStats = _jax.CompiledMemoryStats
ExecuteResults = _jax.ExecuteResults
HloPrintOptions = _hlo.HloPrintOptions
ResultHandler = _jax.ResultHandler
hlo_module_cost_analysis = _jax.hlo_module_cost_analysis

collect_garbage: Callable[[], None] = _jax.collect_garbage
"""Release host objects that freed buffers had borrowed memory from (0.04 us when there are none).

jaxlib defers it to the next transfer; call it where memory of others must be released in time.
"""

get_traceback: Callable[[], Traceback | None] = Traceback.get_traceback
"""Capture the Python stack of this thread (0.1 to 0.4 us): code objects, no frames or locals."""

# Plain aliases of unbound C++ methods: a Python wrapper would double their cost.
buffer_to_numpy: Callable[[ArrayImpl], tuple[np.ndarray, bool]] = (
    ArrayImpl._single_device_array_to_np_array_did_copy
)
"""Return (read-only ndarray, did_copy) of a single-device buffer; waits; raises its stored error.

The ndarray aliases the buffer on the CPU and keeps the memory alive, also after a delete.
"""


def view_on_cpu(buffer: ArrayImpl) -> np.ndarray:
    """The same of a buffer of the CPU whose dtype is NumPy's own.

    The first `buffer_to_numpy` of a buffer takes 65 us, a view by Python's protocol takes one.
    Both wait, other threads run meanwhile.
    """
    exporter: Any = buffer  # type checkers know the protocol by its name of Python 3.12
    try:
        return np.asarray(memoryview(exporter))
    except BufferError:  # what follows says why
        return buffer_to_numpy(buffer)[0]


rewrap: Callable[[ArrayImpl, Any, GSPMDSharding], ArrayImpl] = (
    ArrayImpl._rewrap_with_aval_and_sharding
)
"""Return a new `ArrayImpl` over the same device memory with another aval and sharding."""


# --- clients ---------------------------------------------------------------------------------


def make_cpu_client(
    num_devices: int = 1,
    asynchronous: bool = False,
    *,
    distributed_client: Any = None,
    node_id: int = 0,
    num_nodes: int = 1,
    collectives: Any = None,
    quiet: bool = True,
) -> Client:
    """Return a new CPU client with `num_devices` devices; several may live in one process.

    A synchronous client runs a computation inside the call. `quiet` hides the informational
    lines that XLA prints to stderr when a client is made (a threshold of XLA's own logger;
    warnings and errors still appear).
    """
    if quiet:
        utils.absl_set_min_log_level(1)
    return xla_client.make_cpu_client(
        asynchronous=asynchronous,
        distributed_client=distributed_client,
        node_id=node_id,
        num_nodes=num_nodes,
        collectives=collectives,
        num_devices=num_devices,
    )


def make_plugin_client(
    name: str,
    options: dict[str, str | int | list[int] | float | bool] | None = None,
    *,
    distributed_client: Any = None,
    quiet: bool = True,
) -> Client:
    """Return a client of the PJRT plugin `name`, which must have been loaded and initialised."""
    if quiet:
        utils.absl_set_min_log_level(1)
    return xla_client.make_c_api_client(name, options or {}, distributed_client)


def platform_of(device: Device) -> str:
    """The platform that programs for a device are lowered for: "cpu", "cuda", "rocm", "tpu", ...

    Devices of both kinds of GPU call theirs "gpu".
    """
    name = str(device.platform)
    if name != "gpu":
        return name
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


# --- shardings -------------------------------------------------------------------------------

_SINGLE: dict[tuple[Device, str | None], GSPMDSharding] = {}


def gspmd_sharding(
    devices: DeviceList | Sequence[Device],
    hlo_sharding: HloSharding,
    memory_kind: str | None = None,
) -> GSPMDSharding:
    """Return a new exact `GSPMDSharding`. In Python two of them are equal only if identical."""
    device_list = devices if isinstance(devices, DeviceList) else DeviceList(tuple(devices))
    return GSPMDSharding(device_list, hlo_sharding, memory_kind=memory_kind)


def single_device_sharding(device: Device, memory_kind: str | None = None) -> GSPMDSharding:
    """Return the interned sharding "whole array on this device"; the same object each time."""
    key = (device, memory_kind)
    found = _SINGLE.get(key)
    if found is not None:
        return found
    made = gspmd_sharding((device,), HloSharding.replicate(), memory_kind)
    return _SINGLE.setdefault(key, made)


def forget_devices(devices: Sequence[Device]) -> None:
    """Drop the interned shardings of these devices, so that their client can be freed."""
    gone = set(devices)
    for key in [key for key in _SINGLE if key[0] in gone]:
        _SINGLE.pop(key, None)


# --- buffers ---------------------------------------------------------------------------------


def approximate_top_k_size(
    size: int, rank: int, k: int, recall_target: float, input_size_override: int
) -> int:
    """How many candidates for the ``k`` largest of an axis an approximate search leaves."""
    return _jax.approx_top_k_reduction_output_size(
        size, rank, k, recall_target, False, input_size_override
    )[0]


def batched_device_put(
    aval: Any,
    sharding: GSPMDSharding,
    xs: Sequence[Any],
    devices: Sequence[Device],
    committed: bool = True,
    semantics: HostBufferSemantics = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL,
    force_copy: bool = False,
) -> ArrayImpl:
    """Return one `ArrayImpl` made of the host values or buffers `xs`, one for each device.

    The default semantics copy. `ZERO_COPY` borrows dense, row-major, 64-byte aligned memory of
    an ndarray (the buffer then keeps a reference to it, and writes through the ndarray are
    visible) and silently copies any other. A dtype in foreign byte order is accepted by jaxlib
    and gives wrong values: callers check `dtype.isnative`.
    """
    # enable_x64=None would make C++ read a process-wide configuration object that nobody set.
    return xla_client.batched_device_put(
        aval, sharding, xs, devices, committed, force_copy, semantics, True
    )


def array_from_shards(
    aval: Any, sharding: GSPMDSharding, shards: Sequence[ArrayImpl], committed: bool = True
) -> ArrayImpl:
    """Return one global `ArrayImpl` over single-device buffers in the order of the devices."""
    return ArrayImpl(aval, sharding, list(shards), committed=committed, _skip_checks=True)


def start_copy_to_host(buffer: ArrayImpl) -> None:
    """Start the copy that a later `buffer_to_numpy` waits for; nothing on the CPU."""
    buffer._copy_single_device_array_to_host_async()


def copy_to_devices(
    arrays: Sequence[ArrayImpl],
    device_lists: Sequence[DeviceList],
    shardings: Sequence[GSPMDSharding],
    semantics: Sequence[ArrayCopySemantics] | None = None,
) -> list[ArrayImpl]:
    """Copy each array to its device list and sharding; device to device where possible."""
    if semantics is None:
        semantics = [ArrayCopySemantics.REUSE_INPUT] * len(arrays)
    return xla_client.batched_copy_array_to_devices_with_sharding(
        arrays, device_lists, shardings, semantics
    )


_HANDLER_HAS_SKIP_CHECKS = "_skip_checks" in (_jax.array_result_handler.__doc__ or "")

if _HANDLER_HAS_SKIP_CHECKS:

    def array_result_handler(aval: Any, sharding: GSPMDSharding, committed: bool) -> ResultHandler:
        """Return the handler that makes one output of an execution an `ArrayImpl`."""
        return _jax.array_result_handler(aval, sharding, committed, _skip_checks=True)

else:

    def array_result_handler(aval: Any, sharding: GSPMDSharding, committed: bool) -> ResultHandler:
        """Return the handler that makes one output of an execution an `ArrayImpl`."""
        return _jax.array_result_handler(aval, sharding, committed)


# --- compilation -----------------------------------------------------------------------------


# Versions since 0.11 have no emitters to choose.
NO_EMITTERS = (("xla_cpu_use_fusion_emitters", False),) if JAXLIB_VERSION < (0, 11) else ()
QUICK_COMPILE: tuple[tuple[str, int | bool], ...] = (
    ("xla_backend_optimization_level", 0),
    *NO_EMITTERS,
)
"""Flags with which XLA compiles a program for the CPU in a third of the time; it runs slower."""


# Fields of the build options, which users name beside the flags of XLA.
_EFFORTS = frozenset(
    {
        "exec_time_optimization_effort",
        "memory_fitting_effort",
        "memory_fitting_level",
        "optimization_level",
    }
)


def make_compile_options(
    num_replicas: int = 1,
    num_partitions: int = 1,
    device_assignment: np.ndarray | Sequence[Sequence[int]] | None = None,
    spmd: bool = False,
    env_overrides: Sequence[tuple[str, str | bool | int | float]] = (),
    *,
    propagate_to_parameters: Sequence[bool] | None = None,
    propagate_to_outputs: Sequence[bool] | None = None,
    optimization_level: int | None = None,
) -> CompileOptions:
    """Return XLA's compile options.

    `device_assignment` is a matrix of device ids, [replica][partition]; it may be left out for
    one replica and one partition. `spmd` turns on the partitioner together with Shardy (a module
    with sdy attributes needs both). `env_overrides` are XLA flags by name, and how much effort
    XLA spends (names in `_EFFORTS`). The two `propagate`
    sequences say, for each parameter and output, whether the partitioner may choose its sharding.
    """
    options = CompileOptions()
    options.num_replicas = num_replicas
    options.num_partitions = num_partitions
    build = options.executable_build_options
    build.num_replicas = num_replicas
    build.num_partitions = num_partitions
    if device_assignment is not None:
        matrix = np.asarray(device_assignment, dtype=np.int32)
        assignment = DeviceAssignment.create(matrix.reshape(num_replicas, num_partitions))
        options.device_assignment = assignment
        build.device_assignment = assignment
    if spmd:
        build.use_spmd_partitioning = True
        build.use_shardy_partitioner = True
    if propagate_to_parameters is not None:
        build.allow_spmd_sharding_propagation_to_parameters = list(propagate_to_parameters)
    if propagate_to_outputs is not None:
        build.allow_spmd_sharding_propagation_to_output = list(propagate_to_outputs)
    if optimization_level is not None:
        build.debug_options.xla_backend_optimization_level = optimization_level
    flags: list[tuple[str, str | bool | int | float]] = []
    for name, value in env_overrides:
        if name in _EFFORTS:
            setattr(build, name, value)
        else:
            flags.append((name, value))
    if flags:
        options.env_option_overrides = flags
    return options


def without_tiles(options: CompileOptions) -> CompileOptions:
    """A copy of compile options by which XLA's emitter for tiles on CPUs is not used.

    The options themselves in versions of jaxlib that are not known to have this switch. It is an
    entry of a table that no function of jaxlib sets for one program: it is appended to the encoded
    options, which protocol buffers merge.
    """
    if not _HAS_TILES:
        return options
    changed = CompileOptions.ParseFromString(options.SerializeAsString() + _WITHOUT_TILES)
    return changed if _NO_TILES in changed.SerializeAsString() else options


_HAS_TILES = (0, 10, 2) <= JAXLIB_VERSION < (0, 11)
COMPILER_DIES_OF_SIZES = JAXLIB_VERSION >= (0, 11)
"""Whether XLA for CPUs divides by zero in some programs with arrays of 2**36 elements and more."""
_NO_TILES = b"xla_cpu_disable_tiled_emitter"


def _message(field: int, content: bytes) -> bytes:
    """A field of less than 128 bytes, encoded for a protocol buffer."""
    number = field << 3 | 2  # 2: its length is given
    tag = bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])
    return tag + bytes([len(content)]) + content


# Compile options -> build options -> debug options -> the table of options of a backend.
_WITHOUT_TILES = _message(
    3, _message(3, _message(500, _message(1, _NO_TILES) + _message(2, b"true")))
)


def with_flag(options: CompileOptions, name: str, value: str | bool) -> CompileOptions:
    """A copy of compile options in which an XLA flag has this value."""
    changed = CompileOptions.ParseFromString(options.SerializeAsString())
    others = [(n, v) for n, v in options.env_option_overrides if n != name]
    changed.env_option_overrides = [*others, (name, value)]
    return changed


def compile_and_load(
    client: Client,
    module: Any,
    device_list: DeviceList,
    options: CompileOptions,
    host_callbacks: Sequence[Any] = (),
) -> LoadedExecutable:
    """Compile a StableHLO program (an `ir.Module`, bytecode or text) for `device_list`.

    Raises:
        TypeError: if host callbacks come with bytes or text: jaxlib takes them only together
            with a module object.
        XlaRuntimeError: if XLA rejects the program.
    """
    if not host_callbacks:
        return client.compile_and_load(module, device_list, options)
    if isinstance(module, bytes | str):
        raise TypeError(
            "compile_and_load(host_callbacks=...) needs the program as an ir.Module, "
            f"got {type(module).__name__}: parse it first"
        )
    return client.compile_and_load(module, device_list, options, host_callbacks=host_callbacks)


def serialize_executable(client: Client, executable: LoadedExecutable) -> bytes:
    """Return the compiled program as bytes, for the same jaxlib version and kind of machine."""
    return client.serialize_executable(executable)


def deserialize_executable(
    client: Client,
    data: bytes,
    device_list: DeviceList,
    options: CompileOptions | None = None,
    host_callbacks: Sequence[Any] = (),
) -> LoadedExecutable:
    """Load bytes of `serialize_executable`."""
    return client.deserialize_executable(data, device_list, options, list(host_callbacks))
