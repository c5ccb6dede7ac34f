"""Random inputs for the tests of the whole engine: shapes, arrays, trees, axes, small programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value

# Few sizes: an eager operation compiles once per shape, and the next example finds it again.
SHAPES = ((), (2,), (3,), (2, 3), (3, 2), (1, 3))
MAX_SIZE = 64
shapes = st.sampled_from(SHAPES)
shapes_with_axes = st.sampled_from([s for s in SHAPES if s])
dtypes = st.sampled_from(["bool", "int8", "int32", "uint8", "float16", "float32", "complex64"])
seeds = st.integers(0, 2**16)


def array(shape: Sequence[int], seed: int, dtype: Any = "float64") -> np.ndarray:
    """Numbers of moderate size, far from zero and from each other in no special way."""
    rng = np.random.default_rng(seed)
    numbers = rng.uniform(-1.5, 1.5, tuple(shape))
    kind = np.dtype(dtype).kind
    if kind == "c":
        return (numbers + 1j * rng.uniform(-1.5, 1.5, tuple(shape))).astype(dtype)
    if kind in "ui":
        return rng.integers(0, 100, tuple(shape)).astype(dtype)
    return (numbers > 0) if kind == "b" else numbers.astype(dtype)


@st.composite
def arrays(draw: st.DrawFn, shape: Any = shapes, dtype: Any = dtypes) -> np.ndarray:
    """A NumPy array of a small shape."""
    return array(draw(shape), draw(seeds), draw(dtype))


def pytrees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Trees of dicts, lists, tuples and None with the given leaves."""
    return st.recursive(
        leaves | st.none(),
        lambda children: (
            st.lists(children, max_size=3)
            | st.tuples(children, children)
            | st.dictionaries(st.sampled_from(["a", "b", "c"]), children, max_size=3)
        ),
        max_leaves=6,
    )


@st.composite
def axis_specs(draw: st.DrawFn, ranks: Sequence[int]) -> tuple[int | None, ...]:
    """An entry of ``in_axes`` per array of rank ``ranks[i]`` without its batch axis.

    At least one entry is an int.
    """
    found = [draw(st.none() | st.integers(-rank - 1, rank)) for rank in ranks]
    if all(axis is None for axis in found):
        found[0] = draw(st.integers(-ranks[0] - 1, ranks[0]))
    return tuple(found)


# programs ----------------------------------------------------------------------------------------


def _scan(x: Any) -> Any:
    """A loop over the first axis."""
    start = x[0] * 0.0
    carry, ys = tb.lax.scan(lambda c, a: (tnp.sin(a) + 0.5 * c, c * a), start, x)
    return ys + carry


def _numpy_scan(x: np.ndarray) -> np.ndarray:
    carry, ys = np.zeros_like(x[0]), []
    for a in x:
        ys.append(carry * a)
        carry = np.sin(a) + 0.5 * carry
    return np.stack(ys) + carry


def _cond(x: Any) -> Any:
    """Both branches are taken by one example or another."""
    return tb.lax.cond(tnp.sum(x) > 0.25, lambda a: tnp.sin(a) * 2.0, lambda a: a - 1.0, x)


def _numpy_cond(x: np.ndarray) -> np.ndarray:
    return np.sin(x) * 2.0 if np.sum(x) > 0.25 else x - 1.0


@tb.jit
def _call(x: Any, y: Any) -> Any:
    return tnp.cos(x) * y


@dataclasses.dataclass(frozen=True)
class Op:
    """An operation: for the engine (``ours``), and in NumPy. Both take arrays, then an axis."""

    arity: int
    ours: Callable[..., Any]
    numpy: Callable[..., Any]
    min_rank: int = 0


def _same(arity: int, f: Callable[..., Any], min_rank: int = 0) -> Op:
    """An operation that is written alike for both libraries."""
    return Op(
        arity,
        lambda *args: f(tnp, *args),
        lambda *args: f(np, *args),
        min_rank,
    )


OPS: dict[str, Op] = {
    "sin": _same(1, lambda xp, x, _: xp.sin(x)),
    "tanh": _same(1, lambda xp, x, _: xp.tanh(x)),
    "neg": _same(1, lambda _xp, x, _: -x),
    "square": _same(1, lambda _xp, x, _: x * x * 0.5),
    "logistic": _same(1, lambda xp, x, _: 1.0 / (1.0 + xp.exp(-x))),
    "add": _same(2, lambda _xp, x, y, _: x + y),
    "sub": _same(2, lambda _xp, x, y, _: x - 2.0 * y),
    "mul": _same(2, lambda _xp, x, y, _: x * y),
    "div": _same(2, lambda _xp, x, y, _: x / (1.5 + y * y)),
    "where": _same(2, lambda xp, x, y, _: xp.where(x > 0.1, x, y)),
    "sum": _same(1, lambda xp, x, axis: xp.sum(x, axis=axis), 1),
    "mean": _same(1, lambda xp, x, axis: xp.mean(x, axis=axis, keepdims=True), 1),
    "max": _same(1, lambda xp, x, axis: xp.max(x, axis=axis), 1),
    "cumsum": _same(1, lambda xp, x, axis: xp.cumsum(x, axis=axis), 1),
    "ravel": _same(1, lambda xp, x, _: xp.reshape(x, (-1,))),
    "transpose": _same(1, lambda xp, x, _: xp.transpose(x)),
    "expand": _same(1, lambda xp, x, axis: xp.expand_dims(x, axis)),
    "slice": _same(1, lambda _xp, x, _: x[1:] if x.shape[0] > 1 else x[0], 1),
    "flip": _same(1, lambda xp, x, axis: xp.flip(x, axis), 1),
    "concat": _same(1, lambda xp, x, axis: xp.concatenate([x, 0.5 * x], axis=axis), 1),
    "outer": _same(2, lambda xp, x, y, _: xp.tensordot(x, y, 0)),
    "scan": Op(1, lambda x, _: _scan(x), lambda x, _: _numpy_scan(x), 1),
    "cond": Op(1, lambda x, _: _cond(x), lambda x, _: _numpy_cond(x)),
    "call": Op(2, lambda x, y, _: _call(x, y), lambda x, y, _: np.cos(x) * y),
}


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of ``len(in_shapes)`` arrays: steps ``(operation, operands, axis)``.

    Operands count the arguments first, then the results of the steps.
    """

    in_shapes: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[str, tuple[int, ...], int], ...]

    def __call__(self, *args: Any) -> Any:
        """The result of the last step."""
        return self.all(*args)[-1]

    def all(self, *args: Any) -> list[Any]:
        """The results of all steps."""
        env = list(args)
        for name, operands, axis in self.steps:
            env.append(OPS[name].ours(*[env[i] for i in operands], axis))
        return env[len(args) :]

    def numpy(self, *args: np.ndarray) -> Any:
        """What NumPy gives."""
        env = list(args)
        for name, operands, axis in self.steps:
            env.append(OPS[name].numpy(*[env[i] for i in operands], axis))
        return env[-1]

    def arguments(self, seed: int, leading: tuple[int, ...] = ()) -> list[np.ndarray]:
        """Arguments, with further axes in front."""
        return [array((*leading, *s), seed + 101 * i) for i, s in enumerate(self.in_shapes)]

    def jaxpr(self) -> Jaxpr:
        """The Jaxpr of all steps."""
        return tb.make_jaxpr(self.all)(*self.arguments(0)).jaxpr


def _compatible(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(one, two))) <= MAX_SIZE
    except ValueError:
        return False


@st.composite
def programs(draw: st.DrawFn, max_args: int = 2, max_steps: int = 5) -> Program:
    """A composition of elementwise operations, reductions, reshapes, a loop and calls."""
    in_shapes = tuple(draw(st.lists(shapes, min_size=1, max_size=max_args)))
    env = list(in_shapes)
    steps = []
    for _ in range(draw(st.integers(1, max_steps))):
        # The newest values are the likeliest operands: long chains are more telling.
        first = len(env) - 1 - draw(st.integers(0, min(2, len(env) - 1)))
        shape = env[first]
        small = int(np.prod(shape)) ** 2 <= MAX_SIZE and len(shape) < 2
        names = [
            name
            for name, op in OPS.items()
            if len(shape) >= op.min_rank and (name != "outer" or small) and len(shape) < 4
        ]
        name = draw(st.sampled_from(names or ["sin"]))
        if name == "concat" and int(np.prod(shape)) > MAX_SIZE:
            name = "sum"
        operands = (first,)
        if OPS[name].arity == 2:
            others = [i for i, s in enumerate(env) if _compatible(s, shape)]
            operands = (first, first if name == "outer" else draw(st.sampled_from(others)))
        axis = draw(st.integers(0, max(0, len(shape) - 1)))
        result = OPS[name].numpy(*[np.full(env[i], 0.5) for i in operands], axis)
        steps.append((name, operands, axis))
        env.append(np.shape(result))
    return Program(in_shapes, tuple(steps))


def run_jaxpr(jaxpr: Jaxpr, *args: Any) -> list[Any]:
    """The results of a Jaxpr at arrays, each equation evaluated at once."""
    return eval_jaxpr(jaxpr, current_trace().process, [as_value(a) for a in args])
