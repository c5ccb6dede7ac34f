"""Trees that look like the array inside of them: cached calls tell them apart."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import collections, functools

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.calls import fastpath

double = tb.jit(lambda x: tb.tree.map(lambda a: a * 2, x))
times = tb.jit(lambda x, n: tb.tree.map(lambda a: a * n, x), static_argnums=1)
x = tnp.arange(3.0)
for _ in range(2):
    double(x), times(x, 3), double(x=x)


class Named(dict):
    pass


class Listed(list):
    pass


class Kept(functools.partial):
    pass


for plain in (Named, Listed, Kept, collections.OrderedDict, collections.defaultdict):
    new = type(plain.__name__, (plain,), {})
    tb.tree_util.register_pytree_node(new, lambda x: ((), None), lambda *_: None)
print(fastpath._FORWARDING)


@tb.tree_util.register_pytree_node_class
class Box:
    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        if name == "value" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def tree_flatten(self):
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


late = tb.jit(lambda x: tb.tree.map(lambda a: a * 2, x))
for f in (double, late, lambda x: times(x, 3), lambda x: double(x=x)):
    print([type(f(arg)).__name__ for arg in (x, x, Box(x), x, Box(x))])
print(fastpath._FORWARDING)
"""


def test_forwarding_trees_are_no_arrays(subprocess_environment: dict[str, str]) -> None:
    """A tree whose attributes are those of an array gets the program of trees.

    Without such classes nothing looks for trees before the signatures, and subclasses of Python's
    containers are no such classes.
    """
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=subprocess_environment, capture_output=True, text=True, timeout=120, check=True,
    ).stdout.splitlines()  # fmt: skip
    expected = str(["Array", "Array", "Box", "Array", "Box"])
    assert ["[False]", *[expected] * 4, "[True]"] == out
