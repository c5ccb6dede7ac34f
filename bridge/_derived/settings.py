"""The options under which graphs of torch were made.

Dtypes of results are built into a graph, so that results of a program under other options would be
read as what they are not.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tracebridge._derived.names import parts_of
from tracebridge.core.config.settings import NO_CHANGE, Settings

# Handles with a fingerprint -> the options under which a graph was made of them.
_CAPTURED: dict[str, Settings] = {}


def note_settings(handle: str) -> None:
    """Note the options in force for a graph that calls ``handle``, if it has none yet."""
    root = handle.partition("::")[0]
    if root not in _CAPTURED and parts_of(root).digest:
        _CAPTURED[root] = Settings()


def settings_of_graph(handle: str) -> AbstractContextManager[None]:
    """A block with the options of the graph that calls ``handle``."""
    found = _CAPTURED.get(handle.partition("::")[0])
    return NO_CHANGE if found is None else found.again()
