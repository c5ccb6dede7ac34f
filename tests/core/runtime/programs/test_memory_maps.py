"""Room for programs among the memory maps of a process (core/runtime/programs/memory_maps.py)."""

import itertools
import sys
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.programs import memory_maps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems set no such limit")


@pytest.fixture(autouse=True)
def look_at_once() -> Iterator[None]:
    """Let the next compilation count the maps, here and after the test."""
    memory_maps._WATCH.put_off = 0
    yield
    memory_maps._WATCH.put_off = 0


def _compile(programs: int) -> list[int]:
    """Compile so many programs; how many maps there were after each."""
    counts: list[int] = []
    for size in range(1, programs + 1):
        got = tnp.negative(np.full(1000 + size, 2, np.float32))
        assert got.shape == (1000 + size,)
        assert float(got[-1]) == -2
        counts.append(memory_maps._count())
    return counts


def test_caches_are_cleared_before_the_maps_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    held = tb.jit(lambda x: x + 1)
    assert held(1) == 2
    _compile(3)  # what the process maps at first use is mapped now
    tb.clear_caches()
    limit = memory_maps._count() + 150
    monkeypatch.setattr(memory_maps, "_limit", lambda: limit)
    memory_maps._WATCH.put_off = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counts = _compile(60)
    assert max(counts) >= limit  # the limit was met,
    assert max(counts) < limit + 20 * 16  # and then nothing grew further:
    assert any(after < before for before, after in itertools.pairwise(counts))
    assert held(1) == 2  # a function whose program was dropped compiles it again


def test_a_process_that_holds_its_programs_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_maps, "_limit", lambda: 10)
    with pytest.warns(RuntimeWarning, match=r"memory maps.*vm\.max_map_count") as caught:
        _compile(20)
    assert len(caught) == 1


def test_systems_without_the_limit_are_never_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_maps, "_limit", lambda: None)
    memory_maps.make_room_for_program()
    assert memory_maps._WATCH.put_off == sys.maxsize


def test_the_limit_is_the_one_of_the_system() -> None:
    limit = memory_maps._limit()
    assert limit is not None
    assert 0 < memory_maps._count() < limit
