"""device_put under transformations: the identity, at another place."""

from __future__ import annotations

__all__ = ["device_put_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import Constraint
from tracebridge.core.mlir.shardy import split_operand
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.sharding.splits import explicit_split

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class DevicePut(Constraint):
    """Move to ``placement``; ``source`` is where cotangents go (None: they stay).

    A program that runs over a mesh splits the operand as ``placement`` says. One that runs on one
    device stays there.
    """

    name = "device_put"
    makes_nan = False
    decides_splits = True

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        return [explicit_split(params["placement"], avals[0].ndim)]

    def wanted_sharding(self, params: Params) -> Any:
        """Programs that split an array over several devices run on them."""
        placement = params["placement"]
        return placement if type(placement) is NamedSharding else None

    def result_memory(self, params: Params) -> str | None:
        """That of ``placement``."""
        return params["placement"].memory_kind

    def destination(self, x: object, *, placement: object, source: object) -> Any:
        """Where an array goes eagerly; None: it stays."""
        del x, source
        return placement

    def lower(self, ctx: LoweringContext, x: Any, *, placement: Any, source: Any) -> Any:
        del source
        if ctx.mesh is None or type(placement) is not NamedSharding:
            return x
        return split_operand("device_put", ctx, x, placement)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        source = params["source"]
        return [
            ct if source is None else self.bind(ct, placement=source, source=params["placement"])
        ]


device_put_p = DevicePut()


def at_sharding(call: str, x: Operand, sharding: object) -> Any:
    """``x`` committed to the argument ``sharding`` of the function ``call``.

    Raises:
        ArgumentTypeError: it is no sharding.
    """
    if not isinstance(sharding, Sharding):
        msg = f"{call}: sharding is {sharding!r} of type {type(sharding).__name__}"
        raise ArgumentTypeError(msg, expected="a sharding", hint="for devices use device_put")
    return device_put_p.bind(as_value(x), placement=sharding, source=None)
