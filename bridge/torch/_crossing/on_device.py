"""Programs on tensors of a GPU: capsules both ways, ordered by streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core._jaxlib.xla import batched_device_put
from tracebridge.core.dtypes.dtypes import bool_
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.arrays.handed_out import hand_out
from tracebridge.core.runtime.backends.cuda_driver import LEGACY_STREAM
from tracebridge.core.runtime.programs.program import Program
from tracebridge.interop.torch_adapter import check_has_values

_from_capsule = torch._C._from_dlpack
_to_capsule = torch._C._to_dlpack


@final
class DeviceRun:
    """``run(leaves)`` of a program on a GPU.

    XLA's stream waits once for torch's current stream, and reads all arguments after that; torch's
    current stream waits for each result. Memory of results comes back by ``handed_out``, memory of
    arguments when XLA has read it.
    """

    __slots__ = (
        "avals", "device", "handle", "is_bool", "is_number", "ordinal", "program", "stream",
    )  # fmt: skip

    def __init__(
        self,
        program: Program[Any],
        declared: Sequence[ShapedArray],
        avals: Sequence[ShapedArray],
        is_number: Sequence[bool],
    ) -> None:
        self.program = program
        self.device = program.placement.device
        self.ordinal: int = self.device.local_hardware_id
        # XLA's stream that says when memory of others is ready to be read.
        self.handle = self.device.get_stream_for_external_ready_events()
        self.stream = torch.cuda.ExternalStream(self.handle, device=self.ordinal)
        self.is_bool = [a.dtype == bool_ for a in declared]
        self.avals = avals
        self.is_number = is_number

    def run(self, xs: Sequence[Any]) -> list[torch.Tensor]:
        if torch._C._cuda_getDevice() == self.ordinal:
            return self._run(xs)
        with torch.cuda.device(self.ordinal):
            return self._run(xs)

    def _run(self, xs: Sequence[Any]) -> list[torch.Tensor]:
        program, device = self.program, self.device
        current = torch.cuda.current_stream(self.ordinal)
        self.stream.wait_stream(current)
        enter = self._enter
        buffers = [*program.constants, *[enter(i, xs[i]) for i in program.kept]]
        outs = program.executable.execute_sharded(buffers).consume_with_handlers(
            program.handlers(False)
        )
        consumer = current.cuda_stream or LEGACY_STREAM
        return [_from_capsule(hand_out(o, device, consumer)) for o in outs]

    def _enter(self, i: int, x: Any) -> Any:
        if self.is_number[i]:
            aval, where = self.avals[i], self.program.placement
            return batched_device_put(
                aval, where.backend_sharding, [np.array(x, aval.dtype)], [self.device], False
            )
        if not x.data_ptr():
            check_has_values(x)  # storages of sharded parameters come and go
        if self.is_bool[i]:
            x = x.view(torch.uint8)
        return door.from_capsule(_to_capsule(x), self.device, self.handle)
