"""Levels of option transfer_guard: one for all directions, or one for each."""

from __future__ import annotations

from typing import Final

LEVELS: Final = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
"""``log`` and ``disallow`` are about transfers that nobody asked for by name."""

DIRECTIONS: Final = ("host_to_device", "device_to_device", "device_to_host")


def guard_levels(value: str) -> dict[str, str]:
    """The level of each direction.

    Raises:
        ValueError: a wrong level or direction.
    """
    levels: dict[str, str] = dict.fromkeys(map(str, DIRECTIONS), "allow")
    if value in LEVELS:
        return dict.fromkeys(map(str, DIRECTIONS), value)
    for entry in value.split(","):
        direction, _, level = entry.strip().partition("=")
        if direction not in DIRECTIONS or level not in LEVELS:
            msg = f"transfer_guard: {entry!r} is no direction=level"
            raise ValueError(msg)
        levels[direction] = level
    return levels


def joined_levels(levels: dict[str, str]) -> str:
    """The value of the option for a level of each direction."""
    if len(set(levels.values())) == 1:
        return levels[DIRECTIONS[0]]
    return ",".join([f"{d}={levels[d]}" for d in DIRECTIONS])


def normal_guard(value: str) -> str:
    """The normal form of a value."""
    return joined_levels(guard_levels(value))
