"""Random pytrees for the tests of this folder."""

from __future__ import annotations

import collections
from typing import NamedTuple

from hypothesis import strategies as st


class Point(NamedTuple):
    """A named tuple, which is a node without registration."""

    x: object
    y: object


trees = st.recursive(
    st.integers() | st.none(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), children, max_size=3)
        | st.builds(Point, children, children)
        | st.dictionaries(st.integers(), children, max_size=2).map(collections.OrderedDict)
        | st.dictionaries(st.integers(), children, max_size=2).map(
            lambda d: collections.defaultdict(list, d)
        )
    ),
    max_leaves=12,
)
