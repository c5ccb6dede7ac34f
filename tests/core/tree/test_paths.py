"""Key paths as text."""

from __future__ import annotations

import pickle

import pytest

from tracebridge.core._jaxlib.pytree import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey
from tracebridge.core.tree.paths import keystr, named_path

PATH = (DictKey("a"), SequenceKey(3), GetAttrKey("x"), FlattenedIndexKey(4), "other")


def test_keystr():
    """A path reads like Python; the simple form has the bare keys."""
    assert keystr(PATH) == "['a'][3].x[<flat index 4>]other"
    assert keystr(PATH, simple=True, separator="/") == "a/3/x/4/other"
    assert keystr(()) == ""


def test_named_path():
    """A path below a name."""
    assert named_path("params", PATH[:2]) == "params['a'][3]"


@pytest.mark.parametrize("key", PATH[:4], ids=str)
def test_keys_are_values(key):
    """Keys are hashable, comparable and can be pickled."""
    again = pickle.loads(pickle.dumps(key))

    assert key == again
    assert hash(key) == hash(again)
    assert key != SequenceKey(99)
