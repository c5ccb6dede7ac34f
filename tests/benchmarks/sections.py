"""The sections of a file of figures: each benchmark writes its own and leaves the others."""

from __future__ import annotations

import re
from pathlib import Path

_HEADING = re.compile(r"(?m)^(?=### )")


def record(file: Path, text: str) -> None:
    """Put sections, each from its heading on, in the place of those of these names, or behind."""
    written = file.read_text() if file.exists() else ""
    parts = [part.rstrip() for part in _HEADING.split(written) if part.strip()]
    for section in [part.rstrip() for part in _HEADING.split(text) if part.strip()]:
        places = [i for i, part in enumerate(parts) if _name(part) == _name(section)]
        if places:
            parts[places[0]] = section
        else:
            parts.append(section)
    file.write_text("\n\n".join(parts) + "\n")


def _name(section: str) -> str:
    """Its heading; what stands before all headings has one of the first level."""
    line = section.partition("\n")[0]
    return line if line.startswith("### ") else "#"
