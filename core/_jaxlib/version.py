"""The version gate: which jaxlib this engine runs on.

Read by `core/_jaxlib/__init__.py` before any other module of the door, so that an unsupported
jaxlib fails with one clear message and not with an AttributeError somewhere below.
Differences inside the supported range are found by feature tests where they occur, not by
comparing versions.
"""

from __future__ import annotations

import re

import jaxlib.version

from tracebridge.core.util.public_path import public_path

MIN_VERSION = (0, 10, 2)
"""The oldest jaxlib that the contract tests pass on."""

END_VERSION = (0, 13)
"""The first jaxlib that nobody has tried yet (exclusive)."""


@public_path("tracebridge.errors")
class UnsupportedJaxlibError(ImportError):
    """The installed jaxlib is older or newer than the range this engine was tested with."""


def parse_version(text: str) -> tuple[int, ...]:
    """Return the leading numeric part of a version, e.g. '0.12.0.1' or '0.11.0.dev3'.

    Raises:
        UnsupportedJaxlibError: if the text does not begin with a number.
    """
    match = re.match(r"\d+(?:\.\d+)*", text)
    if match is None:
        raise UnsupportedJaxlibError(f"jaxlib has the version {text!r}, which is not a number")
    return tuple(int(part) for part in match.group(0).split("."))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def check_version(version: tuple[int, ...]) -> None:
    """Raise unless `version` is in the supported range.

    Raises:
        UnsupportedJaxlibError: naming what was found, what is needed and how to get it.
    """
    if MIN_VERSION <= version < END_VERSION:
        return
    wanted = f">={_dotted(MIN_VERSION)},<{_dotted(END_VERSION)}"
    raise UnsupportedJaxlibError(
        f"tracebridge was imported with jaxlib {_dotted(version)}, but it needs jaxlib {wanted}. "
        f"Install a supported one: pip install 'jaxlib{wanted}'"
    )


JAXLIB_VERSION: tuple[int, ...] = parse_version(jaxlib.version.__version__)
"""The version of the installed jaxlib as a tuple, e.g. (0, 10, 2)."""

check_version(JAXLIB_VERSION)
