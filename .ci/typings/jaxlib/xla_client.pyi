# jaxlib ships no usable types for its extension modules. Here its classes are opaque (every attribute is Any), and every
# other name is Any, so that strict checking of our own code goes on where a value of jaxlib comes in.
from typing import Any

from jaxlib._jax import (
    Array as Array,
    ArrayCopySemantics as ArrayCopySemantics,
    ArrayImpl as ArrayImpl,
    AutotuneCacheMode as AutotuneCacheMode,
    Client as Client,
    CompileOptions as CompileOptions,
    Device as Device,
    DeviceAssignment as DeviceAssignment,
    DeviceList as DeviceList,
    DeviceTopology as DeviceTopology,
    Executable as Executable,
    Frame as Frame,
    GSPMDSharding as GSPMDSharding,
    HostBufferSemantics as HostBufferSemantics,
    LoadedExecutable as LoadedExecutable,
    Memory as Memory,
    NamedSharding as NamedSharding,
    PjRtLayout as PjRtLayout,
    Sharding as Sharding,
    SingleDeviceSharding as SingleDeviceSharding,
    Traceback as Traceback,
    TracebackScope as TracebackScope,
)
from jaxlib._opaque import Opaque

def __getattr__(name: str) -> Any: ...

class CustomCallHandler(Opaque): ...
class CustomCallTargetTraits(Opaque): ...
class CustomTypeIdHandler(Opaque): ...
class HloSharding(Opaque): ...
class Layout(Opaque): ...
class OpSharding(Opaque): ...
class PrimitiveType(Opaque): ...
class ProgramShape(Opaque): ...
class Shape(Opaque): ...
class XlaComputation(Opaque): ...
class XlaRuntimeError(Exception): ...

LoadedExecutable_execute: Any
LoadedExecutable_execute_with_token: Any
array_result_handler: Any
batched_block_until_ready: Any
batched_copy_array_to_devices_with_sharding: Any
batched_device_put: Any
check_and_canonicalize_memory_kind: Any
custom_call_targets: Any
encode_inspect_sharding_callback: Any
execution_stream_id: Any
generate_pjrt_gpu_plugin_options: Any
get_topology_for_devices: Any
initialize_pjrt_plugin: Any
load_pjrt_plugin_dynamically: Any
load_pjrt_plugin_with_c_api: Any
make_c_api_client: Any
make_c_api_device_topology: Any
make_cpu_client: Any
make_tfrt_tpu_c_api_device_topology: Any
pjrt_plugin_initialized: Any
pjrt_plugin_loaded: Any
register_custom_call_as_batch_partitionable: Any
register_custom_call_handler: Any
register_custom_call_partitioner: Any
register_custom_call_target: Any
register_custom_type: Any
register_custom_type_handler: Any
reorder_shards: Any
xla_platform_names: Any
