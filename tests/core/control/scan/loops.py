"""Loops for the tests of scan: bodies with their arguments, and the loop in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tracebridge import tree


class Loop(NamedTuple):
    """A function of a tree of float parameters that loops with ``scan(body, init, xs)``."""

    name: str
    run: Callable[..., Any]
    params: Any
    options: Any = MappingProxyType({})

    def __str__(self) -> str:
        return self.name

    def scanned(self, params: Any) -> Any:
        """The loop as one primitive."""
        return self.run(tb.lax.scan, params, **self.options)

    def unrolled(self, params: Any) -> Any:
        """The loop step by step."""
        return self.run(python_scan, params, **self.options)


def python_scan(
    f: Any, init: Any, xs: Any, length: int | None = None, reverse: bool = False, **_: Any
) -> Any:
    """What scan means."""
    leaves = tree.leaves(xs)
    steps = len(leaves[0]) if leaves else length
    rows: dict[int, Any] = {}
    carry = tree.map(tnp.asarray, init)
    for k in range(steps):
        i = steps - 1 - k if reverse else k
        carry, rows[i] = f(carry, tree.map(lambda x, i=i: x[i], xs))
    ys = tree.map(lambda *y: tnp.stack(y), *[rows[i] for i in range(steps)])
    return carry, ys


def scalar(scan: Any, p: Any, **k: Any) -> Any:
    """A scalar carry, closed-over weight, ys that are also residuals."""

    def body(c: Any, x: Any) -> Any:
        c = tnp.sin(c * p["w"]) + x
        return c, c * c

    return scan(body, p["c"], p["xs"], **k)


def late(scan: Any, p: Any, **k: Any) -> Any:
    """Carries that become differentiable one step after the other, and a counter."""

    def body(c: Any, x: Any) -> Any:
        n, a, b = c
        return (n + 1, a + x * p["w"], b + tnp.sin(a)), (b, n)

    return scan(body, (0, 0.0, 0.0), p["xs"], **k)


def trees(scan: Any, p: Any, **k: Any) -> Any:
    """Matrix carry, dict of xs of several ranks, unused xs, a constant among the ys."""

    def body(c: Any, x: Any) -> Any:
        m = tnp.tanh(c["m"] @ p["w"] + x["b"])
        return {"m": m, "s": c["s"] * 0.5 + m.sum()}, {"y": m * x["a"], "w": p["w"][0]}

    return scan(body, {"m": p["m"], "s": 1.0}, {"a": p["a"], "b": p["b"], "z": p["a"]}, **k)


def no_xs(scan: Any, p: Any, **k: Any) -> Any:
    """A loop without arrays to slice; one carry stays as it is."""

    def body(c: Any, _: Any) -> Any:
        a, b = c
        return (a * b + 1.0, b), None

    return scan(body, (p["a"], p["b"]), None, length=5, **k)


def stopped(scan: Any, p: Any, **k: Any) -> Any:
    """Part of the carry has no derivative."""

    def body(c: Any, x: Any) -> Any:
        a, b = c
        return (a * x, tb.lax.stop_gradient(b * a)), (a + b)

    return scan(body, (p["a"], p["a"]), p["xs"], **k)


def nested(scan: Any, p: Any, **k: Any) -> Any:
    """A loop in a loop."""

    def inner(c: Any, y: Any) -> Any:
        c = tnp.cos(c * y * p["w"])
        return c, c

    def body(c: Any, x: Any) -> Any:
        c, ys = scan(inner, c, x)
        return c * 1.5, ys.sum()

    return scan(body, p["c"], p["xs"], **k)


def f32(*values: Any) -> Any:
    """Float32 array."""
    return tnp.asarray(np.asarray(values, np.float32))


_SCALAR = {"w": f32(0.7)[0], "c": f32(0.3)[0], "xs": f32(0.1, -0.4, 0.8, 1.2)}
_RANDOM = np.random.RandomState(3)
_TREES = {
    "w": tnp.asarray(_RANDOM.randn(3, 3).astype(np.float32)),
    "m": tnp.asarray(_RANDOM.randn(2, 3).astype(np.float32)),
    "a": tnp.asarray(_RANDOM.randn(4).astype(np.float32)),
    "b": tnp.asarray(_RANDOM.randn(4, 3).astype(np.float32)),
}
_NESTED = {"w": f32(0.7)[0], "c": f32(0.3)[0], "xs": f32([0.1, 0.2, 0.3], [0.5, -0.4, 0.8])}

LOOPS = [
    Loop("scalar", scalar, _SCALAR),
    Loop("reverse", scalar, _SCALAR, {"reverse": True}),
    Loop("unroll 3 of 4", scalar, _SCALAR, {"unroll": 3}),
    Loop("unroll 2 in reverse", scalar, _SCALAR, {"unroll": 2, "reverse": True}),
    Loop("unroll all", scalar, _SCALAR, {"unroll": True}),
    Loop("one step", scalar, {**_SCALAR, "xs": f32(0.5)}),
    Loop("late tangents", late, _SCALAR),
    Loop("late tangents in reverse", late, _SCALAR, {"reverse": True, "_split_transpose": True}),
    Loop("trees", trees, _TREES),
    Loop("trees, split transpose", trees, _TREES, {"_split_transpose": True}),
    Loop("no xs", no_xs, {"a": f32(0.5)[0], "b": f32(1.1)[0]}),
    Loop("stopped", stopped, {"a": f32(0.5)[0], "xs": f32(1.0, 2.0, 3.0)}),
    Loop("nested", nested, _NESTED),
]


def total(result: Any) -> Any:
    """One number that depends on every float result, on each in another way."""
    floats = [x for x in tree.leaves(result) if np.issubdtype(x.dtype, np.floating)]
    return sum([tnp.sum(tnp.sin(x * (1.0 + 0.1 * i))) for i, x in enumerate(floats)])
