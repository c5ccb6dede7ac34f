"""Tree definitions as text."""

from __future__ import annotations

import collections

import pytest

from tests.core.tree.tree_strategies import Point
from tracebridge.core.tree import registry, tree
from tracebridge.core.tree.printing import format_treedef


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "a"),
        (None, "None"),
        ((), "()"),
        ((0,), "(a,)"),
        ([0, (0, 0)], "[a, (b, c)]"),
        ({"y": 0, "x": [0]}, "{'x': [a], 'y': b}"),
        (Point(0, {"k": 0}), "Point(x=a, y={'k': b})"),
        (collections.OrderedDict(k=0), "OrderedDict[('k',)](a)"),
        (registry.Partial(len, 0), "Partial[<built-in function len>]((a,), {})"),
    ],
    ids=str,
)
def test_format(value, expected):
    """The text is the expression of the tree with names in place of leaves."""
    treedef = tree.structure(value)

    assert expected == format_treedef(treedef, "abcdef"[: treedef.num_leaves])


def test_default_names():
    """Without names leaves are stars."""
    assert format_treedef(tree.structure((0, [0]))) == "(*, [*])"


def test_wrong_number_of_names():
    """Each leaf needs a name."""
    with pytest.raises(ValueError, match="1 names for 2 leaves"):
        format_treedef(tree.structure((0, 0)), ["x"])
