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
    return [r.stream for r in handed_out._returned]


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


def lend(streams: Streams, stream: int = 5) -> Any:
    """A capsule over an array of the engine."""
    return handed_out.hand_out(tnp.arange(100.0)._buf, streams, stream)


def test_capsule_that_nobody_uses_comes_back(streams: Streams) -> None:
    """Its memory too is free after its event: no consumer calls the deleter of such a capsule."""
    capsule = lend(streams)
    del capsule

    assert waiting() == [5]
    streams.past.add(0)
    handed_out.settle()
    assert waiting() == []


def test_consumer_that_raises_leaves_the_memory_to_the_capsule(streams: Streams) -> None:
    """A capsule that is refused comes back like one that nobody has tried."""
    unknown_to_numpy = tnp.ones(100, tnp.bfloat16)._buf
    capsule = handed_out.hand_out(unknown_to_numpy, streams, 5)
    with pytest.raises(RuntimeError, match="dtype"):
        np.from_dlpack(Source(capsule))

    assert waiting() == []
    del capsule
    assert waiting() == [5]


def test_memory_comes_back_while_an_error_is_raised(streams: Streams) -> None:
    """The consumer's last name may go because of an error, which stays the error that it is."""

    def fail() -> int:
        msg = "the user's"
        raise ZeroDivisionError(msg)

    with pytest.raises(ZeroDivisionError, match="the user's"):
        np.from_dlpack(Source(lend(streams))) + fail()

    assert waiting() == [5]


def test_interrupted_memory_waits(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is interrupted while asking for an event frees nothing that may be read."""

    def interrupted(event: int) -> bool:
        raise KeyboardInterrupt

    give_and_take(streams, 5)
    with monkeypatch.context() as patched:
        patched.setattr(streams, "is_past", interrupted)
        with pytest.raises(KeyboardInterrupt):
            handed_out.settle()

    assert waiting() == [5]


def test_at_the_end_memory_goes_at_once(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits has been waited for, what comes back later waits for nothing."""
    monkeypatch.setattr(handed_out, "_ended", False)
    late, dropped = np.from_dlpack(Source(lend(streams, 6))), lend(streams, 7)
    give_and_take(streams, 5)
    handed_out._end()

    assert waiting() == []
    np.testing.assert_array_equal(np.arange(100.0), late)
    del late, dropped
    assert waiting() == []


def test_forked_child_leaves_memory_to_its_parent(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither asks a GPU that is not its own nor waits for threads that it has not."""
    for name in ("_forked", "_lock", "_reaper"):
        monkeypatch.setattr(handed_out, name, getattr(handed_out, name))
    monkeypatch.setattr(handed_out, "_of_the_parent", [])
    capsule = lend(streams, 6)
    give_and_take(streams, 5)
    handed_out._leave_to_the_parent()
    del capsule

    assert waiting() == []
    assert [5, 6] == [r.stream for r in handed_out._of_the_parent]
    assert {0: 5} == streams.events


def test_shape_dtype_and_strides_are_those_of_the_array(streams: Streams) -> None:
    """What NumPy carries is the engine's tensor, of any rank, dtype and size."""
    for host in (np.zeros((0, 3), np.int8), np.array(2.5), np.arange(6, dtype="c8").reshape(2, 3)):
        array = tnp.asarray(host)
        taken = np.from_dlpack(Source(handed_out.hand_out(array._buf, streams, 1)))

        assert taken.dtype == array.dtype
        np.testing.assert_array_equal(host.astype(array.dtype), taken)
