"""Graphs of torch.export hold programs: processes without the functions run them."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.integration.torch.test_hazards import run
from tracebridge._derived.saved import SavedProgram, save_program
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, MissingRuleError
from tracebridge.core.export.archive import pack, unpack
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.torch import Module, saving, wrap

pytestmark = pytest.mark.torch

TABLE = np.array([1.0, 2.0, 3.0], np.float32)


class Calls(torch.nn.Module):
    """A module that is one function of tensors."""

    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f

    def forward(self, *xs: torch.Tensor) -> Any:
        return self.f(*xs)


def times(factor: float) -> Any:
    """Functions of one name."""

    @wrap
    def scaled(x: Any) -> Any:
        return x * factor

    return scaled


@tb.custom_vjp
def ruled(x: Any) -> Any:
    return x * 2


ruled.defvjp(lambda x: (ruled(x), None), lambda res, g: (g * 7,))


@wrap
def several(x: Any, w: Any) -> Any:
    y = tnp.tanh(x @ w) * TABLE + tnp.cumsum(x, axis=0)[:, :1]
    return {"y": y, "rest": (tnp.argmax(x, axis=1), ruled(y).sum())}


@wrap
def loops(x: Any) -> Any:
    return tb.lax.scan(lambda c, a: (c * 0.5 + tnp.tanh(a), c), tnp.zeros(2, x.dtype), x)


ONE, TWO = times(2.0), times(3.0)
BATCH = torch.export.Dim("batch", min=0)


def exported(f: Any, *xs: torch.Tensor, sizes: Any = None, strict: bool = False) -> Any:
    shapes = None if sizes is None else (sizes,)
    return torch.export.export(Calls(f), xs, dynamic_shapes=shapes, strict=strict)


def calls_in(program: Any) -> list[Any]:
    return [n for n in program.graph.nodes if str(n.target).startswith("tracebridge.call")]


LOAD = """
import json, sys, torch
import tracebridge as tb
import tracebridge.torch
tb.config.update("enable_x64", True)

def tried(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def load(name):
    return torch.export.load(f"{sys.argv[1]}/{name}.pt2").module()

def slopes(module, *xs):
    xs = [x.clone().requires_grad_() for x in xs]
    leaves = torch.utils._pytree.tree_leaves(module(*xs))
    sum([y.sum() for y in leaves if y.requires_grad]).backward()
    return [y.tolist() for y in leaves], [x.grad.tolist() for x in xs]

def inputs(n):
    return torch.linspace(-1, 1, 2 * n).reshape(n, 2), torch.linspace(-1, 1, 6).reshape(2, 3)

several = load("several")
x = inputs(3)[0]
found = {f"several {n}": tried(lambda: slopes(several, *inputs(n))) for n in (3, 5, 1, 0)}
found["same"] = tried(lambda: slopes(load("same"), x))
found["loops"] = tried(lambda: slopes(load("loops"), x))
found["lambda"] = tried(lambda: slopes(load("lambda"), x))
unnamed = load("lambda")
found["map"] = tried(lambda: torch.func.vmap(torch.func.grad(lambda x: unnamed(x).sum()))(
    torch.stack([x, x + 1])).tolist())
found["compiled"] = tried(lambda: slopes(torch.compile(unnamed, backend="aot_eager"), x))
found["dtype"] = str(unnamed(x).dtype)
found["callback"] = tried(lambda: slopes(load("callback"), x))
print(json.dumps(found))
"""


def inputs(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linspace(-1, 1, 2 * n).reshape(n, 2), torch.linspace(-1, 1, 6).reshape(2, 3)


def slopes(f: Any, *xs: torch.Tensor) -> Any:
    """Results, and the gradients of their sum."""
    xs = tuple([x.clone().requires_grad_() for x in xs])
    leaves = tree_leaves(f(*xs))
    torch.stack([y.sum() for y in leaves if y.requires_grad]).sum().backward()
    return [y.tolist() for y in leaves], [x.grad.tolist() for x in xs if x.grad is not None]


def check(expected: Any, found: Any) -> None:
    assert not isinstance(found, str), found
    pairs = zip(tree_leaves(list(expected)), tree_leaves(found), strict=True)
    for one, other in pairs:
        assert other == pytest.approx(one, abs=1e-5)


def test_a_process_without_the_functions(tmp_path: Path, subprocess_environment: Any) -> None:
    """Values, gradients, maps, all sizes, two functions of one name, with other options."""
    x, w = inputs(3)
    unnamed = wrap(lambda x: tnp.sin(x) * tnp.exp(x))
    back = lambda x: tb.pure_callback(np.sin, tb.ShapeDtypeStruct(x.shape, x.dtype), x)
    programs = {
        "several": exported(several, x, w, sizes=({0: BATCH}, None)),
        "same": exported(lambda x: (ONE(x), TWO(x)), x),
        "loops": exported(loops, x, sizes=({0: torch.export.Dim("n")},)),
        "lambda": exported(unnamed, x, strict=True),
        "callback": exported(wrap(back), x),
    }
    for name, program in programs.items():
        torch.export.save(program, tmp_path / f"{name}.pt2")
    environment = {**subprocess_environment, "PYTHONWARNINGS": "ignore"}
    found = json.loads(run(LOAD, environment, str(tmp_path)))

    for n in (3, 5, 1, 0):
        check(slopes(several, *inputs(n)), found.pop(f"several {n}"))
    check(slopes(lambda x: (ONE(x), TWO(x)), x), found.pop("same"))
    check(slopes(loops, x), found.pop("loops"))
    check(slopes(unnamed, x), found.pop("lambda"))
    check(slopes(unnamed, x), found.pop("compiled"))
    check([slopes(unnamed, x)[1][0], slopes(unnamed, x + 1)[1][0]], found.pop("map"))
    assert found.pop("dtype") == "torch.float32"
    message = found.pop("callback")
    assert message.startswith("ProgramMismatchError: a torch graph of another process calls")
    assert not found


def traced(f: Any, *avals: Any) -> Jaxpr:
    return stage(f, [tb.typeof(a) for a in avals], DebugInfo("f"))


@pytest.fixture(scope="module")
def text() -> str:
    """A program with a gradient that keeps values."""
    return save_program(traced(lambda x: [tnp.sin(tnp.exp(x))], tnp.ones(3)), "f")


@pytest.fixture(scope="module")
def call(text: str) -> Any:
    """The operator on that program, by a name that no function has."""
    handle = f"gone:f@{text[20:30]} float32[3]|(('*',), ())"
    return lambda *xs: torch.ops.tracebridge.call_saved(list(xs), handle, text)[0]


def test_damaged_texts(text: str) -> None:
    """Whatever is missing or changed is seen before anything is run."""
    half = len(text) // 2
    other = "A" if text[half] != "A" else "B"
    damages = {
        text[:-5]: "it is no base64",
        text[: half - half % 4]: "damaged",
        text[:half] + other + text[half + 1 :]: "its digest is another one",
        text[:half] + "é" + text[half:]: "it is no base64",
        "": "it does not begin as programs do",
        "{}": "it does not begin as programs do",
        text.replace("program:1:", "program:2:", 1): "format 2, written by a later tracebridge",
    }
    for damaged, message in damages.items():
        with pytest.raises(ExportError, match=message):
            SavedProgram(damaged, "f")


def test_versions_and_parts(text: str) -> None:
    """A later StableHLO is refused, and so are parts that do not fit, and calls of C functions."""
    header, blocks = unpack(text, "f")
    later = pack({**header, "stablehlo": "99.0.0"}, blocks)
    with pytest.raises(ExportError, match=r"is of StableHLO 99\.0\.0, written by tracebridge"):
        SavedProgram(later, "f")
    less = {k: v for k, v in header.items() if k != "types"}
    for unfit in (pack(less, blocks), pack(header, blocks[:1])):
        with pytest.raises(ExportError, match="its parts do not fit"):
            SavedProgram(unfit, "f")


def test_calls_of_other_types(call: Any) -> None:
    """Types are those of the program: its code could not know others."""
    for xs in ([torch.ones(4)], [torch.ones(3, 1)], [torch.ones(3).double()], [torch.ones(3)] * 2):
        with pytest.raises(ShapeMismatchError, match=r"expected: \(f32\[3\]\), as it was exported"):
            call(*xs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.func itself
def test_what_is_saved(call: Any) -> None:
    """The first gradient; second ones and forward mode say what to do."""
    way_out = r"(?s)it was saved with grad_order=1.*way out: export it under `with tracebridge"
    x = torch.linspace(0, 1, 3).requires_grad_()
    (slope,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    torch.testing.assert_close(slope, torch.cos(torch.exp(x)) * torch.exp(x))

    with pytest.raises(MissingRuleError, match=way_out):
        torch.autograd.grad(slope.sum(), x)
    with pytest.raises(MissingRuleError, match=way_out):
        torch.func.jvp(call, (x.detach(),), (x.detach(),))


def without_function(program: Any, name: str = "gone") -> Any:
    """The one call of a graph, by a name that no function has."""
    (node,) = calls_in(program)
    _, handle, text = node.args
    return lambda *xs: torch.ops.tracebridge.call_saved(list(xs), f"{name}:{handle}", text)[0]


def curved(x: Any, w: Any) -> Any:
    """Complex inside, so that conjugates count."""
    return tnp.real(tnp.exp(1j * (x @ w)) * tnp.tanh(w[0] * 2)) * tnp.sin(x[:, :1])


def orders(f: Any, x: torch.Tensor, w: torch.Tensor) -> list[Any]:
    """What takes gradients of order 1, 2, 2, 2, 3, 3."""

    def chain(n: int) -> torch.Tensor:
        at = x.clone().requires_grad_()
        y = f(at, w)
        for _ in range(n):
            (y,) = torch.autograd.grad(y.square().sum(), at, create_graph=True)
        return y.detach()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return f(x, w).square().sum()

    grad, jacrev, jvp = torch.func.grad, torch.func.jacrev, torch.func.jvp
    return [
        lambda: chain(1),
        lambda: chain(2),
        lambda: jacrev(grad(loss))(x),
        lambda: jvp(lambda w: f(x, w), (w,), (w + 1,))[1],
        lambda: torch.func.hessian(loss)(x),
        lambda: chain(3),
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.func itself
def test_orders() -> None:
    """Derivatives up to the order that was asked for, and beyond it what to ask for."""
    x, w = torch.randn(2, 3).double(), torch.randn(3, 2).double()
    f = wrap(curved)
    expected = [call() for call in orders(f, x, w)]
    every = torch.export.Dim("n", min=0)
    for order, sizes, n in ((2, None, 4), (3, ({0: every}, None), 6), (0, None, 0)):
        with saving(grad_order=order):
            program = exported(f, x, w, sizes=sizes)
        saved = without_function(program, f"gone{order}")
        torch.testing.assert_close(saved(x, w), f(x, w))
        calls = orders(saved, x, w)
        for call, value in list(zip(calls, expected, strict=True))[:n]:
            torch.testing.assert_close(call(), value)
        for call in calls[n:][:2]:
            with pytest.raises(MissingRuleError, match=rf"saved with grad_order={order}[^0-9]"):
                call()


def test_orders_of_nothing() -> None:
    """Blocks end, numbers are orders, and the graph of no derivatives is the smallest."""
    f = wrap(lambda x: tnp.sin(x) * x)
    sizes = []
    for order in (0, 1, 2, 1, 0):
        with saving(grad_order=order):
            (node,) = calls_in(exported(f, torch.ones(3)))
        sizes.append(len(node.args[2]))
    (node,) = calls_in(exported(f, torch.ones(3)))

    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[1:2] * 2 == [sizes[3], len(node.args[2])]
    for wrong in (-1, True, 1.0, None):
        with (
            pytest.raises(ArgumentSpecError, match="saving: grad_order is"),
            saving(grad_order=wrong),
        ):
            pass


def test_sizes_of_gradients_and_checks() -> None:
    """Gradients know sizes that only inputs have; checks are those of one function."""
    # Indices trace at sizes of at least 1, and note so.
    rows = lambda x: x[np.array([0, -1])] * x[1:].sum()
    softmax = lambda x: tb.nn.softmax(x, axis=-1)
    x = torch.randn(4, 3)
    picked, shares = [
        without_function(exported(wrap(f), x, sizes=({0: torch.export.Dim("n")},)))
        for f in (rows, softmax)
    ]
    for n in (4, 7):
        x = torch.randn(n, 3)
        check(slopes(lambda x: x[[0, -1]] * x[1:].sum(), x), slopes(picked, x))
    assert (0, 3) == shares(torch.ones(0, 3)).shape
    with pytest.raises(ShapeMismatchError, match="the saved program is called with"):
        picked(torch.ones(0, 3))


def test_a_gradient_in_the_graph() -> None:
    """Backward passes that a graph holds are saved with it, too."""

    def slope(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(ONE(x).sin().sum(), x)[0]

    found = calls_in(exported(slope, torch.ones(3)))

    assert len(found) >= 2
    assert [3] * len(found) == [len(node.args) for node in found]


def reloaded(program: Any) -> Any:
    """What ``torch.export.load`` gives."""
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file).module()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.func itself
@pytest.mark.parametrize("strict", [False, True])
def test_transforms_in_the_graph(strict: bool) -> None:
    """Maps and tangents are exported; of gradients torch would keep the example."""
    x = torch.randn(3)
    here = lambda x: ONE(x).sin().sum()
    maps = lambda x: torch.func.vmap(here)(torch.stack([x, x + 1]))
    tangents = lambda x: torch.func.jvp(here, (x,), (x,))[1]
    for f in (maps, tangents):
        torch.testing.assert_close(exported(f, x, strict=strict).module()(x + 1), f(x + 1))
    slopes = [torch.func.grad(here), torch.func.jacrev(here), torch.func.hessian(here)]
    for f in slopes[: 1 if strict else 3]:
        with pytest.raises(
            Exception, match=r"(?s)torch\.func\.grad, .*way out:.*grad\(f\)"
        ) as found:
            exported(f, x, strict=strict)
        assert strict or found.type is ExchangeError
    # The ways out.
    inside = wrap(tb.grad(lambda x: tnp.sum(tnp.sin(x * 2.0))))
    torch.testing.assert_close(exported(inside, x, strict=strict).module()(x + 1), slopes[0](x + 1))
    if not strict:

        def outside(x: torch.Tensor) -> torch.Tensor:
            x = x.detach().requires_grad_()
            return torch.autograd.grad(here(x), x)[0]

        torch.testing.assert_close(exported(outside, x).module()(x + 1), slopes[0](x + 1))


def test_states_that_are_written() -> None:
    """A graph that writes its state is saved, and goes on where it was."""

    def decays(p: Any, s: Any, x: Any) -> Any:
        return x * p["w"] + s["n"], {"n": s["n"] * 0.5 + x.sum()}

    module = Module(decays, {"w": torch.ones(3)}, state={"n": torch.ones(())})
    for strict in (False, True):
        plain = deepcopy(module)
        loaded = reloaded(torch.export.export(deepcopy(module), (torch.ones(2, 3),), strict=strict))
        for _ in range(3):
            x = torch.randn(2, 3)
            torch.testing.assert_close(loaded(x), plain(x))
        assert not dict(loaded.named_buffers())["n"].requires_grad


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.bool]
)
def test_dtypes_and_layouts(dtype: torch.dtype) -> None:
    """All dtypes, sizes 0 and 1, inputs that are not dense, one value as two results."""
    f = wrap(lambda x: (x.sum(0), x, x, x.reshape(-1)))
    values = lambda *shape: torch.randn(shape).to(dtype)
    loaded = reloaded(exported(f, values(4, 3), sizes=({0: BATCH},)))
    for x in (values(1, 3), values(0, 3), values(3, 5).T, values(2, 6)[:, ::2]):
        found, expected = loaded(x), f(x)
        torch.testing.assert_close(found, expected)
        found[1].zero_()
        torch.testing.assert_close(found[2], x.contiguous())


def test_large_constants() -> None:
    """A graph is no place for them: it names the function."""
    large = np.random.default_rng(0).random(1 << 21, dtype=np.float32)
    with pytest.warns(UserWarning, match="has more than 4 MB of constants"):
        program = exported(wrap(lambda x: x * large), torch.ones(1))

    assert [2] == [len(node.args) for node in calls_in(program)]


def test_gradients_of_some_results() -> None:
    """A saved backward program of all results serves backward passes of some."""
    text = save_program(
        traced(lambda x, y: [tnp.sin(x) * y, x * tnp.exp(y)], *[tnp.ones(3)] * 2), "f"
    )
    handle = f"gone:g@{text[20:30]} float32[3] float32[3]|(('*', '*'), ())"
    xs = [torch.linspace(0, 1, 3).requires_grad_(), torch.linspace(1, 2, 3).requires_grad_()]

    def native(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.sin(x) * y, x * torch.exp(y)

    for chosen in (slice(0, 1), slice(1, 2), slice(0, 2)):
        found, expected = [
            torch.autograd.grad(sum([out.sum() for out in outs[chosen]]), xs)
            for outs in (torch.ops.tracebridge.call_saved(xs, handle, text), native(*xs))
        ]
        torch.testing.assert_close(found, expected)
