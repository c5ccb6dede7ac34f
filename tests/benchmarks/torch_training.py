"""A step of training: train_step beside eager and compiled torch, on small and middle networks.

    python tests/benchmarks/torch_training.py [--seconds 1.0] [--rounds 3] [--record FILE]

Each network has a process of its own, bound to one core: the threads of torch and those of XLA
would take more cores from one another. ``--record`` writes its section of a file of figures.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sections import record

ROOT = Path(__file__).parents[2]
NETWORKS = (
    "perceptron of 64, batch 32",
    "perceptron of 512, batch 128",
    "convolutions, batch 64",
    "transformer, batch 32",
)
HEADING = "### a step of training"
REMARKS = """\
Where calls cost more than numbers, one program wins. Where matrix products cost more than all else,
they take as long in XLA as in torch. Programs write new parameters and states beside the old ones,
which costs no time: with donated buffers, written in place, the program of the perceptron of 512
takes as long (2.68 ms instead of 2.64).
"""


def best(step: Callable[[Any, Any], Any], inputs: Any, seconds: float) -> float:
    """Milliseconds of the fastest step."""
    for _ in range(3):
        step(*inputs)
    found, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        step(*inputs)
        found = min(found, time.perf_counter() - start)
    return 1e3 * found


def measure(name: str, seconds: float, rounds: int) -> dict[str, float]:
    """The best of each way; the ways take turns."""
    sys.path.insert(0, str(ROOT / "examples"))
    import torch
    import train_steps as example  # pyright: ignore[reportMissingImports] - found by the path above

    torch.set_num_threads(1)
    make, batch = example.NETWORKS[name]
    torch.manual_seed(0)
    net = make()
    inputs = torch.randn(batch, 64), torch.randint(0, 10, (batch,))
    steps = {way: example.WAYS[way](copy.deepcopy(net)) for way in example.ways_here(smoke=False)}
    found = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for way, step in steps.items():
            found[way] = min(found[way], best(step, inputs, seconds))
    return found


def main(argv: list[str]) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", help="measure this network here and print JSON")
    options = parser.parse_args(argv)
    if options.once:
        # Before the pools of threads are made.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
        print(json.dumps(measure(options.once, options.seconds, options.rounds)))
        return
    how = ["--seconds", str(options.seconds), "--rounds", str(options.rounds)]
    rows: dict[str, dict[str, float]] = {}
    for name in NETWORKS:
        command = [sys.executable, __file__, "--once", name, *how]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows[name] = json.loads(answer)
    ways = list(rows[NETWORKS[0]])
    lines = [
        HEADING,
        "",
        "Forward pass, cross entropy, backward pass, AdamW (of torch: fused). Milliseconds of the",
        "fastest step, on one core. `python examples/train_steps.py` draws such times.",
        "",
        f"| network | {' | '.join(ways)} |",
        "|---" * (1 + len(ways)) + "|",
    ]
    lines += [
        f"| {name} | {' | '.join([f'{row[way]:.3f}' for way in ways])} |"
        for name, row in rows.items()
    ]
    text = "\n".join([*lines, "", REMARKS])
    print(text)
    if options.record:
        record(options.record, text)


if __name__ == "__main__":
    main(sys.argv[1:])
