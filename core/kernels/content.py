"""What a program computes, as a text: the same one in each process, for names of kernels.

A kernel has its name when a program is lowered; it is planned and written when the program is
compiled. So its name tells what the plan is made of, not what comes out. Kernels of equal texts
with several names, as those for batches of other sizes, are compiled once (``waiting.py``).
"""

from __future__ import annotations

import enum
import functools
import importlib
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.ir.traverse import distinct_applications
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.text import NAMES, number_of
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_EQUATIONS: BoundedCache[str] = BoundedCache("texts of equations", 4096)
_SHAPES = frozenset({"shape", "new_sizes"})  # parameters
_PLAIN = frozenset({bool, int, float, str, type(None)})


class NoText(Exception):
    """Something of a program looks different in each process, or may look like something else."""


def program_text(program: Jaxpr) -> str | None:
    """The text of a program without array constants; None if it has none."""
    try:
        return _program_text(program)
    except NoText:
        return None


def _program_text(program: Jaxpr) -> str:
    texts: list[str] = []
    numbers: dict[Application, int] = {}
    for app in distinct_applications(program):
        numbers[app] = len(texts)
        text = _EQUATIONS.get(app)
        if text is None:
            text = _equation_text(app)
            _EQUATIONS.set(app, text)
        texts.append(text)
    consts: list[str] = []
    for const in program.consts:
        dtype = const.aval.dtype
        if type(const) is not Literal or dtype not in NAMES:
            raise NoText
        consts.append(f"{NAMES[dtype]} {number_of(const.value, dtype)!r}")
    places = [n for app, args in program.equations for n in (numbers[app], *args, -1)]
    equations = array("i", places)
    types = avals_text(program.in_avals)
    return "\n".join([*texts, types, f"{consts} {equations.tobytes().hex()} {program.outs}"])


def avals_text(avals: Iterable[ShapedArray]) -> str:
    """What kernels see of the types of arrays.

    Raises:
        NoText: kernels have no such arrays.
    """
    found: list[str] = []
    for aval in avals:
        if aval.dtype not in NAMES or aval.vma or aval.split is not None:
            raise NoText
        if type(aval.size) is not int:
            raise NoText
        found.append(f"{NAMES[aval.dtype]}{shape_text(aval.shape)}")
    return " ".join(found)


def shape_text(shape: Sequence[int]) -> str:
    """A shape, whose sizes look like nothing else in a text."""
    return "".join([f"<{n}>" for n in shape])


def without_size(text: str, size: int) -> str:
    """A text with an open size wherever a shape has ``size``."""
    return text.replace(f"<{size}>", "<>")


def _equation_text(app: Application) -> str:
    params = [
        (name, shape_text(value) if name in _SHAPES and value is not None else _plain(value))
        for name, value in sorted(app.params.items())
    ]
    return f"{app.primitive.name} {params} {avals_text(app.avals)} {avals_text(app.outs)}"


def _plain(value: Any) -> object:
    """A parameter as what is written alike in each process."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return tuple([_plain(item) for item in value])
    if isinstance(value, np.dtype):
        return f"dtype {value.name}"
    if isinstance(value, enum.Enum):
        return f"{kind.__name__} {value.name}"
    raise NoText


def digest(content: str) -> str:
    """A short text that stands for a long one."""
    return _hash()(content.encode()).hexdigest()


@functools.lru_cache(maxsize=1)
def _hash() -> Callable[[bytes], Any]:
    return importlib.import_module("hashlib").sha256  # a tenth of the import of the package
