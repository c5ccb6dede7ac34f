"""Functions whose branches depend on sizes, in graphs for sizes that are not known."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.integration.torch.test_graphs import compiled
from tests.integration.torch.test_saved_programs import calls_in, exported
from tracebridge._derived.saved import SavedProgram
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.torch import Module, to_graph_module, wrap

pytestmark = pytest.mark.torch

QUESTIONS = {
    "even": lambda x: x.shape[0] % 2 == 0,
    "odd": lambda x: x.shape[0] % 2 != 0,
    "shape": lambda x: x.shape == (4,),
    "in": lambda x: x.shape[0] in (1, 2, 4),
    "dict": lambda x: {2: True, 4: True}.get(x.shape[0], False),
    "inner function": lambda x: tb.eval_shape(lambda y: y if y.size == 4 else y[:1], x) == x,
}


def branches(question: Any) -> Any:
    """Other values, sizes and structures for other sizes."""
    return wrap(lambda x: {"yes": x * 2} if question(x) else {"no": x[1:] * 3})


def check(f: Any, g: Any, sizes: Any = (2, 3, 4, 5, 4)) -> None:
    for n in sizes:
        x = torch.arange(1.0, n + 1)
        torch.testing.assert_close(f(x), g(x))


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_about_sizes(name):
    """A graph for each size where a line compares sizes: no branch holds for all of them."""
    f = branches(QUESTIONS[name])

    check(f, compiled(lambda x: f(x), backend="eager", dynamic=None))


def graphs_of(f: Any, sizes: Any) -> int:
    """How many graphs these sizes take."""
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph

    g = compiled(lambda x: f(x) + 1, backend, dynamic=True)
    for n in sizes:
        torch.testing.assert_close(f(torch.ones(n)) + 1, g(torch.ones(n)))
    return len(graphs)


def test_questions_that_bounds_decide():
    """Sizes of a graph are at least 2: none is asked for again; what the engine asks is no line."""
    one = wrap(lambda x: x * 2 if x.shape[0] == 1 or x.shape[0] < 2 else x * 3)
    engine = wrap(lambda x: tnp.broadcast_to(tnp.stack([x, x]), (2, x.shape[0])) * x)

    assert graphs_of(one, (2, 3, 4)) == 1
    assert graphs_of(engine, (2, 3, 4)) == 1
    assert graphs_of(wrap(lambda x: x if x.shape[0] == 3 else x * 2), (2, 3, 4)) == 3


def test_a_size_that_is_known_elsewhere():
    """A size that varies for torch, and must be the known one of another tensor, is that one."""
    product = wrap(lambda x, w: tnp.tanh(x @ w))
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph

    g = compiled(lambda x, w: product(x, w) + 1, backend, dynamic=None)
    w = torch.randn(3, 2)
    torch._dynamo.mark_dynamic(w, 1)
    torch._dynamo.maybe_mark_dynamic(w, 0)
    for n in (5, 6, 7, 8):
        x = torch.randn(n, 3)
        torch.testing.assert_close(torch.tanh(x @ w) + 1, g(x, w))

    assert len(graphs) == 2  # for 5 rows, and for any number of them


def test_two_sizes_that_are_equal():
    """The graph is for equal sizes then, whatever they are."""
    f = wrap(lambda x, y: {"same": x + y} if x.shape == y.shape else {"outer": x[:, None] * y})
    g = compiled(lambda x, y: f(x, y), backend="eager", dynamic=True)

    for n, m in ((3, 3), (4, 4), (3, 2), (5, 4), (2, 2)):
        torch.testing.assert_close(f(torch.ones(n), torch.ones(m)), g(torch.ones(n), torch.ones(m)))


@tb.custom_vjp
def ruled(x: Any) -> Any:
    return x * 2


ruled.defvjp(
    lambda x: (x * 2, None), lambda res, g: (g * 2 if g.shape[0] % 2 == 0 else g * 5,)
)  # fmt: skip


@pytest.mark.parametrize("f", [branches(QUESTIONS["even"]), wrap(lambda x: {"y": ruled(x)})])
def test_gradients(f):
    """Also where only a rule of derivatives asks."""
    g = compiled(lambda x: f(x), backend="aot_eager", dynamic=True)

    for n in (2, 3, 4):
        xs = [torch.arange(1.0, n + 1).requires_grad_() for _ in range(2)]
        for x, fun in zip(xs, (f, g), strict=True):
            (y,) = fun(x).values()
            y.pow(2).sum().backward()
        torch.testing.assert_close(xs[0].grad, xs[1].grad)


def test_modules():
    """Calls of a Module are calls of its function."""
    module = Module(
        lambda p, x: p["w"] * (x if x.shape[0] % 2 == 0 else x[1:]), {"w": tnp.ones(())}
    )

    check(module, compiled(lambda x: module(x), backend="eager", dynamic=True))


def test_exports():
    """What cannot be for all sizes is refused; what is for sizes of at least 2 checks that."""
    sizes = ({0: torch.export.Dim("n")},)

    with pytest.raises(Exception, match="specialized it to be a constant"):
        exported(wrap(lambda x: x if x.shape[0] % 2 == 0 else x * 2), torch.ones(4), sizes=sizes)
    (call,) = calls_in(
        exported(wrap(lambda x: x if x.shape[0] == 1 else x * 2), torch.ones(4), sizes=sizes)
    )
    program = SavedProgram(call.args[2], "f")
    assert (3,) == program.program([ShapedArray((3,), "float32")]).out_avals[0].shape
    with pytest.raises(ShapeMismatchError, match="sizes of at least 2"):
        program.program([ShapedArray((1,), "float32")])


def test_functions_for_all_sizes():
    """Where the user names sizes there is one program: a branch on them is an error."""
    even = lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3
    calls = [
        lambda: wrap(even, dynamic_shapes=("n",))(torch.ones(4)),
        lambda: to_graph_module(even, (torch.ones(4),), dynamic_shapes=("n",)),
        lambda: tb.jit(even, abstracted_axes=({0: "n"},))(tnp.ones(4)),
        lambda: tb.mask(even, ["n"], "n")([tnp.ones(4)], {"n": 3}),
    ]

    for call in calls:
        with pytest.raises(
            InconclusiveDimensionError, match=r"(?s)mod\(n, 2\) == 0.*the axis no name"
        ):
            call()
