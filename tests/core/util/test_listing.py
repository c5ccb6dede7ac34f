"""What ``dir()`` of a module lists."""

from __future__ import annotations

import types

from tracebridge.core.util.listing import listing


def test_listing() -> None:
    """``__all__`` when it is asked for; of what is loaded below, modules of the package only."""
    below = types.ModuleType("package.below")
    other = types.ModuleType("other")
    namespace = {"__name__": "package", "below": below, "other": other, "_hidden": below}
    names, with_modules = listing(namespace), listing(namespace, loaded=True)

    namespace["__all__"] = ["f", "a"]

    assert ["a", "f"] == names()
    assert ["a", "below", "f"] == with_modules()
