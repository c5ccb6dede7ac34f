"""Types of users whose objects are operands: tables of functions by type.

The engine has one registry (ir/typeof.py); the tables are two views of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, final

import numpy as np

from tracebridge.core.ir.typeof import (
    as_value,
    converter_of,
    known_value_types,
    register_value_type,
    typeof,
    unregister_value_type,
)

Handler = Callable[[Any], Any]


def _as_numpy(x: object) -> Any:
    """What NumPy makes of an object, as an operand."""
    return as_value(np.asarray(x))


def _type_of_array(x: object) -> Any:
    """The type of what NumPy makes of an object."""
    return typeof(_as_numpy(x))


class _ValueTypes(MutableMapping[type, Handler]):
    """Functions by the type of their argument, those of the engine's own types among them."""

    def __init__(self, of_arrays: Handler) -> None:
        self._of_arrays = of_arrays
        self._own: dict[type, Handler] = {}

    def __getitem__(self, cls: type) -> Handler:
        if cls in self._own:
            return self._own[cls]
        if converter_of(cls) is None:
            raise KeyError(cls)
        return self._of_arrays

    def __delitem__(self, cls: type) -> None:
        del self._own[cls]
        unregister_value_type(cls)

    def __iter__(self) -> Iterator[type]:
        return iter({**dict.fromkeys(known_value_types()), **self._own})

    def __len__(self) -> int:
        return sum(1 for _ in self)


@final
class CanonicalizeTable(_ValueTypes):
    """``table[type] = function`` lets objects of the type be operands: it makes arrays of them.

    >>> import numpy, tracebridge as tb
    >>> from tracebridge.interpreters import xla
    >>> class Celsius:
    ...     def __init__(self, degrees):
    ...         self.degrees = degrees
    >>> xla.canonicalize_dtype_handlers[Celsius] = lambda x: numpy.float32(x.degrees + 273)
    >>> print(tb.jit(lambda x: 2 * x)(Celsius(27)))
    600.0
    """

    def __setitem__(self, cls: type, handler: Handler) -> None:
        def convert(x: object) -> Any:
            found = handler(x)
            return _as_numpy(found) if type(found) is cls else as_value(found)

        self._own[cls] = handler
        register_value_type(cls, convert)


@final
class AvalTable(_ValueTypes):
    """``table[type] = function`` lets objects of the type be operands: it tells their types.

    Unless ``tracebridge.interpreters.xla.canonicalize_dtype_handlers`` knows better, the operands
    are the arrays that NumPy makes of them.
    """

    def __setitem__(self, cls: type, handler: Handler) -> None:
        self._own[cls] = handler
        if converter_of(cls) is None:
            register_value_type(cls, _as_numpy)


canonicalize_dtype_handlers = CanonicalizeTable(_as_numpy)
pytype_aval_mappings = AvalTable(_type_of_array)
