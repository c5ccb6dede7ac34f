"""What we use of jaxlib: each name exists, no process-wide state is written, clients are ours.

The files beside this one say how buffers, programs and modules behave. They run unchanged on every
supported jaxlib. A failure here after an update of jaxlib says what to change in `core/_jaxlib`.
"""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.core._jaxlib.programs import put
from tracebridge.core._jaxlib import dlpack, ffi, mlir, profiler, pytree, version, xla


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
                "get_parameter_layouts local_devices fingerprint serialize keep_alive get_hlo_text"
            ),
        ),
        (xla.ExecuteResults, "consume_with_handlers consume_token"),
        (xla.GSPMDSharding, "_devices _hlo_sharding _memory_kind"),
        (xla.HloSharding, "replicate iota_tile manual to_proto from_proto is_replicated"),
        (
            xla.CompileOptions,
            "SerializeAsString ParseFromString env_option_overrides argument_layouts",
        ),
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
