"""Where equations come from, for interpreters that repeat them; what tracebacks leave out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from tracebridge.core._jaxlib.xla import get_traceback
from tracebridge.core.ir.atoms import NameStack, SourceInfo
from tracebridge.core.ir.name_scopes import entered
from tracebridge.core.ir.name_stack import NAME_SCOPES, current_names, no_names
from tracebridge.core.ir.source_info import describe_line, line_of


def new_name_stack(name: str = "") -> NameStack:
    """A path of named scopes: the scope ``name``, or none.

    Args:
        name: what the scope is called.

    >>> from tracebridge.extend import source_info_util
    >>> str(source_info_util.new_name_stack("layer").extend("norm"))
    'layer/norm'
    """
    return NameStack((name,) if name else ())


def current_name_stack() -> NameStack:
    """The named scopes around this line.

    >>> import tracebridge as tb
    >>> from tracebridge.extend import source_info_util
    >>> with tb.named_scope("layer"):
    ...     str(source_info_util.current_name_stack())
    'layer'
    """
    return NameStack(current_names())


def new_source_info() -> SourceInfo:
    """A source that says nothing.

    >>> from tracebridge.extend import source_info_util
    >>> source_info_util.new_source_info().traceback is None
    True
    """
    return SourceInfo(None, NameStack())


def current() -> SourceInfo:
    """The source of equations that are made here.

    >>> from tracebridge.extend import source_info_util
    >>> source_info_util.current().traceback is None
    False
    """
    return SourceInfo(get_traceback(), current_name_stack())


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """``file:line (function)`` of the user's line; "unknown" if it is not known.

    Args:
        source_info: ``source_info`` of an equation.
        num_frames: accepted; the innermost line of the user is given.

    >>> from tracebridge.extend import source_info_util
    >>> source_info_util.summarize(source_info_util.new_source_info())
    'unknown'
    """
    del num_frames
    return describe_line(source_info.traceback) or "unknown"


class Frame(NamedTuple):
    """A line of the user; columns are not known, and 0."""

    file_name: str
    function_name: str
    start_line: int
    start_column: int = 0
    end_line: int = 0
    end_column: int = 0


def user_frame(source: object) -> Frame | None:
    """The innermost line of the user; None if it is not known.

    Args:
        source: ``source_info`` of an equation, or its ``traceback``.

    >>> import tracebridge as tb
    >>> from tracebridge._src import source_info_util
    >>> (equation,) = tb.make_jaxpr(lambda x: x + 1)(1.0).eqns
    >>> source_info_util.user_frame(equation.source_info).function_name
    '<lambda>'
    """
    found = line_of(source.traceback if isinstance(source, SourceInfo) else source)
    if found is None:
        return None
    file, line, function = found
    return Frame(file, function, line, end_line=line)


@contextlib.contextmanager
def set_name_stack(name_stack: Any) -> Iterator[None]:
    """Let the named scopes of a ``with`` block be exactly these.

    Args:
        name_stack: a path of scopes.

    >>> from tracebridge.extend import source_info_util
    >>> with source_info_util.set_name_stack(source_info_util.new_name_stack("layer")):
    ...     str(source_info_util.current_name_stack())
    'layer'
    """
    outer, names = current_names(), tuple(name_stack)
    if names[: len(outer)] == outer:
        with entered(names[len(outer) :]):
            yield
        return
    change = NAME_SCOPES.enter(no_names)
    try:
        with entered(names):
            yield
    finally:
        NAME_SCOPES.leave(change)


@contextlib.contextmanager
def extend_name_stack(name: str) -> Iterator[NameStack]:
    """Put a ``with`` block into one more named scope, and give the path of scopes.

    Args:
        name: what the scope is called.

    >>> from tracebridge.extend import source_info_util
    >>> with source_info_util.extend_name_stack("layer") as names:
    ...     str(names)
    'layer'
    """
    with entered((name,)):
        yield current_name_stack()


def reset_name_stack() -> contextlib.AbstractContextManager[None]:
    """Take a ``with`` block out of all named scopes.

    >>> import tracebridge as tb
    >>> from tracebridge.extend import source_info_util
    >>> with tb.named_scope("layer"), source_info_util.reset_name_stack():
    ...     str(source_info_util.current_name_stack())
    ''
    """
    return set_name_stack(NameStack())


@contextlib.contextmanager
def user_context(traceback: object, *, name_stack: object = None) -> Iterator[None]:
    """Say in errors of a ``with`` block which line of the user an equation comes from.

    Args:
        traceback: ``source_info.traceback`` of the equation that is being evaluated.
        name_stack: the named scopes of the block (default: those around it).

    >>> import tracebridge as tb
    >>> from tracebridge.extend import source_info_util
    >>> equation = tb.make_jaxpr(tb.lax.sin)(1.0).eqns[0]
    >>> with source_info_util.user_context(equation.source_info.traceback):
    ...     print(equation.primitive.bind(0.0))
    0.0
    """
    scopes = contextlib.nullcontext() if name_stack is None else set_name_stack(name_stack)
    try:
        with scopes:
            yield
    except Exception as error:
        line = describe_line(traceback)
        if line:
            note = f"    equation of {line}"
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
        raise
