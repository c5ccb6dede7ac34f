"""inspect_array_sharding: where an array of traced code lives; pictures of that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import DebugEffect, Effects
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.sink import Sink
from tracebridge.core.tree.tree import leaves

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import LoweringContext


_EFFECTS: Effects = frozenset((DebugEffect(),))


@final
class InspectSharding(Sink):
    """Gives the placement of its operand to ``callback`` when it is known: on compilation."""

    name = "inspect_sharding"
    holds_functions = True

    def bind(self, *args: Any, **params: Any) -> Any:
        values = [as_value(a) for a in args]
        app = self.application(tuple([v.aval for v in values]), params)
        return current_trace().process(app, values)

    def application(self, avals: tuple[ShapedArray, ...], params: Params) -> Application:
        return Application(self, avals, params)

    def effects(self, *avals: ShapedArray, **params: object) -> Effects:
        del avals, params
        return _EFFECTS

    def sharding_callback(self, params: Params) -> Callable[..., None] | None:
        return params["callback"]

    def evaluate(self, arrays: Sequence[Any], **params: Any) -> list[Any]:
        """Eagerly: the placement of the array."""
        params["callback"](arrays[0].sharding)
        return []

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        del operands
        ctx.inspections.append(params["callback"])
        return []


inspect_sharding_p = InspectSharding()


@api_boundary
def inspect_array_sharding(value: object, *, callback: Callable[[Any], None]) -> None:
    """Call a function with the sharding of an array, also of a traced one.

    For arrays the call happens at once, in traced code when the program is compiled. In a program
    that XLA splits over several devices the value must not stand in a loop, a branch or an inner
    compiled function, and the program is compiled once more to find out.

    Args:
        value: array, or tree of arrays: the function is called for each.
        callback: takes the sharding.

    Raises:
        ArgumentSpecError: ``callback`` is no function.
        EffectError: at a call: a value stands in an inner program of one for several devices.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> tb.debug.inspect_array_sharding(tnp.ones(3), callback=lambda s: print(s.device.platform))
    cpu
    """
    if not callable(callback):
        msg = f"debug.inspect_array_sharding: callback is {callback!r}"
        raise ArgumentSpecError(msg, expected="a function of a sharding")
    for leaf in leaves(value):
        inspect_sharding_p.bind(as_value(leaf), callback=callback)


# pictures ----------------------------------------------------------------------------------------


@api_boundary
def visualize_sharding(
    shape: Sequence[int],
    sharding: object,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: object = None,
) -> None:
    """Print a picture of where the parts of an array live.

    Args:
        shape: sizes of the array, one or two.
        sharding: where the array lives.
        use_color: accepted for compatibility; pictures are plain text.
        scale: factor of the size of the picture.
        min_width: least width of a part in characters.
        max_width: largest width of the picture in characters.
        color_map: accepted for compatibility, as ``use_color``.

    Raises:
        ArgumentSpecError: ``shape`` has no axes or more than two.

    >>> import tracebridge as tb
    >>> x = tb.numpy.ones((4, 4))
    >>> tb.debug.visualize_sharding(x.shape, x.sharding)
    +---------+
    |  CPU 0  |
    +---------+
    """
    del use_color, color_map
    if len(shape) not in (1, 2):
        msg = f"debug.visualize_sharding: shape is {tuple(shape)}"
        raise ArgumentSpecError(msg, expected="one or two sizes")
    rows = _parts(tuple(shape), sharding)
    n_columns = max([len(row) for row in rows])
    widest = max([len(label) for row in rows for label in row]) + 4
    width = max(round(min_width * scale), min(widest, max(1, (max_width - 1) // n_columns - 1)))
    line = "+" + "+".join(["-" * width] * n_columns) + "+"
    text = [line]
    for row in rows:
        text.append("|" + "|".join([label.center(width) for label in row]) + "|")
        text.append(line)
    sys.stdout.write("\n".join(text) + "\n")


@api_boundary
def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Print a picture of where the parts of an array live; in traced code, on compilation.

    Args:
        arr: an array with one or two axes.
        **kwargs: options of ``visualize_sharding``.

    Raises:
        ArgumentSpecError: ``arr`` has no axes or more than two.

    >>> import tracebridge as tb
    >>> tb.debug.visualize_array_sharding(tb.numpy.ones((2, 3)))
    +---------+
    |  CPU 0  |
    +---------+
    """
    shape = as_value(arr).aval.shape
    inspect_array_sharding(arr, callback=lambda s: visualize_sharding(shape, s, **kwargs))


def _parts(shape: tuple[int, ...], sharding: Any) -> list[list[str]]:
    """Names of the devices of each part, in rows and columns."""
    places = getattr(sharding, "devices_indices_map", None)
    if places is None:
        return [[_names(sharding.device_set)]]
    cells: dict[tuple[int, ...], list[Any]] = {}
    for device, index in places(shape).items():
        starts = tuple([s.start or 0 for s in index])
        cells.setdefault((0, *starts) if len(shape) == 1 else starts, []).append(device)
    table: dict[int, list[str]] = {}
    for starts in sorted(cells):
        table.setdefault(starts[0], []).append(_names(cells[starts]))
    return list(table.values())


def _names(devices: Any) -> str:
    ordered = sorted(devices, key=lambda d: d.id)
    ids = ",".join([str(d.id) for d in ordered])
    return f"{ordered[0].platform.upper()} {ids}"
