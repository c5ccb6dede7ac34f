"""Tokens of the runtime: what orders the effects of two calls, and what waits for effects.

For each ordered effect and device a thread holds an empty array, a result of the last program
with that effect; the next one takes it as an argument and so begins after it. For each device
the token of the last program with any effect is kept, so that ``effects_barrier`` can wait.
Programs over several devices wait for the effects of earlier programs and are waited for.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge.core._jaxlib.xla import (
    XlaRuntimeError,
    array_result_handler,
    batched_block_until_ready,
)
from tracebridge.core.ir.effects import Effect, ordered_effects
from tracebridge.core.lowering.callbacks import HostFunction
from tracebridge.core.lowering.module import LoweredModule
from tracebridge.core.lowering.tokens import RUNTIME_TOKEN
from tracebridge.core.runtime.arrays.transfer import put_host
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.runtime.effects.host_callback import raise_callback_error
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.sharding.single_device import SingleDeviceSharding

MAX_PENDING = 32  # programs whose effects nobody has waited for; older ones are waited for


@final
class _ThreadTokens(threading.local):
    """``ordered``: (effect, device) -> buffer. ``pending``: tokens of programs with effects."""

    def __init__(self) -> None:
        self.ordered: dict[tuple[Effect, Any], Any] = {}
        self.pending: list[Any] = []
        _ALL.add(_Owner(self))


@final
class _Owner:
    """Lets all threads' tokens be found; ``threading.local`` shows each thread its own only."""

    __slots__ = ("__weakref__", "ordered", "pending")

    def __init__(self, tokens: _ThreadTokens) -> None:
        self.ordered = tokens.ordered
        self.pending = tokens.pending
        # Lives as long as the thread's own part of the local.
        tokens.__dict__["owner"] = self


_ALL: weakref.WeakSet[_Owner] = weakref.WeakSet()
_TOKENS = _ThreadTokens()


def wait_for(effect: Effect) -> None:
    """Wait for the programs of this thread that have the ordered ``effect``."""
    buffers = [b for (e, _), b in _TOKENS.ordered.items() if e == effect]
    if buffers:
        batched_block_until_ready(buffers)


def effects_barrier() -> None:
    """Wait until all effects of the programs called so far have happened, in all threads.

    Raises:
        XlaRuntimeError: a callback raised in a program that ran asynchronously.

    >>> import tracebridge as tb
    >>> tb.jit(lambda x: tb.debug.print("x is {}", x))(1.0)
    x is 1.0
    >>> tb.effects_barrier()
    """
    for owner in list(_ALL):
        waiting = list(owner.pending)
        owner.pending.clear()
        buffers = list(owner.ordered.values())
        for token in waiting:
            token.block_until_ready()
        if buffers:
            batched_block_until_ready(buffers)


@on_fork
def _forget() -> None:
    for owner in list(_ALL):
        owner.pending.clear()
        owner.ordered.clear()


@final
class EffectfulExecutable:
    """An executable of a program with effects, which is called like any other one.

    ``execute_sharded`` adds the tokens of ordered effects, and ``consume_with_handlers`` takes
    them back; other attributes are the executable's own. ``placement`` is where tokens are: the
    device, or a sharding that has them whole on each of several devices.
    """

    __slots__ = (
        "_callbacks",
        "_device",
        "_handlers",
        "_ordered",
        "_placement",
        "_several",
        "executable",
    )

    def __init__(self, executable: Any, lowered: LoweredModule, placement: Sharding) -> None:
        self.executable = executable
        self._callbacks: list[HostFunction] = lowered.callbacks
        self._ordered = ordered_effects(lowered.effects)
        self._handlers: list[Any] = []
        self._placement = placement
        self._several = type(placement) is not SingleDeviceSharding
        # Under what tokens are kept: the device, or a sharding over several.
        self._device: Any = placement if self._several else placement.device_tuple[0]
        if self._ordered:
            handler = array_result_handler(RUNTIME_TOKEN, placement.backend_for(1), False)
            self._handlers = [handler] * len(self._ordered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)

    def execute_sharded(self, buffers: Sequence[Any]) -> _Results:
        """Start the program; the results are to be consumed at once."""
        if self._several:
            for effect in self._ordered:
                wait_for(effect)
        tokens = [self._token(effect) for effect in self._ordered]
        for callback in self._callbacks:
            callback.pop_failure()
        try:
            results = self.executable.execute_sharded([*tokens, *buffers], with_tokens=True)
            done = results.consume_token()
            if self._several:
                # Callbacks for several devices keep failures to themselves: look for them.
                done.block_until_ready()
            else:
                _remember(done)
        except XlaRuntimeError as error:
            self._failed(error)
            raise
        return _Results(self, results)

    def finish(self, results: Any, handlers: Sequence[Any]) -> list[Any]:
        """The results without the tokens."""
        try:
            outs = results.consume_with_handlers([*handlers, *self._handlers])
        except XlaRuntimeError as error:
            self._failed(error)
            raise
        self._failed(None)
        n = len(outs) - len(self._ordered)
        for effect, buffer in zip(self._ordered, outs[n:], strict=True):
            _TOKENS.ordered[effect, self._device] = buffer
        return outs[:n]

    def _token(self, effect: Effect) -> Any:
        found = _TOKENS.ordered.get((effect, self._device))
        if found is None:
            found = put_host(np.zeros(0, np.bool_), self._placement)._buf
        return found

    def _failed(self, error: Exception | None) -> None:
        """Raise what a callback raised; after an error chains of tokens begin anew."""
        failures = [(c, f) for c in self._callbacks if (f := c.pop_failure()) is not None]
        if error is not None or failures:
            _TOKENS.pending.clear()
            for effect in self._ordered:
                _TOKENS.ordered.pop((effect, self._device), None)
        if failures:
            callback, failure = failures[0]
            raise_callback_error(callback.name, failure)


@final
class _Results:
    """Results of one call, to be consumed once."""

    __slots__ = ("_executable", "_results")

    def __init__(self, executable: EffectfulExecutable, results: Any) -> None:
        self._executable = executable
        self._results = results

    def consume_with_handlers(self, handlers: Sequence[object]) -> list[Any]:
        return self._executable.finish(self._results, handlers)


def _remember(token: object) -> None:
    pending = _TOKENS.pending
    pending.append(token)
    if len(pending) > MAX_PENDING:
        pending.pop(0).block_until_ready()
