"""A loaded executable with what a call of it needs, for one device and for many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from tracebridge.core._jaxlib.xla import array_result_handler
from tracebridge.core.ir.aval import stored
from tracebridge.core.runtime.arrays.signature import Signature, signature
from tracebridge.core.runtime.programs.executables import EXECUTABLES

if TYPE_CHECKING:
    from tracebridge.core.lowering.module import LoweredModule

P = TypeVar("P")


@final
class Program(Generic[P]):
    """An executable that is loaded on the device or the devices of a placement.

    ``kept``: the inputs it takes. ``constants``: buffers that it takes before them. ``key``: under
    which its executable is shared, or None. ``out_shardings``: where its results are, which is the
    placement itself where that is one device.
    """

    __slots__ = (
        "__weakref__",
        "constants",
        "donated",
        "executable",
        "kept",
        "key",
        "lowered",
        "name",
        "out_avals",
        "out_shardings",
        "placement",
    )

    def __init__(
        self,
        loaded: tuple[Any, Any],
        lowered: LoweredModule,
        placement: P,
        out_avals: Sequence[Any],
        out_shardings: Sequence[Any],
        constants: Sequence[Any],
        donated: tuple[int, ...] = (),
    ) -> None:
        executable, self.key = loaded
        if self.key is not None:
            executable = EXECUTABLES.use(self.key, executable, self)
        self.executable = executable
        self.lowered = lowered
        self.kept = lowered.kept
        self.name = lowered.name
        self.placement = placement
        self.out_avals = tuple(out_avals)
        self.out_shardings = tuple(out_shardings)
        self.constants = list(constants)
        self.donated = donated

    def handlers(self, committed: bool) -> list[Any]:
        """Jaxlib's result handlers of the results."""
        return [
            array_result_handler(a, s.backend_for(a.ndim), committed)
            for a, s in zip(map(stored, self.out_avals), self.out_shardings, strict=True)
        ]

    def signatures(self, committed: bool) -> list[Signature]:
        """The signatures of the results."""
        return [
            signature(a, s, committed)
            for a, s in zip(self.out_avals, self.out_shardings, strict=True)
        ]
