"""What callbacks and rules refer to shows in fingerprints, the same in every process."""

from __future__ import annotations

import collections
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.torch.referred import KINDS, WAYS, Plain, as_global, digest, digests
from tests.integration.torch.test_hazards import run
from tracebridge.torch._graphs.fingerprint import UNIQUE

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", KINDS)
def test_what_a_callback_refers_to(name: str) -> None:
    """Another value is another program, an equal one is not, wherever it stands."""
    make = KINDS[name]
    for way in WAYS:
        first, again, other = (digest(way(make(n))) for n in (3.0, 3.0, 2.0))

        assert first == again, way
        assert first != other, way
        assert not first.startswith(UNIQUE), way


def test_other_processes_agree(subprocess_environment: Any) -> None:
    """Fingerprints depend on no address, no order, and on nothing that ran before."""
    script = """
import json, sys
import tracebridge as tb, tracebridge.numpy as tnp
from tests.integration.torch.referred import digests
tb.jit(tb.grad(tb.vmap(lambda x: tnp.sin(x) * x)))
tb.vmap(tb.grad(lambda x: tnp.sin(x) * x))(tnp.ones(3))
print(json.dumps(digests(backwards=True)))
"""
    found = json.loads(run(script, subprocess_environment | {"PYTHONHASHSEED": "7"}))

    assert digests(backwards=False) == found


def deep(levels: int) -> Any:
    made: Any = []
    for _ in range(levels):
        made = [made]
    return made


def crowded(size: int) -> Any:
    """Objects that all know each other, in no order."""
    members = [Plain(i) for i in range(size)]
    for member in members:
        member.cache = set(members)
    return members


NO_CONTENT: dict[str, Callable[[], Any]] = {
    "a generator": lambda: (i for i in range(3)),
    "a file": lambda: Path(__file__).open(),  # noqa: SIM115 - closed with its last reference
    "a deep list": lambda: deep(10_000),
    "a crowd": lambda: crowded(12),
    "a tensor without values": lambda: torch.empty(3, device="meta"),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", NO_CONTENT)
def test_what_cannot_be_compared(name: str) -> None:
    """A fingerprint that no other process has: neither an error nor one that others share."""
    thing = NO_CONTENT[name]()
    found = [digest(as_global(thing)) for _ in range(2)]

    assert found[0] != found[1]
    assert all([f.startswith(UNIQUE) for f in found])


@pytest.mark.parametrize(
    "make", [threading.Lock, threading.RLock, threading.local, lambda: logging.getLogger("a")]
)
def test_what_computes_nothing(make: Callable[[], Any]) -> None:
    """Locks, loggers and memory of threads keep no program from being compared."""
    assert digest(as_global(make())) == digest(as_global(make()))
    assert not digest(as_global(make())).startswith(UNIQUE)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, set, frozenset])
def test_order_does_not_show(kind: Any) -> None:
    """Sets and dicts that are equal have one fingerprint."""
    pairs = [(f"key{i}", i) for i in range(20)]

    assert digest(as_global(kind(pairs))) == digest(as_global(kind(pairs[::-1])))
