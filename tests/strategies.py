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


def _switch(x: Any) -> Any:
    index = tnp.floor(tnp.sum(x) * 2.0).astype("int32")
    return tb.lax.switch(index, [tnp.sin, lambda a: a * a, lambda a: a + 1.0], x)


def _numpy_switch(x: np.ndarray) -> np.ndarray:
    index = int(np.clip(np.floor(np.sum(x) * 2.0), 0, 2))
    return [np.sin, lambda a: a * a, lambda a: a + 1.0][index](x)


def _fori(x: Any) -> Any:
    """A loop with a fixed number of steps, which uses a value from outside."""
    return tb.lax.fori_loop(0, 3, lambda i, c: tnp.sin(c) + 0.1 * i * x, x)


def _numpy_fori(x: np.ndarray) -> np.ndarray:
    carry = x
    for i in range(3):
        carry = np.sin(carry) + 0.1 * i * x
    return carry


def _while(x: Any) -> Any:
    """A loop whose number of steps depends on the values: forward mode only."""

    def unfinished(carry: Any) -> Any:
        return (carry[0] < 4) & (tnp.sum(carry[1] * carry[1]) < 6.0)

    return tb.lax.while_loop(unfinished, lambda c: (c[0] + 1, 1.3 * c[1] + 0.1), (0, x))[1]


def _numpy_while(x: np.ndarray) -> np.ndarray:
    for _ in range(4):
        if np.sum(x * x) >= 6.0:
            break
        x = 1.3 * x + 0.1
    return x


def _set(x: Any) -> Any:
    """Elements that are added to twice, and one that is replaced."""
    x = tnp.asarray(x)
    return x.at[np.array([0, 0])].add(tnp.sin(x[:1])).at[-1].set(x[0] * 2.0)


def _numpy_set(x: np.ndarray) -> np.ndarray:
    result = x.copy()
    result[0] += 2 * np.sin(x[0])
    result[-1] = x[0] * 2.0
    return result


def _dynamic(x: Any) -> Any:
    """A slice whose start depends on the values, and is clamped."""
    start = tnp.where(tnp.sum(x) > 0.0, 1, 0)
    return tb.lax.dynamic_slice_in_dim(x, start, 1, 0)


def _numpy_dynamic(x: np.ndarray) -> np.ndarray:
    start = min(int(np.sum(x) > 0.0), len(x) - 1)
    return x[start : start + 1]


@tb.jit
def _call(x: Any, y: Any) -> Any:
    return tnp.cos(x) * y


@tb.custom_jvp
def _own_jvp(x: Any) -> Any:
    """A function with a rule for forward mode, which is right."""
    return x * tnp.sin(x)


_own_jvp.defjvp(lambda xs, ts: (_own_jvp(xs[0]), ts[0] * (tnp.sin(xs[0]) + xs[0] * tnp.cos(xs[0]))))


@tb.custom_vjp
def _own_vjp(x: Any) -> Any:
    """A function with a rule for reverse mode, which is right."""
    return x * tnp.cos(x)


_own_vjp.defvjp(lambda x: (_own_vjp(x), x), lambda x, ct: (ct * (tnp.cos(x) - x * tnp.sin(x)),))


@dataclasses.dataclass(frozen=True)
class Op:
    """An operation: for the engine (``ours``), and in NumPy. Both take arrays, then an axis.

    ``modes``: how it can be differentiated: "f" forward, "r" in reverse.
    """

    arity: int
    ours: Callable[..., Any]
    numpy: Callable[..., Any]
    min_rank: int = 0
    modes: str = "fr"
    max_rank: int = 3


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
    "min": _same(1, lambda xp, x, axis: xp.min(x, axis=axis), 1),
    "prod": _same(1, lambda xp, x, axis: xp.prod(x, axis=axis), 1),
    "logsumexp": _same(1, lambda xp, x, axis: xp.log(xp.sum(xp.exp(x), axis=axis)), 1),
    "sort": _same(1, lambda xp, x, axis: xp.sort(x, axis=axis), 1),
    "index": _same(1, lambda _xp, x, _: x[np.array([0, -1, 0])], 1),
    "contract": Op(
        1,
        lambda x, axis: tnp.tensordot(x, tnp.sin(x), ((axis,), (axis,))),
        lambda x, axis: np.tensordot(x, np.sin(x), ((axis,), (axis,))),
        min_rank=1,
        max_rank=2,
    ),
    "set": Op(1, lambda x, _: _set(x), lambda x, _: _numpy_set(x), 1),
    "dynamic": Op(1, lambda x, _: _dynamic(x), lambda x, _: _numpy_dynamic(x), 1),
    "switch": Op(1, lambda x, _: _switch(x), lambda x, _: _numpy_switch(x)),
    "fori": Op(1, lambda x, _: _fori(x), lambda x, _: _numpy_fori(x)),
    "while": Op(1, lambda x, _: _while(x), lambda x, _: _numpy_while(x), modes="f"),
    "map": Op(
        1,
        lambda x, _: tb.lax.map(lambda a: a * tnp.sum(a), x),
        lambda x, _: np.stack([a * np.sum(a) for a in x]),
        min_rank=1,
    ),
    "associative_scan": Op(
        1,
        lambda x, axis: tb.lax.associative_scan(tnp.multiply, x, reverse=True, axis=axis),
        lambda x, axis: np.flip(np.cumprod(np.flip(x, axis), axis), axis),
        min_rank=1,
    ),
    "checkpoint": Op(
        1,
        lambda x, _: tb.checkpoint(lambda a: tnp.sin(tnp.sin(a) * 2.0))(x),
        lambda x, _: np.sin(np.sin(x) * 2.0),
    ),
    "custom_jvp": Op(1, lambda x, _: _own_jvp(x), lambda x, _: x * np.sin(x)),
    "custom_vjp": Op(1, lambda x, _: _own_vjp(x), lambda x, _: x * np.cos(x), modes="r"),
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
def programs(draw: st.DrawFn, max_args: int = 2, max_steps: int = 5, modes: str = "fr") -> Program:
    """A composition of elementwise operations, reductions, indexing, control flow, custom rules.

    ``modes``: how the program has to be differentiable.
    """
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
            if op.min_rank <= len(shape) <= op.max_rank
            and (name != "outer" or small)
            and set(modes) <= set(op.modes)
        ]
        name = draw(st.sampled_from(names or ["sin"]))
        if name in ("concat", "index") and int(np.prod(shape)) > MAX_SIZE:
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
