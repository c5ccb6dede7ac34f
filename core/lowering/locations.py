"""Locations in program texts: what operations are called, and the lines that they come from.

Programs that run have no locations except named scopes, so that equal functions of different
lines share one executable. A text with locations is lowered for itself.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, final

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.filtering import is_internal_file
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.name_stack import NamedSource, plain

# Frames of the user that a location shows, innermost first.
_FRAMES = 10

# The transformations in the name of a jitted function, and the name itself.
_TRANSFORMED = re.compile(r"((?:(?:jvp|vmap|transpose)\()*)(.*?)(\)*)")


def name_in_path(app: Application) -> str:
    """What an operation is called in paths: ``sin``, ``jvp(jit(f))``."""
    name = app.primitive.name
    if name == "checkpoint" and app.params.get("differentiated"):
        return "checkpoint/rematted_computation"
    if name != "jit":
        return _IN_PATHS.get(name, name)
    found = _TRANSFORMED.fullmatch(str(app.params["name"]))
    if found is None:
        return name
    kinds, own, ends = found.groups()
    extra = len(ends) - kinds.count("(")
    return f"{kinds}jit({own}{')' * extra}){')' * kinds.count('(')}" if extra >= 0 else name


def _bare(scope: str) -> str:
    """The name of a scope without the transformations."""
    return _TRANSFORMED.sub(r"\2", scope)


# A loop of known length is a loop as any other.
_IN_PATHS = {"scan": "while"}


def _file_of(code: Any) -> str | None:
    """The file of a code object; None for frames of the engine, which are left out."""
    return None if is_internal_file(code.co_filename) else str(code.co_filename)


@final
class Locations:
    """Locations for one module; make it inside the context of the module.

    ``argument_names`` and ``result_names`` are those of main. ``inside``: the path of the
    operation whose body is being emitted, such as ``("layer", "while", "body")``.
    """

    __slots__ = ("_lines", "_root", "_scopes", "argument_names", "inside", "result_names")

    def __init__(
        self, name: str, argument_names: Sequence[str] = (), result_names: Sequence[str] = ()
    ) -> None:
        self._root = f"jit({name})"
        self._lines: Any = mlir.TracebackToLocationCache(_file_of, _FRAMES)
        self.argument_names = tuple(argument_names)
        self.result_names = tuple(result_names)
        self.inside: tuple[str, ...] = ()
        self._scopes: tuple[str, ...] = ()

    def of(self, source: object, operation: str) -> Any:
        """Of an operation: the path ``jit(function)/scope/operation`` and the user's lines."""
        path = "/".join((self._root, *self.inside, *self._own_scopes(source), operation))
        line: Any = source.traceback if type(source) is NamedSource else source
        return mlir.ir.Location.name(path, None if line is None else self._lines.get(line))

    def _own_scopes(self, source: object) -> tuple[str, ...]:
        """The scopes of an operation, without those of the operation that it is inside of."""
        if type(source) is not NamedSource:
            return ()
        names = plain(source.names)
        n = len(self._scopes)
        # A body may be transformed once more than the operation that it belongs to.
        known = list(map(_bare, names[:n])) == list(map(_bare, self._scopes))
        return names[n:] if known else names

    @contextlib.contextmanager
    def body_of(self, source: object, operation: str) -> Iterator[None]:
        """While the operation is emitted: its bodies are inside of it."""
        outer = self.inside, self._scopes
        self.inside = (*self.inside, *self._own_scopes(source), operation)
        self._scopes = plain(source.names) if type(source) is NamedSource else self._scopes
        try:
            yield
        finally:
            self.inside, self._scopes = outer

    @contextlib.contextmanager
    def part(self, name: str | None) -> Iterator[None]:
        """While a part of an operation is emitted; None: a function, which has its own path."""
        outer = self.inside, self._scopes
        self.inside = () if name is None else (*self.inside, name)
        self._scopes = () if name is None else self._scopes
        try:
            yield
        finally:
            self.inside, self._scopes = outer

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
