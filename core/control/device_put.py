"""device_put under transformations: the identity, at another place.

It stands above the runtime, because evaluating it eagerly means a transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.runtime.transfer import move


@final
class DevicePut(Primitive):
    """Move to ``placement``; ``source`` is where cotangents go (None: they stay).

    A compiled program runs on one device, so that it lowers to nothing.
    """

    name = "device_put"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        del params
        (x,) = avals
        return x

    def evaluate(self, arrays: Sequence[Any], *, placement: Any, source: Any) -> Any:
        """Eagerly: the transfer."""
        del source
        (x,) = arrays
        return x if placement is None else move(x, placement, committed=True)

    def lower(self, ctx: Any, x: Any, **params: Any) -> Any:
        del ctx, params
        return x

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        (x,), (t,) = primals, tangents
        return self.bind(x, **params), self.bind(t, **params)

    def transpose(self, ct: Any, x: Any, *, placement: Any, source: Any) -> list[Any]:
        del x
        return [ct if source is None else self.bind(ct, placement=source, source=placement)]

    def batch(
        self, ctx: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        return self.bind(args[0], **params), dims[0]


device_put_p = DevicePut()
