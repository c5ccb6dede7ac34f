"""What the system says of the processor."""

from __future__ import annotations

from pathlib import Path

_KINDS = ("vendor_id", "model name", "flags", "Features", "CPU part")


def processor_lines(*, of_all_cores: bool) -> list[str] | None:
    """Lines about its model and instructions, each once, sorted; None where the system has none.

    ``of_all_cores``: else those of the first one. Systems with many cores take long to list all.
    """
    found: set[str] = set()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(_KINDS):
                    found.add(line.rstrip("\n"))
                elif found and not of_all_cores and not line.strip():
                    break
    except OSError:
        return None
    return sorted(found)
