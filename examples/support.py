"""What the short examples share: options of the command line, pictures, tables, times."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt  # the backend must be chosen first


def options(description: str | None) -> argparse.Namespace:
    """``--smoke`` (a short run) and ``--out`` (the folder of pictures), which exists afterwards."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a short run")
    parser.add_argument("--out", type=Path, default=Path("build/examples"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    return chosen


def canvas(title: str, x: str, y: str, **kwargs: Any) -> Any:
    """Axes of a new picture."""
    _, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.set(title=title, xlabel=x, ylabel=y, **kwargs)
    return axes


def save(axes: Any, path: Path) -> None:
    """Write the picture of these axes, with a legend if something has a label."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    axes.figure.savefig(path, dpi=110)
    plt.close(axes.figure)
    print(f"picture: {path}")


def table(header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    """Print columns; the first is text, the others are numbers."""
    text = [header, *[tuple([c if isinstance(c, str) else f"{c:.4g}" for c in r]) for r in rows]]
    widths = [max([len(row[i]) for row in text]) for i in range(len(header))]
    for row in text:
        rest = [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *rest]))


def best_time(run: Callable[[], Any], seconds: float = 1.0) -> float:
    """Microseconds of one call: the best of as many as fit into ``seconds``, after one more."""
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best
