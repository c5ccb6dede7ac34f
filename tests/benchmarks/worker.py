"""Runs the cases of one library in a process of its own and prints one JSON line.

    python worker.py PACKAGE [GROUP]

Per case: microseconds of the best of several samples. ``first`` is the time of the first call in
this process, in which nothing is cached.
"""

from __future__ import annotations

import gc
import json
import sys
import time

import cases
from api import load

SHORTEST = 0.002
"""Seconds of a sample of cases that are called more than once."""


def measure(run: object, calls: int, samples: int) -> tuple[float, float]:
    """(first call, best sample) in microseconds per call."""
    clock = time.perf_counter
    gc.collect()  # what the import left is not the first program's
    start = clock()
    run()  # type: ignore[operator]  # a case is a callable
    first = clock() - start
    start = clock()
    for _ in range(max(2, calls // 20)):
        run()  # type: ignore[operator]  # a case is a callable
    each = (clock() - start) / max(2, calls // 20)
    if calls > 1:  # a sample shorter than that is one of the scheduler
        calls = max(calls, int(SHORTEST / each))
    best = float("inf")
    gc.collect()
    for _ in range(samples):
        start = clock()
        for _ in range(calls):
            run()  # type: ignore[operator]  # a case is a callable
        best = min(best, (clock() - start) / calls)
    return 1e6 * first, 1e6 * best


def main(argv: list[str]) -> None:
    """Measure every case (of one group)."""
    package = argv[0]
    groups = argv[1:] or list(cases.CASES)
    api = load(package)
    table: dict[str, dict[str, tuple[float, float]]] = {}
    for group in groups:
        table[group] = {}
        for name, make in cases.CASES[group].items():
            run, calls = make(api)
            samples = 7 if calls == 1 else 9
            table[group][name] = measure(run, calls, samples)
    print(json.dumps(table))


if __name__ == "__main__":
    main(sys.argv[1:])
