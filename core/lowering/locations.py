"""Locations in program texts: what operations are called, and the lines that they come from.

Programs that run have no locations except named scopes, so that equal functions of different
lines share one executable. A text with locations is lowered for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.filtering import is_internal_file
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.name_stack import NamedSource

# Frames of the user that a location shows, innermost first.
_FRAMES = 10


def _file_of(code: Any) -> str | None:
    """The file of a code object; None for frames of the engine, which are left out."""
    return None if is_internal_file(code.co_filename) else str(code.co_filename)


@final
class Locations:
    """Locations for one module; make it inside the context of the module.

    ``argument_names`` and ``result_names`` are those of main.
    """

    __slots__ = ("_lines", "_root", "argument_names", "result_names")

    def __init__(
        self, name: str, argument_names: Sequence[str] = (), result_names: Sequence[str] = ()
    ) -> None:
        self._root = f"jit({name})"
        self._lines: Any = mlir.TracebackToLocationCache(_file_of, _FRAMES)
        self.argument_names = tuple(argument_names)
        self.result_names = tuple(result_names)

    def of(self, source: object, operation: str) -> Any:
        """Of an operation: the path ``jit(function)/scope/operation`` and the user's lines."""
        names: tuple[str, ...] = ()
        if type(source) is NamedSource:
            names, source = source.names, source.traceback
        path = "/".join((self._root, *names, operation))
        line = None if source is None else self._lines.get(source)
        return mlir.ir.Location.name(path, line)

    def of_function(self, debug: DebugInfo) -> Any:
        """Of what belongs to the whole program: where the function begins."""
        file, line = debug.func_filename, debug.func_lineno
        if file is None or line is None:
            return mlir.ir.Location.name(self._root)
        return mlir.ir.Location.name(self._root, mlir.ir.Location.file(file, line, 0))

    def of_argument(self, index: int) -> Any:
        """Of an argument of main: its name."""
        names = self.argument_names
        if index >= len(names):
            return mlir.ir.Location.unknown()
        return mlir.ir.Location.name(names[index])

    def results(self) -> Any:
        """Attributes of the results of main: their places in the result of the function."""
        ir = mlir.ir
        key = "tracebridge.result_info"
        rows = [ir.DictAttr.get({key: ir.StringAttr.get(name)}) for name in self.result_names]
        return ir.ArrayAttr.get(rows)
