"""64 bits: data that enters with 64 bits is computed with 64-bit constants and leaves exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge.numpy.table import Case
from tests.bridge.numpy.wide import CASES, Calls, chosen, wide_arrays
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.torch import wrap

pytestmark = [
    pytest.mark.torch,
    # torch itself uses TorchScript, which it deprecates, in forward mode and in its compiler.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PARTS = 6
BIG = 2**40


def as_tensors(arrays: list[np.ndarray]) -> list[torch.Tensor]:
    """Tensors of copies of arrays."""
    return [torch.from_numpy(np.array(x)) for x in arrays]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_function_is_exact_at_64_bits(part: int) -> None:
    """Each public function of tracebridge.numpy computes as NumPy does in 64 bits."""
    cases = chosen("fic", part, PARTS)
    calls = Calls(cases, [wide_arrays(c) for c in cases])

    results = wrap(calls)(*as_tensors(calls.flat))

    assert [] == calls.wrong([[r.numpy() for r in row] for row in results])


@pytest.mark.parametrize("part", range(2))
def test_no_function_makes_64_bit_floats_beside_ids(part: int) -> None:
    """float32 data beside int64 ids is computed in float32."""
    cases = chosen("f", part, 2)
    calls = Calls(cases, [c.arrays() for c in cases])
    ids = torch.arange(3)
    found: list[str] = []

    def traced(ids: Any, *xs: Any) -> Any:
        for case, row in zip(cases, calls(*xs), strict=True):
            found.extend([str(case) for r in row if r.dtype in (np.float64, np.complex128)])
        return ids

    wrap(traced)(ids, *as_tensors(calls.flat))

    assert [] == found


WIDE_FLOATS = {
    "np.array": (lambda x: x * np.array([0.1, 0.2, 0.3]), lambda x: x * np.array([0.1, 0.2, 0.3])),
    "np.float64": (lambda x: x + np.float64(0.1), lambda x: x + np.float64(0.1)),
    "asarray": (lambda x: x + tnp.asarray(0.1), lambda x: x + 0.1),
    "asarray of a list": (lambda x: tnp.asarray([0.1, 0.2, 0.3]) + x,
                          lambda x: np.array([0.1, 0.2, 0.3]) + x),
    "full": (lambda x: x * tnp.full(3, 0.1), lambda x: x * 0.1),
    "linspace": (lambda x: x * tnp.linspace(0, 0.7, 3), lambda x: x * np.linspace(0, 0.7, 3)),
    "where": (lambda x: tnp.where(x > 1, 0.1, 0.2), lambda x: np.where(x > 1, 0.1, 0.2)),
    "sqrt(2)": (lambda x: x * tnp.sqrt(2), lambda x: x * np.sqrt(2)),
    "dtype=float": (lambda x: x * tnp.full(3, 0.1, dtype=float), lambda x: x * 0.1),
    "float_": (lambda x: x * tnp.full(3, 0.1, dtype=tnp.float_), lambda x: x * 0.1),
    "astype(float)": (lambda x: (x * 10).astype(int).astype(float) * 0.1,
                      lambda x: (x * 10).astype(int).astype(float) * 0.1),
    "a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: c * 0.1 + i, tnp.zeros(())) + x,
        lambda x: x + ((0.1 + 0) * 0 + (1 * 0.1 + 2)),
    ),
    "a scan": (
        lambda x: lax.scan(lambda c, y: (c + 0.1, y * c), 0.1, x)[1],
        lambda x: x * (0.1 + 0.1 * np.arange(3)),
    ),
    "vmap": (
        lambda x: tb.vmap(lambda y: y * tnp.sqrt(2) + tnp.asarray(0.1))(x),
        lambda x: x * np.sqrt(2) + 0.1,
    ),
    "jit": (lambda x: tb.jit(lambda y: y * tnp.pi + tnp.sin(1.0))(x),
            lambda x: x * np.pi + np.sin(1.0)),
    "a callback": (
        lambda x: tb.pure_callback(lambda y: np.asarray(y) * 0.1,
                                   tb.ShapeDtypeStruct((3,), "float64"), x),
        lambda x: x * 0.1,
    ),
}  # fmt: skip
X = np.array([0.7, 1.3, 2.1])


@pytest.mark.parametrize("name", WIDE_FLOATS)
def test_constants_of_float64_programs(name: str) -> None:
    """Whatever makes a constant makes one of 64 bits, in values and gradients."""
    ours, numpys = WIDE_FLOATS[name]
    x = torch.tensor(X, requires_grad=name != "a callback")

    result = wrap(ours)(x)

    assert torch.float64 == result.dtype
    np.testing.assert_allclose(result.detach(), numpys(X), rtol=1e-15, atol=0)


WIDE_INTEGERS = {
    "np.array": lambda i: i + np.array(BIG),
    "np.int64": lambda i: i + np.int64(BIG),
    "asarray": lambda i: i + tnp.asarray(BIG),
    "full": lambda i: i + tnp.full(3, BIG),
    "where": lambda i: tnp.where(i < 0, 0, BIG) + i,
    "dtype=int": lambda i: i + tnp.full(3, BIG, dtype=int),
    "arange": lambda i: tnp.arange(BIG, BIG + 3),
    "cumsum": lambda i: tnp.cumsum(tnp.ones(3, int) * (i > 5)) + tnp.asarray(BIG) + i,
    "a loop": lambda i: lax.fori_loop(0, 1, lambda k, c: c + BIG, i),
    "a number": lambda i: lax.while_loop(lambda n: n < BIG, lambda n: n * 2, 1) + i,
}


@pytest.mark.parametrize("beside", [(), (torch.ones(2),)], ids=["alone", "beside float32"])
@pytest.mark.parametrize("name", WIDE_INTEGERS)
def test_constants_of_int64_programs(name: str, beside: tuple[Any, ...]) -> None:
    """Integers beyond 32 bits stay what they are, also where floats have 32 bits."""
    result = wrap(lambda i, *_: WIDE_INTEGERS[name](i))(torch.arange(3), *beside)

    assert torch.int64 == result.dtype
    assert [BIG, BIG + 1, BIG + 2] == result.tolist()


def test_floats_follow_floats_and_integers_follow_integers() -> None:
    """The default float is that of the widest float; without floats integers decide."""

    def f(*xs: Any) -> Any:
        return tnp.zeros(1), tnp.arange(1), tnp.asarray(1j), tnp.sqrt(2), tnp.mean(xs[0] * 1.0)

    def dtypes(*kinds: torch.dtype) -> list[str]:
        given = [torch.ones(2, dtype=k) for k in kinds]
        return [str(r.dtype).removeprefix("torch.") for r in wrap(f)(*given)]

    narrow = ["float32", "int32", "complex64", "float32", "float32"]
    wide = ["float64", "int64", "complex128", "float64", "float64"]
    mixed = ["float32", "int64", "complex64", "float32", "float32"]
    half = ["float32", "int64", "complex64", "float32", "bfloat16"]
    assert narrow == dtypes(torch.float32, torch.int32)
    assert wide == dtypes(torch.float64)
    assert wide == dtypes(torch.int64)
    assert [*wide[:4], "complex128"] == dtypes(torch.complex128)
    assert mixed == dtypes(torch.float32, torch.int64)
    assert mixed == dtypes(torch.int64, torch.float32)
    assert half == dtypes(torch.bfloat16, torch.int64)
    assert ["float64"] == dtypes(torch.float32, torch.float64)[:1]
    with enable_x64():
        assert [*wide[:4], "float32"] == dtypes(torch.float32)


def test_numbers_and_numpy_arguments_are_as_wide_as_the_tensors() -> None:
    """0.1 and NumPy's float64 arrays lose nothing beside 64 bits, and add none to 32."""
    f = wrap(lambda x, n, a: (x * n * a, tnp.asarray(n) * tnp.sum(a)))
    a = np.array([0.1])

    wide = f(torch.ones(1, dtype=torch.float64), 0.1, a)
    narrow = f(torch.ones(1), 0.1, a)
    alone = f(torch.ones(1, dtype=torch.int64), 0.1, a)

    assert [0.1 * 0.1] * 2 == [r.item() for r in wide]
    assert [0.1 * 0.1] * 2 == [r.item() for r in alone]
    assert [torch.float32] * 2 == [r.dtype for r in narrow]


def test_programs_that_are_derived_are_wide() -> None:
    """Rules of users that make constants do so in 64 bits, at each order and in each mode."""

    @tb.custom_vjp
    def f(x: Any) -> Any:
        return x * tnp.sqrt(2)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * tnp.sqrt(3) + x * tnp.asarray(0.1),))

    @tb.custom_jvp
    def g(x: Any) -> Any:
        return x * tnp.sqrt(2)

    g.defjvp(lambda p, t: (g(p[0]), t[0] * tnp.sqrt(3) + p[0] * tnp.asarray(0.1) * t[0]))
    x = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    first = np.sqrt(3) + 0.7 * 0.1

    for fun in (wrap(f), wrap(g)):
        (one,) = torch.autograd.grad(fun(x).sum(), x, create_graph=True)
        (two,) = torch.autograd.grad(one.sum(), x)
        assert abs(one.item() - first) < 1e-15
        assert abs(two.item() - 0.1) < 1e-15
    by_func = torch.func.vmap(torch.func.grad(lambda x: wrap(f)(x)))(x.detach())
    _, forward = torch.func.jvp(wrap(g), (x.detach(),), (torch.ones_like(x),))
    assert abs(by_func.item() - first) < 1e-15
    assert abs(forward.item() - first) < 1e-15


def test_graphs_are_wide() -> None:
    """torch.compile and torch.export keep constants of 64 bits."""
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    exported = torch.export.export(_Scaled(), (x,)).module()
    torch._dynamo.reset()
    compiled = torch.compile(_scaled, backend="aot_eager", fullgraph=True)

    for fun in (exported, compiled):
        result = fun(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        assert [np.sqrt(2) * 0.1] * 2 == result.tolist()
        assert [np.sqrt(2) * 0.1] * 2 == gradient.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64], ids=str)
def test_numpy_arguments_in_graphs(dtype: torch.dtype) -> None:
    """A NumPy array enters a compiled graph as it enters an eager call."""
    f = wrap(lambda x, a, n, u: (x * a, a, n, x * u))
    host = (np.array([0.1]), np.array([3]), np.array([3], np.uint64))
    arguments = (torch.ones(1, dtype=dtype), *host)
    torch._dynamo.reset()

    compiled = torch.compile(f, backend="eager", fullgraph=True)(*arguments)

    assert [(r.dtype, r.tolist()) for r in f(*arguments)] == [
        (r.dtype, r.tolist()) for r in compiled
    ]


_scaled = wrap(lambda x: x * (tnp.sqrt(2) * np.float64(0.1)))


class _Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _scaled(x)


GRADIENTS = list({c.name: c for c in CASES if c.derivative and c.letter == "f"}.values())


@pytest.mark.parametrize("start", range(3))
def test_gradients_are_exact_at_64_bits(start: int) -> None:
    """Derivative rules round no constant to 32 bits."""
    cases = GRADIENTS[start::9]
    calls = Calls(cases, [wide_arrays(c) for c in cases])
    xs = [t.requires_grad_(t.is_floating_point()) for t in as_tensors(calls.flat)]
    random = np.random.default_rng(0)

    results = wrap(calls)(*xs)
    weights = [[random.uniform(0.5, 1, r.shape) for r in row] for row in results]
    torch.autograd.backward(
        [r for row in results for r in row if r.requires_grad],
        [torch.from_numpy(w) for r, w in _floats(results, weights)],
    )

    grads = iter([x.grad for x in xs])
    found: list[str] = []
    for case, row, outs, ws in zip(cases, calls.arrays, results, weights, strict=True):
        way = [random.uniform(0.5, 1, x.shape) for x in row]
        expected = derivative(case, row, way, [w for _, w in _floats([outs], [ws])])
        actual = sum(
            float((g.numpy() * v).sum()) for v, g in zip(way, grads, strict=False) if g is not None
        )
        if abs(actual - expected) > 1e-9 * (1 + abs(expected)):
            found.append(f"{case}: {actual}, differences give {expected}")
    assert [] == found


def _floats(results: Any, weights: Any) -> list[tuple[Any, Any]]:
    """The results that have gradients, with their weights."""
    pairs = zip(results, weights, strict=True)
    return [(r, w) for rs, ws in pairs for r, w in zip(rs, ws, strict=True) if r.requires_grad]


def derivative(case: Case, xs: list[np.ndarray], way: list[np.ndarray], ws: list[Any]) -> float:
    """The derivative of NumPy's weighted results along a way: differences of eighth order."""

    def value(step: float) -> float:
        moved = [x + step * v if x.dtype.kind == "f" else x for x, v in zip(xs, way, strict=True)]
        results = [r for r in case.numpy(moved) if r.dtype.kind == "f"]
        return sum([float((r * w).sum()) for r, w in zip(results, ws, strict=True)])

    h = 1e-3
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    return sum([w * (value(k * h) - value(-k * h)) for k, w in weights.items()]) / h
