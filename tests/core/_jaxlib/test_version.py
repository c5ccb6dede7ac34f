"""The gate says what is needed before anything else fails."""

from __future__ import annotations

import pytest

from tracebridge.core._jaxlib.version import UnsupportedJaxlibError, check_version, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.10.2", (0, 10, 2)),
        ("0.12.0.1", (0, 12, 0, 1)),
        ("0.11.0.dev20260101", (0, 11, 0)),
        ("0.10.2+cuda13", (0, 10, 2)),
    ],
)
def test_the_numeric_part_is_read(text: str, version: tuple[int, ...]) -> None:
    """Suffixes of development and local builds do not count."""
    assert version == parse_version(text)


def test_a_version_without_numbers_is_refused() -> None:
    """Nothing sensible could be compared."""
    with pytest.raises(UnsupportedJaxlibError, match="unknown"):
        parse_version("unknown")


@pytest.mark.parametrize("version", [(0, 10, 2), (0, 11), (0, 12, 0, 1), (0, 12, 99)])
def test_supported_versions_pass(version: tuple[int, ...]) -> None:
    """The whole tested range, with patch releases that do not exist yet."""
    check_version(version)


@pytest.mark.parametrize("version", [(0, 9), (0, 10, 1), (0, 13), (1, 0)])
def test_other_versions_are_refused_with_the_remedy(version: tuple[int, ...]) -> None:
    """The message has what was found, what is needed, and a command."""
    found = ".".join(map(str, version))

    with pytest.raises(ImportError, match=rf"jaxlib {found}, but .* pip install 'jaxlib>=0.10.2"):
        check_version(version)
