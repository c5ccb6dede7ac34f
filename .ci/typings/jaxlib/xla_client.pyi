# jaxlib ships no usable types for its extension modules. Here its classes are opaque (every
# attribute is Any), and every
# other name is Any, so that strict checking of our own code goes on where its values come in.
from typing import Any

from jaxlib._jax import (
    Array as Array,
)
from jaxlib._jax import (
    ArrayCopySemantics as ArrayCopySemantics,
)
from jaxlib._jax import (
    ArrayImpl as ArrayImpl,
)
from jaxlib._jax import (
    AutotuneCacheMode as AutotuneCacheMode,
)
from jaxlib._jax import (
    Client as Client,
)
from jaxlib._jax import (
    CompileOptions as CompileOptions,
)
from jaxlib._jax import (
    Device as Device,
)
from jaxlib._jax import (
    DeviceAssignment as DeviceAssignment,
)
from jaxlib._jax import (
    DeviceList as DeviceList,
)
from jaxlib._jax import (
    DeviceTopology as DeviceTopology,
)
from jaxlib._jax import (
    Executable as Executable,
)
from jaxlib._jax import (
    Frame as Frame,
)
from jaxlib._jax import (
    GSPMDSharding as GSPMDSharding,
)
from jaxlib._jax import (
    HostBufferSemantics as HostBufferSemantics,
)
from jaxlib._jax import (
    LoadedExecutable as LoadedExecutable,
)
from jaxlib._jax import (
    Memory as Memory,
)
from jaxlib._jax import (
    NamedSharding as NamedSharding,
)
from jaxlib._jax import (
    PjRtLayout as PjRtLayout,
)
from jaxlib._jax import (
    Sharding as Sharding,
)
from jaxlib._jax import (
    SingleDeviceSharding as SingleDeviceSharding,
)
from jaxlib._jax import (
    Traceback as Traceback,
)
from jaxlib._jax import (
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
