"""What rewriting programs for the CPU takes of tracing and lowering, pass by pass.

    PYTHONPATH=build/tree python tests/benchmarks/passes.py [--passes] [--only WORD]

Per program, milliseconds of tracing and lowering and the part of it that rewrites take: of programs
that were never seen (another number in each), of equal programs of new functions, and where nothing
is remembered of rewriting and planning (a program of another form than all before; what is known
of single equations, as their types are, stays). What is asked of kernels counts as theirs: whether
there is one, its name, and the text and plan of those that have to be planned for that
("text"). ``--passes`` adds the part of each pass, without those that it calls, in programs never
seen and of another form.

Kernels are planned and written when a program is compiled, in a thread beside XLA. That is no part
of lowering: the last column has it, for all kernels of a program. Nor is LLVM's time in the table.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

from pass_programs import PROGRAMS

import tracebridge as tb
from tracebridge.core.kernels import call
from tracebridge.core.kernels.rows import row_kernel
from tracebridge.core.kernels.steps import batch_kernel, scan_kernel
from tracebridge.core.lowering import context, platforms
from tracebridge.core.lowering.rewrites import batches, programs, steps
from tracebridge.core.util.caching import all_caches

SAMPLES = 9
BUDGET = 0.10

PASSES: list[tuple[Any, str, str]] = [
    (platforms, "by_content", "key"),
    (platforms, "rewritten", "one walk"),
    (programs, "with_known_choices", "known choices"),
    (programs, "with_stored", "stored"),
    (programs, "with_picks", "picks"),
    (programs, "with_batch_kernels", "batches"),
    (programs, "with_row_kernels", "rows"),
    (programs, "with_shared_products", "shared products"),
    (programs, "with_guarded_waves", "waves"),
    (platforms, "with_scan_kernels", "loops"),
    (platforms, "with_blocks", "blocks"),
    (row_kernel, "_target", "text"),
    (row_kernel, "name_of", "text"),
    (batches, "batch_kernel", "text"),
    (batch_kernel, "batch_kernel", "text"),
    (batch_kernel, "name_of", "text"),
    (steps, "written", "text"),
    (scan_kernel, "written", "text"),
    (scan_kernel, "name_of", "text"),
]

# What is remembered of programs by their form.
BY_FORM = frozenset({
    "rewritten programs by content", "row kernels by program", "batch kernels by program",
    "bodies of scan kernels", "what rewrites emit", "sums by weights", "tests of angles",
    "shifted sums by equation", "picks by chain", "sums of products",
})  # fmt: skip


def forget_forms() -> None:
    """Let the next program be one of another form than all before."""
    for cache in all_caches():
        if cache.name in BY_FORM:
            cache.clear()


class Clock:
    """Seconds of each pass, without those of passes that it calls."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}
        self._within: list[float] = []

    def timed(self, name: str, f: Callable[..., Any]) -> Callable[..., Any]:
        """``f``, whose time is added up under ``name``."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._within.append(0.0)
            start = time.thread_time()
            try:
                return f(*args, **kwargs)
            finally:
                whole = time.thread_time() - start
                own = whole - self._within.pop()
                self.taken[name] = self.taken.get(name, 0.0) + own
                if self._within:
                    self._within[-1] += whole

        return run

    def attach(self) -> None:
        """Put the clock round all passes."""
        context.register_rewrites("cpu", self.timed("looked up", platforms.cpu_form))
        for module, attribute, name in PASSES:
            setattr(module, attribute, self.timed(name, getattr(module, attribute)))


def lower(f: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Seconds of tracing and lowering."""
    gc.collect()
    start = time.thread_time()
    tb.jit(f).lower(*args)
    return time.thread_time() - start


def measure(
    clock: Clock,
    of: Callable[[float], Any],
    args: Any,
    numbers: Any,
    before: Callable[[], None] = lambda: None,
) -> tuple[float, dict[str, float]]:
    """Medians over samples: seconds of tracing and lowering, and of each pass."""
    wholes, parts = [], []
    for k in itertools.islice(numbers, SAMPLES):
        before()
        clock.taken = {}
        wholes.append(lower(of(k), args))
        parts.append(clock.taken)
    names = dict.fromkeys([name for part in parts for name in part])
    return statistics.median(wholes), {
        name: statistics.median([part.get(name, 0.0) for part in parts]) for name in names
    }


def written_later(f: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Seconds of planning and writing the kernels of a program, when it is compiled."""
    writers: dict[str, Callable[[], str]] = {}
    forget_forms()  # kernels are named anew
    with mock.patch.object(call, "wait_for_program", writers.__setitem__):
        lower(f, args)
    times = []
    for _ in range(SAMPLES):
        gc.collect()
        start = time.thread_time()
        for write in writers.values():
            write()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args(argv)
    clock = Clock()
    clock.attach()
    kinds = ("never seen", "seen", "of another form")
    columns = [*[f"{kind}, ms | of that rewrites" for kind in kinds], "text when compiled, ms"]
    print(f"| program | {' | '.join(columns)} |")
    print("|---" * 8 + "|")
    shares: list[list[float]] = []
    together: dict[str, float] = {}
    """Seconds of each pass in all programs of another form, and of the whole."""
    for name, make in PROGRAMS.items():
        if options.only not in name:
            continue
        of, args = make()
        lower(of(0.5), args)
        numbers = (1.01 + i * 2**-12 for i in itertools.count())
        found = [
            measure(clock, of, args, numbers),
            measure(clock, of, args, itertools.repeat(0.5)),
            measure(clock, of, args, itertools.repeat(0.5), forget_forms),
        ]
        shares.append([sum(passes.values()) / whole for whole, passes in found])
        for part, seconds in [("", found[2][0]), *found[2][1].items()]:
            together[part] = together.get(part, 0.0) + seconds
        pairs = zip(found, shares[-1], strict=True)
        cells = [f"{1e3 * f[0]:.2f} | {s:.2f}" for f, s in pairs]
        print(f"| {name} | {' | '.join(cells)} | {1e3 * written_later(of(0.5), args):.2f} |")
        for whole, passes in (found[0], found[2]) if options.passes else ():
            longest = sorted(passes.items(), key=lambda item: -item[1])
            print("    " + ", ".join([f"{n} {t / whole:.3f}" for n, t in longest if t > 1e-5]))
    whole = together.pop("")
    largest = sorted(together.items(), key=lambda item: -item[1])
    print("\nOf all programs of another form together: ", end="")
    print(", ".join([f"{part} {seconds / whole:.3f}" for part, seconds in largest]))
    means = [f"{statistics.mean(column):.3f}" for column in zip(*shares, strict=True)]
    ends = ", ".join([f"{m} {kind}" for m, kind in zip(means, kinds, strict=True)])
    print(f"\nMean: {ends}; at most {BUDGET:.2f} wanted.")


if __name__ == "__main__":
    main()
