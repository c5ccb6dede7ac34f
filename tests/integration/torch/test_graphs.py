"""torch.compile, torch.export and torch.fx over a wrapped function."""

from __future__ import annotations

import io

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import tracebridge.numpy as tnp
from tests.integration.torch.layer import OURS, B, W, X, check, inputs, native, squares
from tracebridge.torch import wrap

pytestmark = [
    pytest.mark.torch,
    # torch itself still uses what it deprecates: TorchScript in its forward-mode formulas, and
    # more inside its compiler.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
func = torch.func


def compiled(fn, backend="aot_eager", **options):
    torch._dynamo.reset()
    return torch.compile(fn, fullgraph=True, backend=backend, **options)


COMPILED = {
    "forward": lambda f, c: c(lambda *a: f(*a) * 2)(X, W, B),
    "gradient": lambda f, c: torch.autograd.grad(c(squares(f))(*(t := inputs(grad=True))), t),
    "func.grad": lambda f, c: c(lambda *a: func.grad(squares(f), argnums=(0, 1, 2))(*a))(X, W, B),
    "jacrev": lambda f, c: c(lambda *a: func.jacrev(f)(*a))(X, W, B),
    "jacfwd": lambda f, c: c(lambda *a: func.jacfwd(f)(*a))(X, W, B),
    "grad of grad": lambda f, c: c(
        lambda x, w, b: func.grad(lambda x: func.grad(squares(f))(x, w, b).pow(2).sum())(x)
    )(X, W, B),
    "hessian": lambda f, c: c(lambda *a: func.hessian(squares(f))(*a))(X, W, B),
    "vmap": lambda f, c: c(lambda *a: func.vmap(f, (0, None, None))(*a))(X, W, B),
    "jvp": lambda f, c: c(lambda *a: func.jvp(f, a, a))(X, W, B),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compile(name):
    """torch.compile takes the whole call into one graph."""
    check(lambda f: COMPILED[name](f, compiled))


def test_compile_dynamic():
    """With dynamic=True one graph serves all sizes; our programs are made anew for each."""
    check(lambda f: [compiled(lambda *a: f(*a) * 2, dynamic=True)(X[:n], W, B) for n in (4, 3, 2)])
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph

    f = compiled(lambda x: OURS(x, W, B) + 1, backend, dynamic=True)
    for n in (2, 3, 4):
        torch.testing.assert_close(f(X[:n]), native(X[:n], W, B) + 1)
    assert len(graphs) == 1


def test_compile_dynamic_gradients():
    """Backward passes of graphs for all sizes."""

    def use(f):
        g = compiled(lambda *a: squares(f)(*a), dynamic=True)
        results = []
        for n in (4, 3, 2):
            t = [X[:n].clone().requires_grad_(), W.clone().requires_grad_(), B]
            results.append(torch.autograd.grad(g(*t), t[:2]))
        return results

    check(use)


def test_compile_dynamic_sizes_that_decide():
    """A function that needs to know a size gets a graph for that size."""
    f = wrap(lambda x: x[::2] if x.shape[0] > 3 else x * 2)
    g = compiled(lambda x: f(x) + 1, dynamic=True)

    for n in (2, 3, 4, 5):
        x = torch.arange(float(n))
        assert f(x).add(1).tolist() == g(x).tolist()


# torch asks saved tensors for .grad, and warns of that itself.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("inner", ["eager", "compiled"])
def test_compiled_autograd(inner):
    """A backward pass that torch.compile traces as a whole, in one graph."""

    def use(f):
        scaled = wrap(lambda x, k: x * k) if f is OURS else (lambda x, k: x * k)
        t = inputs(grad=True)
        forward = torch.compile(f, backend="aot_eager") if inner == "compiled" else f
        compiler = torch.compile(backend="aot_eager", fullgraph=True)
        with torch._dynamo.compiled_autograd._enable(compiler):
            scaled(forward(*t), 3.0).sum().backward()
        return [x.grad for x in t]

    torch._dynamo.reset()
    check(use)


def test_compile_keeps_residuals():
    """A compiled backward pass uses the residuals, not a second forward pass."""
    f = wrap(lambda x, w: tnp.tanh(x @ w))
    x = torch.randn(64, 64, requires_grad=True)
    w = torch.randn(64, 64, requires_grad=True)

    compiled(lambda x, w: f(x, w) * 1)(x, w).sum().backward()
    expected = torch.autograd.grad(torch.tanh(x @ w).sum(), (x, w))

    torch.testing.assert_close((x.grad, w.grad), expected)
    (family,) = f.families.values()
    assert {"fwd(11)", "bwd(11|1)"} <= set(family.children)


def test_compile_trees_numbers_and_statics():
    """Containers, numbers that change, and static arguments inside a graph."""
    f = wrap(
        lambda d, scale, mode: {"y": d["a"] * scale + (d["b"][0] if mode == "add" else 0)},
        static_argnames="mode",
    )

    g = compiled(lambda x, s: f({"b": [x], "a": x * 2}, s, mode="add")["y"])

    x = torch.ones(3)
    assert [7.0] * 3 == g(x, 3.0).tolist()
    assert [9.0] * 3 == g(x, 4.0).tolist()
    assert [11.0] * 3 == g(x, 5.0).tolist()


def test_number_of_results_that_depends_on_a_size():
    """Inputs of one rank, but results of several structures."""
    f = wrap(lambda x: [x[i] for i in range(x.shape[0])])

    for n in (2, 3, 2):
        x = torch.arange(float(n))[:, None].expand(n, 2)
        assert n == len(func.vmap(f, 1)(x))
        assert n == len(compiled(lambda x: f(x))(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # inductor's own warnings are not ours
def test_compile_inductor():
    """The default backend, forward and backward, with work of its own around the call."""
    pytest.importorskip("torch._inductor")
    if torch._inductor.cpp_builder.get_cpp_compiler() is None:
        pytest.skip("inductor needs a C++ compiler")

    def use(f):
        t = inputs(grad=True)
        out = compiled(lambda *a: (f(*a).sin() * 2).sum(), backend="inductor")(*t)
        return out, torch.autograd.grad(out, t)

    check(use)


class Calls(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x, w, b):
        return self.f(x, w, b) * 2


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export saves its own deprecated specs
@pytest.mark.parametrize("strict", [True, False])
def test_export(strict):
    """torch.export, decompositions, and a round trip through a file."""

    def use(f):
        program = torch.export.export(Calls(f), (X, W, B), strict=strict)
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(file)
        return [p.module()(X, W, B) for p in (program, loaded, program.run_decompositions())]

    check(use)


DYNAMIC = {
    "results of the same size": lambda x, y: tnp.tanh(x) + y,
    "expressions in sizes": lambda x, y: tnp.concatenate([x, y, x[1:]]).reshape(-1),
    "reductions": lambda x, y: (tnp.sum(x * y, axis=0), tnp.max(x, axis=1)),
    "a range": lambda x, y: tnp.arange(x.shape[0]) * 2,
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # as above
@pytest.mark.parametrize("name", DYNAMIC)
def test_export_dynamic(name):
    """torch.export with a dynamic batch: the exported program takes every size."""
    f = wrap(DYNAMIC[name])

    class Model(torch.nn.Module):
        def forward(self, x, y):
            return f(x, y)

    batch = torch.export.Dim("batch")
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    program = torch.export.export(
        Model(), (x, y), dynamic_shapes={"x": {0: batch}, "y": {0: batch}}
    )

    for n in (4, 7, 2):
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        torch.testing.assert_close(program.module()(x, y), f(x, y))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(mode):
    """Tracing with make_fx records one operator, also of a gradient."""
    check(lambda f: make_fx(f, tracing_mode=mode)(X, W, B)(X, W, B))
    check(lambda f: make_fx(func.grad(squares(f)), tracing_mode=mode)(X, W, B)(X, W, B))
    graph = make_fx(OURS, tracing_mode=mode)(X, W, B).graph
    targets = [n.target for n in graph.nodes if n.op == "call_function"]
    assert targets.count(torch.ops.tracebridge.call.default) == 1


def test_symbolic_trace_of_fx():
    """A graph that is recorded without tensors holds the call."""

    def use(f):
        return torch.fx.symbolic_trace(lambda x, w, b: torch.relu(f(x, w, b=b)))(X, W, B)

    check(use)


@pytest.mark.parametrize("name", ["any size", "some"])
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_sizes_that_depend_on_data_may_be_0(name: str) -> None:
    """A trace serves them too; one that needs a row makes the graph check that there is one."""
    some = lambda x: tnp.concatenate([x, x]) if x.shape[0] > 0 else tnp.zeros(5)
    fun = wrap({"any size": lambda x: tnp.concatenate([x, x * 2]), "some": some}[name])
    compiled = torch.compile(lambda x, m: fun(x[m]), fullgraph=True, dynamic=True, backend="eager")
    x = torch.arange(4.0)
    for mask in (torch.tensor([True] * 4), torch.tensor([True, False, False, True])):
        assert torch.equal(fun(x[mask]), compiled(x, mask))

    nothing = torch.zeros(4, dtype=torch.bool)
    if name == "any size":
        assert (0,) == compiled(x, nothing).shape
    else:
        with pytest.raises(RuntimeError, match=">= 1"):
            compiled(x, nothing)
