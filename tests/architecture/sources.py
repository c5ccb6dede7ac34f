"""The package's source files, parsed once, for the tests that read them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"bridge": "tracebridge", "core": "tracebridge.core", "interop": "tracebridge.interop"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclasses.dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path
    """Relative to the repository, with slashes: `core/ir/aval.py`."""

    text: str

    @property
    def name(self) -> str:
        """The path as it is written in messages and exception tables."""
        return self.path.as_posix()

    @property
    def module(self) -> str:
        """The import name, for a file of the package."""
        parts = list(self.path.with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        return ".".join((FOLDERS[parts[0]], *parts[1:]))

    @property
    def is_init(self) -> bool:
        """Whether this file makes its folder a package."""
        return self.path.name == "__init__.py"

    @functools.cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text, filename=self.name)

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree: most checks look at each, and walking is most of their time."""
        return tuple(ast.walk(self.tree))

    @property
    def line_count(self) -> int:
        """Lines of the file, as an editor counts them."""
        return len(self.text.splitlines())

    def comments(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
        """Line number and match of each comment in which a pattern is found."""
        if pattern.search(self.text) is None:  # tokens are made where some may be found only
            return
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT and (match := pattern.search(token.string)):
                yield token.start[0], match


@functools.cache
def read(folder: str) -> tuple[Source, ...]:
    """All Python files below a folder of the repository, sorted by path."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return tuple(
        Source(file.relative_to(ROOT), file.read_text(encoding="utf-8"))
        for file in files
        if "__pycache__" not in file.parts
    )


def package_sources() -> list[Source]:
    """All files of the import package."""
    return [source for folder in FOLDERS for source in read(folder)]


def report(title: str, findings: list[str]) -> str:
    """The message of a failed check: one finding a line."""
    return "\n".join((f"{title} ({len(findings)}):", *(f"  {finding}" for finding in findings)))
