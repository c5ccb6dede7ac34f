"""Where the check of the uses of random keys hears of what is executed.

The check stands above this layer (``core/prng/reuse.py``) and installs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

from tracebridge.core.config.values import option
from tracebridge.core.ir.jaxpr import Jaxpr


class Observer(Protocol):
    """What looks at a program before it runs, and at its results."""

    def before(self, jaxpr: Jaxpr, args: Sequence[Any]) -> Sequence[Any]:
        """Follow the keys among arguments; raise if one is used again. Notes for ``after``."""
        ...

    def after(self, notes: Sequence[Any], outs: Sequence[Any]) -> None:
        """The notes belong to these results."""
        ...


@final
class KeyWatch:
    """The one observer, if there are keys at all."""

    __slots__ = ("observer",)

    def __init__(self) -> None:
        self.observer: Observer | None = None

    def run(self, jaxpr: Jaxpr, args: Sequence[Any], run: Callable[[], Any]) -> Any:
        """``run()``, which executes ``jaxpr`` and gives an array or a list of arrays."""
        if self.observer is None:
            return run()
        notes = self.observer.before(jaxpr, args)
        out = run()
        self.observer.after(notes, out if isinstance(out, list) else [out])
        return out


KEY_WATCH = KeyWatch()


def watches_keys() -> bool:
    """Whether keys are followed from use to use."""
    return option("debug_key_reuse")


def watched(run: Callable[..., Any], jaxpr: Jaxpr) -> Callable[..., Any]:
    """``run`` with that check, for tables of functions."""

    def run_watched(*arrays: Any) -> Any:
        return KEY_WATCH.run(jaxpr, arrays, lambda: run(*arrays))

    return run_watched
