"""Devices that are not here: programs are compiled for them, and never run.

The plugin of a platform compiles for a described machine without its driver. What comes out has
memory statistics and HLO text; it cannot be executed. Set TPU_SKIP_MDS_QUERY=1 for TPUs: otherwise
their plugin asks the metadata server of a cloud machine, and waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxlib import _jax, xla_client

from tracebridge.core._jaxlib.mlir import make_context, parse_module
from tracebridge.core._jaxlib.plugins import PluginLoadError, discover_plugins, load_plugin
from tracebridge.core._jaxlib.xla import make_compile_options

TPU_V5E = "v5e:2x2"
"""Four chips of TPU v5e: the smallest topology that has a name."""

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
runtime_version { major: 12 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
"""One H100 SXM, as a GpuTargetConfigProto of XLA."""

_WHEELS = {"tpu": "libtpu", "cuda": "jax-cuda12-pjrt, of jaxlib's version"}


def compile_only_devices(platform: str, target: str) -> list[Any]:
    """The devices of a described machine.

    Args:
        platform: "tpu", with a topology such as ``TPU_V5E`` as the target, or "cuda", with the
            text of a GPU's description such as ``H100``, for one GPU.
        target: what to compile for.

    Raises:
        PluginLoadError: the plugin of the platform is not installed.
    """
    if platform == "cuda":
        return described_devices(platform, "", {"target_config": target, "topology": "1x1x1"})
    return described_devices(platform, target, {})


def described_devices(platform: str, name: str, options: Mapping[str, Any]) -> list[Any]:
    """The devices of the machine that the plugin of the platform makes of a name and options.

    Raises:
        PluginLoadError: the plugin of the platform is not installed.
    """
    spec = discover_plugins().get(platform)
    if spec is None:
        wheel = _WHEELS.get(platform, "its package")
        raise PluginLoadError(f"compiling for {platform!r} takes a plugin: pip install {wheel}")
    c_api = load_plugin(spec)
    if not xla_client.pjrt_plugin_initialized(platform):
        _jax.initialize_pjrt_plugin(platform)
    if platform == "tpu":
        topology = _jax.get_default_c_api_topology(platform, name, dict(options))
    else:
        topology = _jax.get_c_api_topology(c_api, name, dict(options))
    return topology._make_compile_only_devices()


def compile_for(text: str, devices: list[Any]) -> Any:
    """Compile StableHLO text for the first of some devices from ``compile_only_devices``.

    Raises:
        XlaRuntimeError: the platform cannot compile the program.
    """
    device = devices[0]
    options = make_compile_options(device_assignment=[[device.id]])
    module = parse_module(text, make_context())
    return device.client.compile(module, xla_client.DeviceList((device,)), options)
