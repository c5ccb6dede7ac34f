"""Side-by-side benchmarks: this library and the peer, in alternating processes of one run.

    python tests/benchmarks/compare.py --peer PYTHON --package NAME [--rounds 3] [--record FILE]

``--peer`` is the interpreter of an environment that has the peer's package ``--package``. The
figures are the best of all rounds; read the ratios. ``--record`` writes the sections of these
groups into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from sections import record

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# Budgets: geometric mean of ours / the peer's, and the largest single ratio (None: not limited).
GROUPS: dict[str, tuple[float | None, float | None]] = {
    "cached call": (1.0, 1.2),
    "tracing and lowering": (0.1, 1 / 6),
    "tracing and lowering, first in a process": (1 / 6, None),
    "eager": (0.65, None),
    "compiled code": (1.0, None),
    "convolutions and pooling that XLA is slow at": (0.2, 1.1),
    "convolutions that XLA does well": (1.1, 1.1),
    "linear algebra and fft": (0.2, 1.1),
    "linear algebra and fft, where XLA does well": (1.0, 1.1),
    "sums of products": (0.7, 1.1),
    "elementwise functions": (0.35, 1.2),
    "random numbers and selection": (0.2, 1.1),
    "random numbers and selection, where XLA does well": (1.1, 1.1),
    "import": (0.5, None),
    "import of numpy and lax": (0.5, None),
    "import and first operation": (None, None),
    "import and first compiled gradient": (0.7, None),
}
Table = dict[str, dict[str, float]]


def environment_of(package: str) -> dict[str, str]:
    """The environment of one process."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if package == "tracebridge":
        environment["PYTHONPATH"] = str(ROOT / "build" / "tree")
        # An installed package has its bytecode; the sources get theirs in the first process.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "bytecode")
    return environment


def worker(python: str, package: str, group: str) -> Table:
    """One process over one group."""
    environment = environment_of(package)
    out = subprocess.run(
        [python, str(HERE / "worker.py"), package, group],
        check=True, capture_output=True, text=True, env=environment, cwd=HERE,
    ).stdout  # fmt: skip
    measured = json.loads(out.splitlines()[-1])
    table: Table = {g: {n: best for n, (_, best) in rows.items()} for g, rows in measured.items()}
    if group == "tracing and lowering":
        first = {n: first for n, (first, _) in measured[group].items()}
        table["tracing and lowering, first in a process"] = first
    return table


IMPORTS = {
    "import": "import {package}",
    "import of numpy and lax": "import {package}, {package}.numpy, {package}.lax",
    "import and first operation": "import {package}, {package}.numpy\n{package}.numpy.ones(2) + 1",
    "import and first compiled gradient": (
        "import {package}, {package}.numpy, numpy\n"
        "def loss(layers, x, y):\n"
        "    for w, b in layers:\n"
        "        x = {package}.numpy.tanh(x @ w + b)\n"
        "    return ((x - y) ** 2).mean()\n"
        "w, b = numpy.full((8, 8), 0.1, numpy.float32), numpy.zeros(8, numpy.float32)\n"
        "x = numpy.ones((4, 8), numpy.float32)\n"
        "numpy.asarray({package}.jit({package}.grad(loss))([(w, b)] * 3, x, x)[0][0])"
    ),
}


def import_time(python: str, package: str, group: str) -> float:
    """Microseconds of an import in a fresh process."""
    environment = environment_of(package)
    code = (
        "import time; s = time.perf_counter()\n"
        f"{IMPORTS[group].format(package=package)}\n"
        "print(time.perf_counter() - s)"
    )
    out = subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True, env=environment, cwd=HERE
    ).stdout
    return 1e6 * float(out)


def merge(into: Table, new: Table) -> None:
    """Keep the smaller figure."""
    for group, rows in new.items():
        kept = into.setdefault(group, {})
        for name, value in rows.items():
            kept[name] = min(value, kept.get(name, math.inf))


def collect(peer: str, package: str, rounds: int, groups: list[str]) -> tuple[Table, Table]:
    """Figures of both libraries."""
    ours: Table = {}
    theirs: Table = {}
    for _ in range(rounds):
        for group in groups:
            if group in IMPORTS:
                merge(ours, {group: {group: import_time(sys.executable, "tracebridge", group)}})
                merge(theirs, {group: {group: import_time(peer, package, group)}})
                continue
            merge(ours, worker(sys.executable, "tracebridge", group))
            merge(theirs, worker(peer, package, group))
    return ours, theirs


def render(ours: Table, theirs: Table) -> str:
    """The table as Markdown, with the budget of each group."""
    lines: list[str] = []
    for group, (budget, limit) in GROUPS.items():
        if group not in ours:
            continue
        rows = [(n, ours[group][n], theirs[group][n]) for n in ours[group]]
        ratios = [a / b for _, a, b in rows]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines += [f"### {group}", "", "| case | ours, us | peer, us | ratio |", "|---|---|---|---|"]
        lines += [f"| {n} | {a:.4g} | {b:.4g} | {a / b:.2f} |" for n, a, b in rows]
        lines += ["", f"Geometric mean {mean:.3f}{verdict(mean, max(ratios), budget, limit)}.", ""]
    return "\n".join(lines)


def verdict(mean: float, worst: float, budget: float | None, limit: float | None) -> str:
    """Whether a group keeps its budget."""
    if budget is None:
        return " (no budget)"
    text = f"at most {budget:.2f}" + ("" if limit is None else f", none above {limit:.2f}")
    if mean > budget * 1.005:
        return f" (budget: {text}): missed, {mean / budget:.2f} times the budget"
    if limit is not None and worst > limit * 1.005:
        return f" (budget: {text}): missed, one ratio is {worst:.2f}"
    return f" (budget: {text}): met"


def versions(python: str, package: str) -> str:
    """The version of a package in an environment."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def header(peer: str, package: str) -> str:
    """What was measured, where and when."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return (
        "# Benchmarks\n\n"
        f"Made by `make bench` on {today}: {os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}, jaxlib {versions(sys.executable, 'jaxlib')}; the peer is "
        f"{package} {versions(peer, package)} in an environment of its own. Best of alternating "
        "processes; read the ratios (ours / the peer's), not the microseconds.\n\n"
    )


def main(argv: list[str]) -> Any:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--package", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path)
    parser.add_argument("groups", nargs="*")
    options = parser.parse_args(argv)
    groups = options.groups or [
        "cached call", "tracing and lowering", "eager", "compiled code",
        "convolutions and pooling that XLA is slow at", "convolutions that XLA does well",
        "linear algebra and fft", "linear algebra and fft, where XLA does well",
        "sums of products", "elementwise functions",
        "random numbers and selection", "random numbers and selection, where XLA does well",
        *IMPORTS,
    ]  # fmt: skip
    # Workers run in the folder of the benchmarks. The link is no path to follow: beside it is the
    # environment.
    options.peer = str(Path.cwd() / options.peer)
    ours, theirs = collect(options.peer, options.package, options.rounds, groups)
    text = render(ours, theirs)
    print(text)
    if options.record:
        record(options.record, header(options.peer, options.package) + text)


if __name__ == "__main__":
    main(sys.argv[1:])
