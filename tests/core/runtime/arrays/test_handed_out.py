"""Memory that a consumer has given back is freed when the consumer's stream is done with it.

The streams are a stand-in, which a test holds up; memory, capsules and consumer are real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays import handed_out


class Streams:
    """Streams of a GPU. Events are their numbers; ``refusing`` ones take no event."""

    platform = "gpu"
    local_hardware_id = 0

    def __init__(self) -> None:
        self.refusing: set[int] = set()
        self.events: dict[int, int] = {}
        self.past: set[int] = set()

    def is_idle(self, stream: int) -> bool:
        """All of them are busy."""
        del stream
        return False

    def record(self, stream: int) -> int | None:
        """The next event."""
        if stream in self.refusing:
            return None
        self.events[len(self.events)] = stream
        return len(self.events) - 1

    def is_past(self, event: int) -> bool:
        """Whether the test has let it happen."""
        return event in self.past

    def wait(self, event: int) -> None:
        """Let it happen."""
        self.past.add(event)

    def reuse(self, event: int) -> None:
        """Only of those that have happened."""
        assert event in self.past


class Source:
    """What NumPy takes an array from."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    """Those of a GPU, on which the memory of the CPU counts as memory."""
    found = Streams()
    monkeypatch.setattr(handed_out, "gpu_of", lambda _: found)
    monkeypatch.setattr(handed_out.door, "to_capsule", lambda buf, *_, **__: original(buf, None))
    yield found
    found.refusing.clear()
    handed_out.settle(wait=True)


original = handed_out.door.to_capsule


def give_and_take(streams: Streams, stream: int) -> None:
    """An array of a consumer that works on ``stream``, and lets it go at once."""
    buf = (tnp.ones(100) + stream).block_until_ready()._buf
    taken = np.from_dlpack(Source(handed_out.hand_out(buf, streams, stream)))
    assert taken.sum() == 100 * (1 + stream)


def waiting() -> list[int]:
    """The streams that memory waits for."""
    return [r.loan.stream for r in handed_out._returned]


def test_memory_waits_for_its_event(streams: Streams) -> None:
    """It is freed by an exchange after the event."""
    give_and_take(streams, 5)
    handed_out.settle()

    assert waiting() == [5]
    streams.past.add(0)
    handed_out.settle()
    assert waiting() == []


@pytest.mark.parametrize("wait", [False, True])
def test_streams_that_take_no_event_hold_up_no_others(streams: Streams, wait: bool) -> None:
    """One that is captured for long or is gone: its memory waits, that of others is freed."""
    streams.refusing.add(6)
    give_and_take(streams, 6)
    give_and_take(streams, 7)
    streams.past.add(0)
    handed_out.settle(wait=wait)

    assert waiting() == [6]
    streams.refusing.clear()
    handed_out.settle()
    assert waiting() == [6]
    streams.past.add(1)
    handed_out.settle()
    assert waiting() == []
