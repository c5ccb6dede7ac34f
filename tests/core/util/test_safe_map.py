"""Equal lengths are insisted on."""

from __future__ import annotations

import pytest

from tracebridge.core.util.safe_map import safe_map


def test_map_gives_a_list() -> None:
    """Of the results, for one sequence or several."""
    assert safe_map(lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6]
    assert safe_map(str, (1, 2)) == ["1", "2"]


def test_different_lengths_are_refused() -> None:
    """Neither is cut silently."""
    with pytest.raises(ValueError, match=r"shorter|longer"):
        safe_map(max, [1, 2], [3])
