"""Modules, and the shortest way to run them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core._jaxlib import mlir, xla

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
