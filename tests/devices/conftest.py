"""The table at the end of a run: which program compiled for which platform."""

from __future__ import annotations

import re
from typing import Any

WORDS = {"passed": "yes", "skipped": "refused", "failed": "NO", "error": "NO"}
CASE = re.compile(r"test_compile\.py::test_compiles\[(.*)-(\w+)\]$")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print program x platform, if programs were compiled."""
    rows: dict[str, dict[str, str]] = {}
    for outcome, word in WORDS.items():
        for report in terminalreporter.stats.get(outcome, []):
            case = CASE.search(getattr(report, "nodeid", ""))
            if case:
                rows.setdefault(case[1], {})[case[2]] = word
    if not rows:
        return
    platforms = sorted({platform for row in rows.values() for platform in row})
    width = max(map(len, rows))
    terminalreporter.section("compiled for")
    terminalreporter.line(" ".join([" " * width, *[f"{p:>8}" for p in platforms]]))
    for name, row in sorted(rows.items()):
        terminalreporter.line(
            " ".join([f"{name:{width}}", *[f"{row.get(p, '-'):>8}" for p in platforms]])
        )
