"""Functions in TensorFlow: by its own operations, by this library, by the peer's exporter.

    python tests/benchmarks/tf_calls.py [--peer PYTHON] [--rounds 3] [--record FILE]

``--peer`` is the interpreter of an environment that has the peer and TensorFlow. Each way is
measured in processes of its own, in turns; read the ratios. ``--record`` writes its section of a
file of figures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

from sections import record

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
WORKER = HERE / "tf_worker.py"
BUDGETS = {
    "8x8 layer, eager": 1.0,
    "8x8 layer, eager gradient": 1.0,
    "512x512 layer, gradient in tf.function": 1.2,
    "512x512 layer, gradient of one input in tf.function": 1.2,
}
"""Ratios to TensorFlow's own operations, measured in turns in one process."""
TURNS = "in turns: "

Figures = dict[str, float]


def measured(python: str, way: str) -> Figures:
    """One process."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if way == "tracebridge":
        environment["PYTHONPATH"] = str(ROOT / "build" / "tree")
    command = [python, str(WORKER), way]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: Figures = json.loads(out.stdout.splitlines()[-1])
    return found


def verdict(name: str, ratio: float | None) -> str:
    """What the budget of a row is, and whether it is met."""
    budget = BUDGETS.get(name)
    if budget is None or ratio is None:
        return ""
    missed = ratio / budget
    return f"{budget}: " + ("met" if missed <= 1 else f"missed by {missed:.2f} times")


def shown(name: str, figure: float) -> str:
    """A figure with its unit: KB where the name says so, else a time of microseconds."""
    if "KB" in name:
        return f"{figure:.0f}"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if figure >= size:
            return f"{figure / size:.3g} {unit}"
    return f"{figure:.3g} us"


def table(ways: dict[str, Figures]) -> list[str]:
    """Rows of all figures, with ratios, and the geometric means of the ratios of times."""
    peer = ways.get("jax")
    heads = ["case", "TensorFlow", "tracebridge", "ratio", "in turns", "budget"]
    if peer is not None:
        heads[3:3] = ["peer's exporter"]
        heads.append("ratio to the peer")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    ratios: dict[str, list[float]] = {"TensorFlow": [], "the peer": []}
    for name, own in ways["native"].items():
        ours = ways["tracebridge"][name]
        cells = [name, shown(name, own), shown(name, ours), f"{ours / own:.2f}"]
        together = ways["tracebridge"].get(f"{TURNS}{name}")
        cells.append("" if together is None else f"{together:.2f}")
        cells.append(verdict(name, together))
        ratios["TensorFlow"].append(ours / own)
        if peer is not None:
            cells[3:3] = [shown(name, peer[name])]
            cells.append(f"{ours / peer[name]:.2f}")
            ratios["the peer"].append(ours / peer[name])
        lines.append(f"| {' | '.join(cells)} |")
    means = [
        f"{math.exp(sum(map(math.log, found)) / len(found)):.2f} of {whom}"
        for whom, found in ratios.items()
        if found
    ]
    return [*lines, "", f"Geometric means: {', '.join(means)}.", ""]


def main(argv: list[str]) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="interpreter with the peer and TensorFlow")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    pythons = {"native": sys.executable, "tracebridge": sys.executable}
    if options.peer:
        pythons["jax"] = options.peer
    rounds: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.rounds):
        for way, python in pythons.items():
            one = measured(python, way)
            for name, figure in one.items():
                rounds.setdefault((way, name), []).append(figure)
    ways: dict[str, Figures] = {way: {} for way in pythons}
    for (way, name), figures in rounds.items():
        choose = statistics.median if name.startswith(TURNS) else min
        ways[way][name] = choose(figures)
    text = "\n".join(
        [
            "### TensorFlow in and out",
            "",
            f"Best of {options.rounds} process(es) each; gradients are those of the sum of",
            "squares. SavedModels take a batch of any size; the clients of a loaded one send eight",
            "sizes in turns. The speed of the machine changes between processes: *in turns* is the",
            "median ratio of calls that follow each other in one process, which budgets are for.",
            "",
            *table(ways),
        ]
    )
    print(text)
    if options.record:
        record(options.record, text)


if __name__ == "__main__":
    main(sys.argv[1:])
