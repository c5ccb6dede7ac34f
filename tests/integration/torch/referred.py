"""Things that callbacks refer to, for one number each, and the fingerprints of such callbacks."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import fractions
import functools
import operator
import pathlib
import re
import types
from typing import Any

import numpy as np
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap
from tracebridge.torch._graphs.fingerprint import fingerprint


@dataclasses.dataclass
class Data:
    scale: float
    inner: object = None
    more: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    scale: float


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024 - the plain form


class Plain:
    def __init__(self, scale):
        self.cache = self.owner = self.runs = scale

    def method(self, x):
        return x * self.cache


class Lazy(Plain):
    @functools.cached_property
    def remembered(self):
        return object()


class Written:
    def __init__(self, scale):
        self.scale, self.lock = scale, (i for i in range(3))

    def __getstate__(self):
        return {"scale": self.scale}


class Tagged(float):
    pass


def tagged(n):
    made = Tagged(1.0)
    made.a = n
    return made


class Names(list):
    pass


def class_with(n):
    class Settings:
        scale = n

    return Settings


def methods_with(n):
    class Methods:
        def __call__(self, x):
            return x * n

    return Methods


def inherited(n):
    class Settings(class_with(n)):
        pass

    return Settings


def enum_with(n):
    class Mode(enum.Enum):
        A = n
        B = 7.5

    return Mode


def int_enum_with(n):
    class Mode(enum.IntEnum):
        A = int(n)

    return Mode


def cycle(n):
    a, b = [n], {}
    a.append(b)
    b["a"] = a
    return a


def crowd(n):
    members = [Plain(n), Plain(n + 1), Plain(n + 2)]
    for member in members:
        member.others = set(members)
    return members[0]


def attributed(n):
    def helper(x):
        return x

    helper.scale = n
    return helper


def lazy(n):
    made = Lazy(n)
    assert made.remembered
    return made


def vjp(n):
    f = tb.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda res, g: (g * n,))
    return f


def used(f, x=None):
    f(tnp.ones(3) if x is None else x)
    return f


KINDS: dict[str, Any] = {
    "a number": lambda n: n,
    "a text": lambda n: str(n),
    "a NumPy scalar": lambda n: np.float32(n),
    "a wide NumPy scalar": lambda n: np.float64(n),
    "an array": lambda n: np.array([n]),
    "the byte order": lambda n: np.array([1], "<i4" if n > 2 else ">i4"),
    "a structured array": lambda n: np.zeros(2, [("a" if n > 2 else "b", "f4")]),
    "a masked array": lambda n: np.ma.array([1.0, 2.0], mask=[n > 2, False]),
    "an array of objects": lambda n: np.array([n, "a"], object),
    "an array of ours": lambda n: tnp.array([n]),
    "a tensor": lambda n: torch.tensor([n]),
    "a tensor of another dtype": lambda n: torch.tensor([n], dtype=torch.bfloat16),
    "a module of torch": lambda n: torch.nn.Sequential(torch.nn.Threshold(n, 0)),
    "a list": lambda n: [1, [n]],
    "a tuple": lambda n: (1, (n,)),
    "a dict": lambda n: {"a": {"b": n}},
    "keys of a dict": lambda n: {1: 2, (n, "b"): 3},
    "a set": lambda n: {"a", "b", n},
    "a frozen set": lambda n: frozenset({("a", n), "b"}),
    "an ordered dict": lambda n: collections.OrderedDict(a=n),
    "a default": lambda n: collections.defaultdict(functools.partial(float, n)),
    "a counter": lambda n: collections.Counter(a=int(n)),
    "a deque": lambda n: collections.deque([1, n]),
    "a named tuple": lambda n: Pair(1, n),
    "a namespace": lambda n: types.SimpleNamespace(a=n),
    "a partial": lambda n: functools.partial(operator.mul, n),
    "a keyword of a partial": lambda n: functools.partial(dict, a=n),
    "a cached function": lambda n: functools.lru_cache(lambda x: x * n),
    "a member": lambda n: enum_with(n).A,
    "a member of integers": lambda n: int_enum_with(n).A,
    "an enum": lambda n: enum_with(n),
    "a dataclass object": lambda n: Data(1.0, Data(n)),
    "a list in a dataclass object": lambda n: Data(1.0, None, [n]),
    "a dataclass object with slots": lambda n: Slotted(n),
    "an object": lambda n: Plain(n),
    "an object that remembers": lambda n: lazy(n),
    "an object that is pickled": lambda n: Written(n),
    "a subclass of a number": lambda n: Tagged(n),
    "an attribute of a number": lambda n: tagged(n),
    "a subclass of a list": lambda n: Names([n]),
    "a bound method": lambda n: Plain(n).method,
    "a class attribute": lambda n: class_with(n),
    "a class attribute of an object": lambda n: class_with(n)(),
    "an inherited attribute": lambda n: inherited(n),
    "a method of an object": lambda n: methods_with(n)(),
    "a function attribute": lambda n: attributed(n),
    "a jitted function": lambda n: tb.jit(lambda x: x * n),
    "a jitted function that was called": lambda n: used(tb.jit(lambda x: x * n)),
    "a static argument": lambda n: used(tb.jit(lambda x, m=n: x * m, static_argnums=1)),
    "a gradient": lambda n: tb.grad(lambda x: x * n),
    "a mapped function": lambda n: used(tb.vmap(lambda x: x * n)),
    "an axis of a map": lambda n: tb.vmap(lambda x: x, in_axes=int(n), out_axes=int(n)),
    "a function with rules": lambda n: used(vjp(n)),
    "a wrapped function": lambda n: used(wrap(lambda x: x * n), torch.ones(3)),
    "a decimal": lambda n: decimal.Decimal(str(n)),
    "a fraction": lambda n: fractions.Fraction(int(n), 7),
    "a path": lambda n: pathlib.PurePosixPath(str(n)),
    "a pattern": lambda n: re.compile(str(n)),
    "a slice": lambda n: slice(1, n),
    "bytes": lambda n: bytearray([int(n)]),
    "a generator of random numbers": lambda n: np.random.default_rng(int(n)),
    "a getter": lambda n: operator.itemgetter(int(n)),
    "a cycle": lambda n: cycle(n),
    "a cycle of sets": lambda n: crowd(n),
}


THING: Any = None


def host(x):
    return (THING, x)[1]


def through_module(x):
    return (settings.THING, x)[1]  # noqa: F821 - one of the globals that it is given


def as_global(thing):
    return types.FunctionType(host.__code__, {"__name__": __name__, "THING": thing})


def as_closure(thing):
    return lambda x: (thing, x)[1]


def as_module_of_closure(thing):
    module = types.ModuleType("settings")
    module.THING = thing
    return lambda x: (module.THING, x)[1]


def as_default(thing):
    return lambda x, y=thing: (y, x)[1]


def as_attribute(thing):
    return Plain(thing).method


def in_module(thing):
    module = types.ModuleType("settings")
    module.THING = thing
    return types.FunctionType(through_module.__code__, {"__name__": __name__, "settings": module})


WAYS = [as_global, as_closure, as_default, as_attribute, in_module, as_module_of_closure]


def digest(callback):
    """The fingerprint of a program that calls back."""

    def call(x):
        return tb.pure_callback(callback, tb.ShapeDtypeStruct(x.shape, x.dtype), x)

    return fingerprint(tb.make_jaxpr(call)(tnp.ones(3)).jaxpr)


def digests(*, backwards):
    """All of them, in one order or the other."""
    names = list(KINDS)[:: -1 if backwards else 1]
    return {name: digest(as_global(KINDS[name](3.0))) for name in names}
