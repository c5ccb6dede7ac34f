"""Layouts: the order in which the elements of an array lie in memory.

Arrays are row-major. Other layouts are for values inside programs.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.util.public_path import public_path


@final
class _Auto:
    """Type of ``Layout.AUTO``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "AUTO"


_AUTO: Final = _Auto()


@public_path("tracebridge.experimental.layout")
@final
class Layout:
    """The order of the axes of an array in memory, from the slowest to the fastest. Immutable.

    Args:
        major_to_minor: the axes; ``(0, 1)`` is row-major.
        tiling: sizes of tiles, as a tuple of tuples; None leaves them to the device.
        sub_byte_element_size_in_bits: bits of an element of a dtype below one byte; 0 for others.

    Raises:
        ArgumentTypeError: ``major_to_minor`` is no sequence of ints.

    ``Layout.AUTO`` leaves the choice to the compiler.

    >>> import tracebridge as tb
    >>> tb.experimental.layout.Layout((1, 0))
    Layout(major_to_minor=(1, 0), tiling=None, sub_byte_element_size_in_bits=0)
    """

    __slots__ = ("__weakref__", "_key")
    AUTO: ClassVar[_Auto] = _AUTO

    def __init__(
        self,
        major_to_minor: Sequence[int],
        tiling: Sequence[Sequence[int]] | None = None,
        sub_byte_element_size_in_bits: int = 0,
    ) -> None:
        try:
            order = tuple([operator.index(axis) for axis in major_to_minor])
        except TypeError:
            msg = f"Layout: major_to_minor is {major_to_minor!r}"
            raise ArgumentTypeError(msg, expected="a sequence of axes") from None
        tiles = None if tiling is None else tuple([tuple(tile) for tile in tiling])
        self._key = order, tiles, sub_byte_element_size_in_bits

    @property
    def major_to_minor(self) -> tuple[int, ...]:
        """The axes, from the slowest to the fastest."""
        return self._key[0]

    @property
    def tiling(self) -> tuple[tuple[int, ...], ...] | None:
        """Sizes of tiles."""
        return self._key[1]

    @property
    def sub_byte_element_size_in_bits(self) -> int:
        """Bits of an element of a dtype below one byte; 0 for others."""
        return self._key[2]

    @property
    def is_row_major(self) -> bool:
        """Whether the last axis is the fastest, without tiles."""
        order, tiles, _ = self._key
        return order == tuple(range(len(order))) and not tiles

    def update(self, **changes: Any) -> Layout:
        """The same with some arguments replaced.

        >>> import tracebridge as tb
        >>> tb.experimental.layout.Layout((1, 0)).update(tiling=((8, 128),)).tiling
        ((8, 128),)
        """
        order, tiles, bits = self._key
        return Layout(
            changes.get("major_to_minor", order),
            changes.get("tiling", tiles),
            changes.get("sub_byte_element_size_in_bits", bits),
        )

    def check_compatible_aval(self, aval_shape: tuple[object, ...]) -> None:
        """Raise ArgumentValueError unless the layout is for arrays of this shape."""
        order = self.major_to_minor
        if sorted(order) != list(range(len(aval_shape))):
            raise ArgumentValueError(
                f"Layout: major_to_minor={order} for an array of shape {tuple(aval_shape)}",
                expected=f"each of the axes 0 to {len(aval_shape) - 1} once"
                if aval_shape
                else "no axes",
            )

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        order, tiles, bits = self._key
        return (
            f"Layout(major_to_minor={order}, tiling={tiles}, sub_byte_element_size_in_bits={bits})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, self._key


@public_path("tracebridge.experimental.layout")
@final
class Format:
    """A layout and a sharding: where an array is, and in which order it lies there. Immutable.

    Args:
        layout: a ``Layout``, ``Layout.AUTO``, or None for the usual one.
        sharding: a sharding; needed where ``layout`` is a ``Layout``.

    Raises:
        ArgumentTypeError: one of them is something else.
        ArgumentValueError: a layout without a sharding.

    >>> import tracebridge as tb
    >>> x = tb.numpy.ones((2, 3))
    >>> x.format.layout.major_to_minor
    (0, 1)
    """

    __slots__ = ("__weakref__", "_key")

    def __init__(self, layout: Any = None, sharding: Any = None) -> None:
        if not (layout is None or layout is _AUTO or isinstance(layout, Layout)):
            msg = f"Format: layout is {layout!r} of type {type(layout).__name__}"
            raise ArgumentTypeError(msg, expected="a Layout, Layout.AUTO or None")
        if not (sharding is None or isinstance(sharding, Sharding)):
            msg = f"Format: sharding is {sharding!r} of type {type(sharding).__name__}"
            raise ArgumentTypeError(msg, expected="a sharding or None")
        if sharding is None and isinstance(layout, Layout):
            msg = f"Format: layout is {layout!r}, and no sharding is given"
            raise ArgumentValueError(msg, expected="a sharding, such as SingleDeviceSharding")
        self._key = layout, sharding

    @property
    def layout(self) -> Any:
        """The layout, ``Layout.AUTO``, or None."""
        return self._key[0]

    @property
    def sharding(self) -> Any:
        """The sharding, or None."""
        return self._key[1]

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Format) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Format(layout={self.layout}, sharding={self.sharding})"


def row_major(ndim: int, sharding: object) -> Format:
    """The format of an array."""
    return Format(Layout(tuple(range(ndim)), ()), sharding)


def sharding_of_format(call: str, place: object) -> Any:
    """The sharding of a Format; anything else as it is.

    Raises:
        ArgumentValueError: the format has a layout that arrays do not have.
    """
    if not isinstance(place, Format):
        return place
    layout = place.layout
    if isinstance(layout, Layout) and not layout.is_row_major:
        raise ArgumentValueError(
            f"{call}: got {layout}",
            expected="a row-major layout: arrays have no other one",
            hint="inside compiled functions use experimental.layout.with_layout_constraint",
        )
    return place.sharding
