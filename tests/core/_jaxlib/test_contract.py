"""What we use of jaxlib: each name exists and behaves as the engine relies on.

Runs unchanged on every supported jaxlib. A failure here after an update of jaxlib says what to
change in `core/_jaxlib`.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tracebridge.core._jaxlib import dlpack, ffi, mlir, profiler, pytree, version, xla

ADD = """
module @add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<4xf32> ATTRS, %y: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %y : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""

POTRF = """
module @potrf {
  func.func public @main(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>) {
    %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%x) {
      api_version = 4 : i32,
      backend_config = {uplo = 76 : ui8},
      operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
      result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>],
      output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0],
        operand_index = 0, operand_tuple_indices = []>]
    } : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)
    return %0#0, %0#1 : tensor<2x2xf32>, tensor<i32>
  }
}
"""

CALLBACK = """
module @callback {
  func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {
      api_version = 4 : i32, has_side_effect = true, backend_config = {index = 0 : ui64}
    } : (tensor<3xf32>) -> tensor<3xf32>
    return %0 : tensor<3xf32>
  }
}
"""

SHARDED = """
module @double attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(
      %x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
      -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
    %0 = stablehlo.add %x, %x : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""


class Aval:
    """All that jaxlib reads of an aval."""

    def __init__(self, shape: tuple[int, ...], dtype: Any = np.float32) -> None:
        self.shape = shape
        self.ndim = len(shape)
        self.dtype = np.dtype(dtype)
        self.weak_type = False


@pytest.fixture(scope="module")
def client() -> xla.Client:
    return xla.make_cpu_client(4)


@pytest.fixture(scope="module")
def context() -> Any:
    return mlir.make_context()


def aligned(n: int, dtype: Any = np.float32, offset: int = 0) -> np.ndarray:
    """0, 1, 2... in memory that begins `offset` bytes after a multiple of 64."""
    size = n * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    out = raw[start : start + size].view(dtype)
    out[:] = np.arange(n).astype(dtype)
    return out


def put(
    client: xla.Client,
    x: np.ndarray,
    semantics: Any = xla.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL,
    index: int = 0,
) -> xla.ArrayImpl:
    device = client.devices()[index]
    sharding = xla.single_device_sharding(device)
    return xla.batched_device_put(Aval(x.shape, x.dtype), sharding, [x], [device], False, semantics)


def build(client: xla.Client, context: Any, text: str, callbacks: tuple[Any, ...] = ()) -> Any:
    """Compile a module for the first device."""
    devices = xla.DeviceList((client.devices()[0],))
    module = mlir.parse_module(text, context)
    return xla.compile_and_load(client, module, devices, xla.make_compile_options(), callbacks)


def run(client: xla.Client, executable: Any, args: list[Any], avals: list[Aval]) -> list[Any]:
    """Execute on the first device and return buffers."""
    sharding = xla.single_device_sharding(client.devices()[0])
    handlers = [xla.array_result_handler(aval, sharding, False) for aval in avals]
    return executable.execute_sharded(args).consume_with_handlers(handlers)


def numpy(buf: Any) -> np.ndarray:
    return xla.buffer_to_numpy(buf)[0]


# --- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module",
    [dlpack, ffi, mlir, profiler, pytree, version, xla],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_every_exported_name_exists(module: ModuleType) -> None:
    """Nothing in `__all__` was removed from jaxlib."""
    missing = [name for name in getattr(module, "__all__", ()) if getattr(module, name) is None]
    assert missing == []


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (
            xla.Client,
            (
                "platform platform_version process_index devices local_devices live_executables "
                "compile_and_load serialize_executable deserialize_executable heap_profile "
                "get_default_layout"
            ),
        ),
        (
            xla.Device,
            (
                "id platform device_kind process_index local_hardware_id client memory_stats "
                "default_memory addressable_memories get_stream_for_external_ready_events"
            ),
        ),
        (
            xla.ArrayImpl,
            (
                "aval _sharding _committed delete is_deleted is_ready block_until_ready "
                "unsafe_buffer_pointer on_device_size_in_bytes _arrays "
                "_copy_single_device_array_to_host_async __cuda_array_interface__"
            ),
        ),
        (
            xla.LoadedExecutable,
            (
                "execute_sharded cost_analysis get_compiled_memory_stats hlo_modules "
                "get_output_shardings get_parameter_shardings get_output_layouts "
                "get_parameter_layouts local_devices fingerprint serialize keep_alive"
            ),
        ),
        (xla.ExecuteResults, "consume_with_handlers consume_token"),
        (xla.GSPMDSharding, "_devices _hlo_sharding _memory_kind"),
        (xla.HloSharding, "replicate iota_tile manual to_proto from_proto is_replicated"),
        (xla.CompileOptions, "SerializeAsString env_option_overrides argument_layouts"),
        (xla.CompiledMemoryStats, "temp_size_in_bytes argument_size_in_bytes"),
        (xla.Traceback, "raw_frames code_addr2line as_python_traceback"),
        (
            pytree.PyTreeRegistry,
            (
                "flatten flatten_one_level flatten_with_path register_node register_dataclass_node "
                "is_node"
            ),
        ),
        (
            pytree.PyTreeDef,
            (
                "unflatten num_leaves num_nodes children node_data flatten_up_to compose walk "
                "from_node_data_and_children from_iterable_tree"
            ),
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_methods_that_we_call_exist(owner: type, names: str) -> None:
    """No method was renamed."""
    assert [name for name in names.split() if not hasattr(owner, name)] == []


def test_version_is_in_range() -> None:
    """The tuple is what the gate compares."""
    assert version.MIN_VERSION <= version.JAXLIB_VERSION < version.END_VERSION


# --- no process-wide state -------------------------------------------------------------------


def test_the_door_leaves_the_process_alone(subprocess_environment: dict[str, str]) -> None:
    """Importing and using it loads no jax, changes no class and no global of jaxlib."""
    code = """
import sys
from jaxlib import _jax
before = {name: set(vars(getattr(_jax, name))) for name in ("ArrayImpl", "GSPMDSharding", "Device")}
names = _jax.config.trace_context_names()
tracebacks = _jax.tracebacks_enabled()
from tracebridge.core._jaxlib import dlpack, ffi, mlir, plugins, profiler, pytree, xla
client = xla.make_cpu_client(2)
xla.single_device_sharding(client.devices()[0])
mlir.make_context()
ffi.lapack_target("potrf_ffi", "float32")
plugins.discover_plugins()
assert "jax" not in sys.modules, "jax was imported"
assert before == {name: set(vars(getattr(_jax, name))) for name in before}
assert _jax.config.trace_context_names() == names
assert _jax.tracebacks_enabled() == tracebacks
leaves, treedef = _jax.pytree.default_registry().flatten([1, {"a": 2}])
assert leaves == [1, 2]
print("clean")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=subprocess_environment,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "clean\n"), done.stderr


def test_dialects_are_not_loaded_at_import(subprocess_environment: dict[str, str]) -> None:
    """The MLIR bindings come at first access; `xla` does not bring them."""
    code = """
import sys
from tracebridge.core._jaxlib import mlir, xla
assert not [name for name in sys.modules if name.startswith("jaxlib.mlir")]
assert mlir.stablehlo.get_current_version()
assert "jaxlib.mlir._mlir_libs._stablehlo" in sys.modules
# The C++ modules are enough: the operation classes of the dialects are generated Python, and slow.
assert mlir.make_context() is not None
assert "jaxlib.mlir.dialects._chlo_ops_gen" not in sys.modules
assert mlir.ir is sys.modules["jaxlib.mlir.ir"]
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=subprocess_environment,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_client_start_is_quiet(subprocess_environment: dict[str, str]) -> None:
    """Making a client prints nothing."""
    code = "from tracebridge.core._jaxlib import xla; xla.make_cpu_client(2)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=subprocess_environment,
        check=True,
    )

    assert (done.stdout, done.stderr) == ("", "")


# --- clients and shardings -------------------------------------------------------------------


def test_clients_have_the_asked_devices_and_coexist(client: xla.Client) -> None:
    """Two clients in one process; each device object is one object, and knows its client."""
    other = xla.make_cpu_client(1)

    assert [d.id for d in client.devices()] == [0, 1, 2, 3]
    assert len(other.devices()) == 1
    assert client.devices()[0] is client.devices()[0]
    assert client.devices()[0] != other.devices()[0]
    assert client.platform == "cpu"
    assert client.devices()[0].default_memory().kind == "device"


def test_sharding_of_one_device_is_interned(client: xla.Client) -> None:
    """The same object each time; an exact GSPMDSharding, replicated."""
    first, second = client.devices()[:2]
    sharding = xla.single_device_sharding(first)

    assert xla.single_device_sharding(first) is sharding
    assert xla.single_device_sharding(second) is not sharding
    assert type(sharding) is xla.GSPMDSharding
    assert sharding._hlo_sharding.is_replicated()
    assert xla.single_device_sharding(first, "pinned_host")._memory_kind == "pinned_host"


def test_shardings_made_twice_are_different_objects(client: xla.Client) -> None:
    """In Python they compare by identity: that is why they are interned."""
    devices = client.devices()[:2]
    made = [xla.gspmd_sharding(devices, xla.HloSharding.iota_tile([2])) for _ in range(2)]

    assert made[0] != made[1]
    assert made[0]._hlo_sharding == made[1]._hlo_sharding
    assert hash(made[0]._hlo_sharding) == hash(made[1]._hlo_sharding)
    assert made[0]._devices == made[1]._devices


def test_forget_devices_frees_the_client() -> None:
    """The table of shardings would keep a client for ever."""
    client = xla.make_cpu_client(1)
    device = client.devices()[0]
    sharding = xla.single_device_sharding(device)

    xla.forget_devices(client.devices())

    assert xla.single_device_sharding(device) is not sharding
    xla.forget_devices([device])


# --- buffers ---------------------------------------------------------------------------------


def test_zero_copy_aliases_aligned_memory(client: xla.Client) -> None:
    """64-byte aligned memory is borrowed: same address, and writes show."""
    x = aligned(16)
    buf = put(client, x, xla.HostBufferSemantics.ZERO_COPY)

    assert buf.unsafe_buffer_pointer() == x.ctypes.data
    x[0] = 42
    assert numpy(buf)[0] == 42


def test_borrowed_memory_is_kept_alive_and_released(client: xla.Client) -> None:
    """The buffer holds the array that it borrows from; `collect_garbage` lets it go."""

    class Owner(np.ndarray):
        pass

    x = aligned(1024).view(Owner)
    ref = weakref.ref(x)
    buf = put(client, x, xla.HostBufferSemantics.ZERO_COPY)
    del x
    gc.collect()
    held = ref() is not None
    assert numpy(buf)[-1] == 1023

    del buf
    for _ in range(2):  # jaxlib 0.11 frees the NumPy view in the first round, its base in the next
        xla.collect_garbage()
    assert held
    assert ref() is None


def test_unaligned_memory_is_copied(client: xla.Client) -> None:
    """Zero-copy is a permission: 16 bytes off, jaxlib copies."""
    x = aligned(16, offset=16)
    buf = put(client, x, xla.HostBufferSemantics.ZERO_COPY)

    x[0] = 42
    assert numpy(buf)[0] == 0


def test_default_semantics_copy(client: xla.Client) -> None:
    """Later writes to the source do not show."""
    x = aligned(16)
    buf = put(client, x)

    x[0] = 42
    assert numpy(buf)[0] == 0


@pytest.mark.parametrize(
    "dtype",
    [
        np.float64,
        np.int64,
        np.complex128,
        np.bool_,
        np.uint8,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.int4,
    ],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_dtypes_survive_the_round_trip(client: xla.Client, dtype: Any) -> None:
    """64-bit and narrow types come back as they went, without a global 64-bit switch."""
    x = np.array([0, 1, 1, 0]).astype(dtype)
    back = numpy(put(client, x))

    assert x.dtype == back.dtype
    np.testing.assert_array_equal(x.astype(np.complex128), back.astype(np.complex128))


def test_numpy_view_is_read_only_and_aliases(client: xla.Client) -> None:
    """`buffer_to_numpy` copies nothing on the CPU and outlives the buffer's deletion."""
    buf = put(client, np.arange(16, dtype=np.float32))
    view, copied = xla.buffer_to_numpy(buf)

    assert not copied
    assert not view.flags.writeable
    assert view.ctypes.data == buf.unsafe_buffer_pointer()
    buf.delete()
    np.testing.assert_array_equal(np.arange(16, dtype=np.float32), view)


def test_deleted_buffer_raises(client: xla.Client) -> None:
    """Reading a deleted buffer is an error, not an empty array."""
    buf = put(client, np.ones(3, np.float32))
    buf.delete()

    assert buf.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        xla.buffer_to_numpy(buf)


def test_rewrap_shares_the_memory(client: xla.Client) -> None:
    """A second object over the same buffer, with its own aval; deleting one leaves the other."""
    buf = put(client, np.arange(4, dtype=np.float32))
    aval = Aval((4,))
    other = xla.rewrap(buf, aval, buf._sharding)

    assert other.aval is aval
    assert other.unsafe_buffer_pointer() == buf.unsafe_buffer_pointer()
    assert other is not buf


def test_copy_to_another_device(client: xla.Client) -> None:
    """Device to device, with the values and on the right device."""
    buf = put(client, np.arange(4, dtype=np.float32))
    second = client.devices()[1]
    (moved,) = xla.copy_to_devices(
        [buf], [xla.DeviceList((second,))], [xla.single_device_sharding(second)]
    )

    assert list(moved._sharding._devices) == [second]
    np.testing.assert_array_equal(numpy(buf), numpy(moved))


def test_batched_block_until_ready(client: xla.Client) -> None:
    """Waits for several buffers in one call."""
    bufs = [put(client, np.ones(3, np.float32)) for _ in range(3)]
    xla.batched_block_until_ready(bufs)

    assert all(buf.is_ready() for buf in bufs)


# --- execution -------------------------------------------------------------------------------


def test_execute_and_wrap(client: xla.Client, context: Any) -> None:
    """`execute_sharded(...).consume_with_handlers(...)`: our aval, our sharding, right values."""
    executable = build(client, context, ADD.replace("ATTRS", ""))
    x = put(client, np.arange(4, dtype=np.float32))
    aval = Aval((4,))
    (out,) = run(client, executable, [x, x], [aval])

    assert type(out) is xla.ArrayImpl
    assert out.aval is aval
    assert out._sharding is xla.single_device_sharding(client.devices()[0])
    assert not out._committed
    np.testing.assert_array_equal([0, 2, 4, 6], numpy(out))


@pytest.mark.parametrize("form", ["text", "bytecode", "module"])
def test_all_forms_of_a_program_compile(client: xla.Client, context: Any, form: str) -> None:
    """Text, bytecode and module objects give the same program."""
    text = ADD.replace("ATTRS", "")
    module = mlir.parse_module(text, context)
    program = {"text": text, "bytecode": mlir.module_to_bytecode(module), "module": module}[form]
    devices = xla.DeviceList((client.devices()[0],))
    executable = xla.compile_and_load(client, program, devices, xla.make_compile_options())
    x = put(client, np.ones(4, np.float32))

    np.testing.assert_array_equal(
        [2, 2, 2, 2], numpy(run(client, executable, [x, x], [Aval((4,))])[0])
    )


def test_donated_argument_is_deleted_and_reused(client: xla.Client, context: Any) -> None:
    """`tf.aliasing_output` gives the argument's memory to the result."""
    executable = build(client, context, ADD.replace("ATTRS", "{tf.aliasing_output = 0 : i32}"))
    x, y = (put(client, np.arange(4, dtype=np.float32)) for _ in range(2))
    address = x.unsafe_buffer_pointer()
    (out,) = run(client, executable, [x, y], [Aval((4,))])

    assert (x.is_deleted(), y.is_deleted()) == (True, False)
    assert out.unsafe_buffer_pointer() == address
    np.testing.assert_array_equal([0, 2, 4, 6], numpy(out))


def test_borrowed_memory_is_not_overwritten_by_donation(client: xla.Client, context: Any) -> None:
    """Donating a zero-copy buffer leaves the owner's memory as it is."""
    executable = build(client, context, ADD.replace("ATTRS", "{tf.aliasing_output = 0 : i32}"))
    memory = aligned(4)
    x = put(client, memory, xla.HostBufferSemantics.ZERO_COPY)
    y = put(client, np.ones(4, np.float32))
    (out,) = run(client, executable, [x, y], [Aval((4,))])

    np.testing.assert_array_equal([0, 1, 2, 3], memory)
    np.testing.assert_array_equal([1, 2, 3, 4], numpy(out))


def test_serialised_executable_runs(client: xla.Client, context: Any) -> None:
    """Compiled programs survive a round trip through bytes."""
    executable = build(client, context, ADD.replace("ATTRS", ""))
    data = xla.serialize_executable(client, executable)
    devices = xla.DeviceList((client.devices()[0],))
    loaded = xla.deserialize_executable(client, data, devices, xla.make_compile_options())
    x = put(client, np.ones(4, np.float32))

    np.testing.assert_array_equal([2, 2, 2, 2], numpy(run(client, loaded, [x, x], [Aval((4,))])[0]))


def test_compile_errors_are_xla_runtime_errors(client: xla.Client) -> None:
    """A program that does not parse raises the class that we translate."""
    devices = xla.DeviceList((client.devices()[0],))

    with pytest.raises(xla.XlaRuntimeError):
        xla.compile_and_load(client, "not a module", devices, xla.make_compile_options())


def test_compile_options_are_set() -> None:
    """Each parameter of ours reaches the field of XLA."""
    options = xla.make_compile_options(
        2,
        2,
        [[0, 1], [2, 3]],
        True,
        [("xla_cpu_enable_fast_math", False)],
        propagate_to_parameters=[True],
        propagate_to_outputs=[False, True],
        optimization_level=1,
    )
    build_options = options.executable_build_options

    assert (options.num_replicas, options.num_partitions) == (2, 2)
    assert options.device_assignment.replica_count() == 2
    assert options.device_assignment.computation_count() == 2
    assert build_options.use_spmd_partitioning
    assert build_options.use_shardy_partitioner
    assert list(build_options.allow_spmd_sharding_propagation_to_output) == [False, True]
    assert build_options.debug_options.xla_backend_optimization_level == 1
    assert [tuple(pair) for pair in options.env_option_overrides] == [
        ("xla_cpu_enable_fast_math", False)
    ]
    assert options.SerializeAsString() != xla.make_compile_options().SerializeAsString()


def test_sharded_program_runs_on_four_devices(client: xla.Client, context: Any) -> None:
    """Shardy attributes, a device assignment, shards in and shards out."""
    devices = client.devices()
    sharding = xla.gspmd_sharding(devices, xla.HloSharding.iota_tile([4]))
    x = np.arange(8, dtype=np.float32)
    arg = xla.batched_device_put(Aval((8,)), sharding, list(x.reshape(4, 2)), devices, True)
    options = xla.make_compile_options(1, 4, [[0, 1, 2, 3]], spmd=True)
    module = mlir.parse_module(SHARDED, context)
    executable = xla.compile_and_load(client, module, xla.DeviceList(tuple(devices)), options)
    handler = xla.array_result_handler(Aval((8,)), sharding, True)
    (out,) = executable.execute_sharded([arg]).consume_with_handlers([handler])

    shards = [numpy(shard) for shard in out._arrays]
    np.testing.assert_array_equal(2 * x, np.concatenate(shards))


def test_array_from_shards(client: xla.Client) -> None:
    """Single-device buffers become one global array without copies."""
    devices = client.devices()
    shards = [put(client, np.full(2, i, np.float32), index=i) for i in range(4)]
    sharding = xla.gspmd_sharding(devices, xla.HloSharding.iota_tile([4]))
    whole = xla.array_from_shards(Aval((8,)), sharding, shards)

    assert [a.unsafe_buffer_pointer() for a in whole._arrays] == [
        s.unsafe_buffer_pointer() for s in shards
    ]


def test_callback_gets_read_only_arrays(client: xla.Client, context: Any) -> None:
    """A Python function in `host_callbacks` is called with ndarrays that it cannot write."""
    seen: list[bool] = []

    def double(x: np.ndarray) -> tuple[np.ndarray]:
        seen.append(x.flags.writeable)
        return (x * 2,)

    executable = build(client, context, CALLBACK, (double,))
    (out,) = run(client, executable, [put(client, np.ones(3, np.float32))], [Aval((3,))])

    np.testing.assert_array_equal([2, 2, 2], numpy(out))
    assert seen == [False]


def test_callback_errors_arrive_with_their_text(client: xla.Client, context: Any) -> None:
    """An exception inside the callback raises at the call or at the first read."""

    def fail(x: np.ndarray) -> tuple[np.ndarray]:
        raise KeyError("my reason")

    executable = build(client, context, CALLBACK, (fail,))

    with pytest.raises(xla.XlaRuntimeError, match="my reason"):
        numpy(run(client, executable, [put(client, np.ones(3, np.float32))], [Aval((3,))])[0])


TOKENS = """
module @tokens {
  func.func public @main(%t: tensor<0xi1>, %x: tensor<f32>) -> (tensor<f32>, tensor<0xi1>) {
    %0 = stablehlo.create_token : !stablehlo.token
    %1:2 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%0, %x) {
      api_version = 4 : i32, has_side_effect = true, backend_config = {index = 0 : ui64}
    } : (!stablehlo.token, tensor<f32>) -> (!stablehlo.token, tensor<f32>)
    %2 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%1#0, %1#1) {
      api_version = 4 : i32, has_side_effect = true, backend_config = {index = 1 : ui64}
    } : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
    %c = stablehlo.constant dense<false> : tensor<0xi1>
    return %1#1, %c : tensor<f32>, tensor<0xi1>
  }
}
"""


def test_tokens_reach_callbacks_as_none(client: xla.Client, context: Any) -> None:
    """Tokens are operands and results of callbacks; executions have a token to wait for."""
    seen: list[Any] = []

    def first(token: Any, x: Any) -> tuple[Any, ...]:
        seen.append((1, token))
        return None, x + np.float32(1)

    def second(token: Any, x: Any) -> tuple[Any, ...]:
        seen.append((2, token, float(x)))
        return (None,)

    executable = build(client, context, TOKENS, (first, second))
    sharding = xla.single_device_sharding(client.devices()[0])
    avals = [Aval((0,), np.bool_), Aval((), np.float32)]
    values = [np.zeros(0, np.bool_), np.float32(2)]
    arguments = [
        xla.batched_device_put(a, sharding, [v], client.devices()[:1])
        for a, v in zip(avals, values, strict=True)
    ]
    results = executable.execute_sharded(arguments, with_tokens=True)
    token = results.consume_token()
    handlers = [xla.array_result_handler(a, sharding, True) for a in reversed(avals)]
    out, _ = results.consume_with_handlers(handlers)
    token.block_until_ready()

    assert float(xla.buffer_to_numpy(out)[0]) == 3.0
    assert seen == [(1, None), (2, None, 3.0)]


def test_callbacks_need_a_module_object(client: xla.Client) -> None:
    """jaxlib would drop the callbacks silently; we refuse."""
    devices = xla.DeviceList((client.devices()[0],))

    with pytest.raises(TypeError, match=r"ir\.Module"):
        xla.compile_and_load(client, CALLBACK, devices, xla.make_compile_options(), (print,))


def test_cost_analysis_and_memory_stats(client: xla.Client, context: Any) -> None:
    """Compiled programs report flops and sizes."""
    executable = build(client, context, ADD.replace("ATTRS", ""))

    cost = executable.cost_analysis()
    assert cost["flops"] == 4.0
    assert xla.hlo_module_cost_analysis(client, executable.hlo_modules()[0])["flops"] == 4.0
    assert executable.get_compiled_memory_stats().argument_size_in_bytes == 32


# --- tracebacks ------------------------------------------------------------------------------


def test_traceback_is_captured_without_a_switch() -> None:
    """The innermost frame first, as code objects with instruction offsets."""
    stored = xla.get_traceback()
    assert stored is not None
    codes, offsets = stored.raw_frames()

    assert codes[0] is test_traceback_is_captured_without_a_switch.__code__
    line = xla.Traceback.code_addr2line(codes[0], offsets[0])
    assert line == codes[0].co_firstlineno + 2


def test_traceback_keeps_no_locals() -> None:
    """A stored traceback does not keep arrays of its frames alive."""

    class Value:
        pass

    def inner() -> tuple[Any, weakref.ref[Any]]:
        value = Value()
        return xla.get_traceback(), weakref.ref(value)

    stored, ref = inner()
    gc.collect()

    assert stored is not None
    assert ref() is None


def test_traceback_becomes_an_mlir_location(context: Any) -> None:
    """`TracebackToLocationCache` names file and line of the captured frames."""
    stored = xla.get_traceback()
    cache = mlir.TracebackToLocationCache(lambda code: code.co_filename, 1, context)

    assert "test_contract.py" in str(cache.get(stored))


# --- MLIR ------------------------------------------------------------------------------------


def test_context_knows_our_dialects_only(context: Any) -> None:
    """StableHLO, CHLO, Shardy and func parse; nonsense does not; threading is off."""
    text = """
    module {
      func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
        %0 = chlo.erf_inv %x : tensor<4xf32> -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }
    """
    assert "chlo.erf_inv" in str(mlir.parse_module(text, context))
    assert not context.allow_unregistered_dialects
    with pytest.raises(mlir.ir.MLIRError):
        mlir.parse_module('module { "nonsense.op"() : () -> () }', context)


def test_operations_can_be_made_by_name(context: Any) -> None:
    """`ir.Operation.create` with explicit types and attributes, cloning, operand replacement."""
    ir = mlir.ir
    with context, ir.Location.unknown():
        module = ir.Module.create()
        f32x2 = ir.RankedTensorType.get([2], ir.F32Type.get())
        with ir.InsertionPoint(module.body):
            function = mlir.func.FuncOp("main", ir.FunctionType.get([f32x2, f32x2], [f32x2]))
        entry = function.add_entry_block()
        x, y = entry.arguments
        with ir.InsertionPoint(entry):
            add = ir.Operation.create("stablehlo.add", results=[f32x2], operands=[x, y])
            twin = add.clone()
            twin.operands[0] = add.result
            mlir.func.ReturnOp([twin.result])
        assert module.operation.verify()
        assert str(module).count("stablehlo.add") == 2


def test_portable_artifact_round_trip(context: Any) -> None:
    """Serialised for the oldest offered and the current version, read back equal."""
    module = mlir.parse_module(ADD.replace("ATTRS", ""), context)

    for target in (None, "1.0.0"):
        data = mlir.serialize_portable_artifact(module, target)
        assert str(module) == str(mlir.deserialize_portable_artifact(data, context))


def test_stablehlo_versions() -> None:
    """Three numbers, and the oldest is not newer than the current one."""
    oldest, current = (
        tuple(map(int, text.split(".")))
        for text in (mlir.minimum_version(), mlir.current_stablehlo_version())
    )
    assert len(oldest) == len(current) == 3
    assert oldest <= current


def test_hlo_to_stablehlo(client: xla.Client, context: Any) -> None:
    """The optimised HLO of a program converts back to StableHLO bytecode."""
    executable = build(client, context, ADD.replace("ATTRS", ""))
    proto = executable.hlo_modules()[0].as_serialized_hlo_module_proto()

    assert "stablehlo" in str(mlir.parse_module(mlir.hlo_to_stablehlo(proto), context))


def test_refine_polymorphic_shapes(context: Any) -> None:
    """A module with a dynamic inner dimension becomes static."""
    text = """
    module {
      func.func public @main(%x: tensor<4xf32>) -> tensor<?xf32> {
        %0 = call @inner(%x) : (tensor<4xf32>) -> tensor<?xf32>
        return %0 : tensor<?xf32>
      }
      func.func private @inner(%x: tensor<4xf32>) -> tensor<?xf32> {
        %0 = stablehlo.sine %x : tensor<4xf32>
        %1 = stablehlo.convert %0 : (tensor<4xf32>) -> tensor<?xf32>
        return %1 : tensor<?xf32>
      }
    }
    """
    refined = mlir.refine_polymorphic_shapes(
        mlir.module_to_bytecode(mlir.parse_module(text, context))
    )

    assert "?" not in str(mlir.parse_module(refined, context))


# --- DLPack, FFI, pytrees, profiler -----------------------------------------------------------


def test_capsule_round_trip_shares_memory(client: xla.Client) -> None:
    """Out and in again: same address; the import has no aval, re-wrapping gives it one."""
    device = client.devices()[0]
    buf = put(client, np.arange(16, dtype=np.float32))
    exported = xla.rewrap(buf, buf.aval, buf._sharding)
    back = dlpack.from_capsule(dlpack.to_capsule(exported), device)
    wrapped = xla.rewrap(back, Aval((16,)), xla.single_device_sharding(device))

    assert wrapped.unsafe_buffer_pointer() == buf.unsafe_buffer_pointer()
    np.testing.assert_array_equal(numpy(buf), numpy(wrapped))


def test_capsule_version_follows_support(client: xla.Client) -> None:
    """A consumer that takes versions gets one where jaxlib can; otherwise the plain capsule."""
    buf = put(client, np.ones(16, np.float32))
    plain = dlpack.to_capsule(xla.rewrap(buf, buf.aval, buf._sharding))
    asked = dlpack.to_capsule(xla.rewrap(buf, buf.aval, buf._sharding), max_version=(1, 0))

    assert '"dltensor"' in repr(plain)
    wanted = '"dltensor_versioned"' if dlpack.SUPPORTS_VERSIONED else '"dltensor"'
    assert wanted in repr(asked)
    assert (dlpack.DLPACK_VERSION >= (1, 0)) == dlpack.SUPPORTS_VERSIONED


def test_lapack_target_runs(client: xla.Client, context: Any) -> None:
    """A Cholesky factor through the registered LAPACK kernel."""
    assert ffi.lapack_target("potrf_ffi", np.float32) == "lapack_spotrf_ffi"
    executable = build(client, context, POTRF)
    a = np.array([[4, 2], [2, 3]], np.float32)
    factor, info = run(client, executable, [put(client, a)], [Aval((2, 2)), Aval((), np.int32)])

    np.testing.assert_allclose(np.linalg.cholesky(a), np.tril(numpy(factor)), rtol=1e-6)
    assert numpy(info) == 0


def test_registries_are_separate() -> None:
    """A node registered in our registry is a leaf in another one."""

    class Box:
        def __init__(self, item: Any) -> None:
            self.item = item

    ours, other = pytree.PyTreeRegistry(), pytree.PyTreeRegistry()
    ours.register_node(Box, lambda box: ((box.item,), None), lambda _, items: Box(items[0]))
    box = Box([1, 2])

    leaves, treedef = ours.flatten({"b": box, "a": None})
    assert leaves == [1, 2]
    assert treedef.unflatten([3, 4])["b"].item == [3, 4]
    assert hash(treedef) == hash(ours.flatten({"b": Box([5, 6]), "a": None})[1])
    assert other.flatten(box)[0] == [box]


def test_profiler_session_collects(client: xla.Client) -> None:
    """A session with an annotation gives bytes."""
    session = profiler.ProfilerSession(profiler.ProfileOptions())
    with profiler.TraceMe("step"):
        put(client, np.ones(3, np.float32))
    assert len(session.stop()) > 0
