"""device_put under transformations: the identity, at another place.

It stands above the runtime, because evaluating it eagerly means a transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lowering.shardy import constrain
from tracebridge.core.runtime.placement import over_mesh
from tracebridge.core.runtime.transfer import move
from tracebridge.core.sharding.named import NamedSharding


@final
class DevicePut(Primitive):
    """Move to ``placement``; ``source`` is where cotangents go (None: they stay).

    A program that runs over a mesh splits the operand as ``placement`` says. One that runs on one
    device stays there.
    """

    name = "device_put"

    def wanted_sharding(self, *, placement: Any, source: Any) -> Any:
        """Programs that split an array over several devices run on them."""
        del source
        return placement if type(placement) is NamedSharding else None

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        del params
        (x,) = avals
        return x

    def evaluate(self, arrays: Sequence[Any], *, placement: Any, source: Any) -> Any:
        """Eagerly: the transfer."""
        del source
        (x,) = arrays
        return x if placement is None else move(x, placement, committed=True)

    def lower(self, ctx: Any, x: Any, *, placement: Any, source: Any) -> Any:
        del source
        if ctx.mesh is None or type(placement) is not NamedSharding:
            return x
        return split_like("device_put", ctx, x, placement)

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


def split_like(call: str, ctx: Any, x: Any, sharding: NamedSharding) -> Any:
    """The operand of an equation, constrained to a sharding in a program that runs over a mesh.

    Raises:
        DevicePlacementError: the sharding is about other devices.
    """
    ndim = ctx.avals_in[0].ndim
    found = over_mesh(ctx.mesh, sharding.on_mesh(ctx.mesh), ndim)
    if found is None:
        msg = f"{call}: {sharding} is about other devices than the program, which runs on "
        raise DevicePlacementError(f"{msg}{ctx.mesh}", hint="use one mesh in a program")
    return constrain(ctx, x, found, ndim)
