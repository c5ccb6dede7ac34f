"""Everything in torch that transforms functions, over a wrapped one: equal to native torch.

One function of three arguments, in float64, against the same function written in torch.
"""

from __future__ import annotations

import io

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import CustomRuleError
from tracebridge.torch import wrap

pytestmark = [
    pytest.mark.torch,
    # torch itself still uses what it deprecates: TorchScript in its forward-mode formulas, and
    # more inside its compiler.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
func = torch.func
OURS = wrap(lambda x, w, b: tnp.tanh(x @ w) + b)


def native(x, w, b):
    return torch.tanh(x @ w) + b


def inputs(*, grad=False):
    g = torch.Generator().manual_seed(0)
    shapes = ((4, 3), (3, 5), (5,))
    made = [torch.randn(s, dtype=torch.float64, generator=g) for s in shapes]
    return [t.requires_grad_(grad) for t in made]


X, W, B = inputs()


def squares(f):
    return lambda *a: (f(*a) ** 2).sum()


def check(use):
    """``use(f)`` gives the same tensors for our function and for torch's."""
    expected, actual = tree_leaves(use(native)), tree_leaves(use(OURS))

    assert len(expected) == len(actual) > 0
    for e, a in zip(expected, actual, strict=True):
        torch.testing.assert_close(a, e)


# autograd ----------------------------------------------------------------------------------------


def test_forward():
    """Values."""
    check(lambda f: f(*inputs()))


def test_no_graph_without_gradients():
    """Neither under no_grad nor for plain inputs is a graph made."""
    x, w, b = inputs(grad=True)

    with torch.no_grad():
        assert OURS(x, w, b).grad_fn is None
    assert OURS(x.detach(), w.detach(), b.detach()).grad_fn is None
    assert OURS(x, w.detach(), b.detach()).grad_fn is not None


def test_gradient():
    """First order, with respect to all inputs and to some."""
    check(lambda f: torch.autograd.grad(squares(f)(*(t := inputs(grad=True))), t))
    for chosen in range(3):

        def use(f, chosen=chosen):
            t = inputs()
            t[chosen].requires_grad_()
            return torch.autograd.grad(squares(f)(*t), t[chosen])

        check(use)


def test_gradient_orders_two_and_three():
    """create_graph to any depth."""

    def use(f, depth):
        t = inputs(grad=True)
        value = squares(f)(*t)
        for _ in range(depth):
            grads = torch.autograd.grad(value, t, create_graph=True)
            value = sum((g**2).sum() for g in grads)
        return torch.autograd.grad(value, t)

    check(lambda f: use(f, 1))
    check(lambda f: use(f, 2))


def test_gradcheck_and_gradgradcheck():
    """Against finite differences, batched gradients and forward mode included."""
    t = inputs(grad=True)

    assert torch.autograd.gradcheck(OURS, t, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(OURS, t)


def test_gradcheck_complex():
    """The gradient of a function of complex numbers is torch's, not its conjugate."""
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    f = wrap(lambda z: tnp.exp(z) * tnp.conj(z))

    assert torch.autograd.gradcheck(f, z, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, z)
    assert torch.autograd.gradcheck(wrap(lambda z: tnp.abs(z) ** 2), z)


def test_real_function_of_complex_and_back():
    """Mixed real and complex inputs and results."""
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    r = torch.randn(3, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(wrap(lambda z, r: (z * r, tnp.real(z) * r)), (z, r))


def test_gradients_accumulate():
    """A second backward adds to .grad."""

    def use(f):
        t = inputs(grad=True)
        squares(f)(*t).backward()
        squares(f)(*t).backward()
        return [x.grad for x in t]

    check(use)


def test_unused_results_and_inputs():
    """A result without a cotangent costs nothing; an unused input has a zero gradient."""
    f = wrap(lambda x, y, unused: (x * y, 1 / x))
    x = torch.zeros(2, requires_grad=True)
    y = torch.ones(2, requires_grad=True)
    unused = torch.ones(2, requires_grad=True)

    # The second result has an infinite derivative at 0: putting in a zero would give nan.
    f(x, y, unused)[0].sum().backward()

    assert [1.0, 1.0] == x.grad.tolist()
    assert [0.0, 0.0] == y.grad.tolist()
    assert unused.grad is None or unused.grad.tolist() == [0.0, 0.0]


def test_integer_results_are_not_differentiable():
    """They carry no graph; the others do."""
    x = torch.randn(5, requires_grad=True)

    index, value = wrap(lambda x: (tnp.argmax(x), tnp.max(x)))(x)
    value.backward()

    assert not index.requires_grad
    assert x.grad[index] == 1.0
    assert x.grad.sum() == 1.0


def test_backward_twice():
    """retain_graph keeps the saved tensors, without it they are freed."""
    t = inputs(grad=True)
    loss = squares(OURS)(*t)
    first = torch.autograd.grad(loss, t, retain_graph=True)
    second = torch.autograd.grad(loss, t)

    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, t)


def test_batched_gradients():
    """is_grads_batched and vectorized Jacobians use a vmap of their own."""
    seeds = torch.eye(20, dtype=torch.float64).reshape(20, 4, 5)

    check(
        lambda f: torch.autograd.grad(f(*(t := inputs(grad=True))), t, seeds, is_grads_batched=True)
    )
    functional = torch.autograd.functional
    check(lambda f: functional.jacobian(f, tuple(inputs()), vectorize=True))
    check(lambda f: functional.jacobian(f, tuple(inputs()), create_graph=True))
    check(lambda f: functional.hessian(squares(f), tuple(inputs())))
    check(lambda f: functional.jvp(f, tuple(inputs()), tuple(inputs())))


def test_forward_mode_duals():
    """Tangents at some inputs, and a second level through reverse mode."""

    def use(f):
        x, w, b = inputs(grad=True)
        with forward_ad.dual_level():
            y = f(forward_ad.make_dual(x, torch.ones_like(x)), w, forward_ad.make_dual(b, b * 2))
            value, tangent = forward_ad.unpack_dual(y)
        return value, tangent, torch.autograd.grad(tangent.sum(), (x, w))

    check(use)


def test_duals_through_a_backward_pass():
    """Forward over reverse: gradients of duals are duals, with or without a further graph."""

    def use(f):
        x, w, b = inputs(grad=True)
        cotangent = torch.ones(4, 5, dtype=torch.float64, requires_grad=True)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, x.detach().sin())
            grads = torch.autograd.grad(f(dual, w, b), (dual, w), cotangent, create_graph=True)
            tangents = [forward_ad.unpack_dual(g).tangent for g in grads]
            again = torch.autograd.grad(tangents[0].sum(), (x, w, cotangent))
            (grad,) = torch.autograd.grad(f(dual, w.detach(), b), dual, cotangent)
            return *tangents, *again, forward_ad.unpack_dual(grad).tangent

    check(use)


def test_duals_of_several_results():
    """Results of integers have no tangent, floats have, also where a graph is made."""
    f = wrap(lambda x: (x * x, x.astype(tnp.int32), tnp.sin(x)))
    x = torch.linspace(0.0, 2.0, 3, requires_grad=True)

    with forward_ad.dual_level():
        outs = f(forward_ad.make_dual(x, torch.ones(3)))
        tangents = [forward_ad.unpack_dual(o).tangent for o in outs]

    torch.testing.assert_close(tangents[0], 2 * x)
    assert tangents[1] is None
    torch.testing.assert_close(tangents[2], torch.cos(x))


def test_batches_of_tangents():
    """torch's older vmap over tangents alone, as gradcheck uses it."""
    f = wrap(lambda x: tnp.sin(x) * x)
    x = torch.linspace(0.0, 2.0, 3, dtype=torch.float64)

    assert torch.autograd.gradcheck(
        f, x.clone().requires_grad_(), check_forward_ad=True, check_batched_forward_grad=True
    )

    def push(tangent):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, tangent))).tangent

    torch.testing.assert_close(
        torch._vmap_internals._vmap(push)(torch.eye(3, dtype=torch.float64)),
        torch.diag(torch.cos(x) * x + torch.sin(x)),
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    """Activation checkpointing runs the function again in the backward pass."""

    def use(f):
        t = inputs(grad=True)
        checkpoint(squares(f), *t, use_reentrant=reentrant).backward()
        return [x.grad for x in t]

    check(use)


def test_saved_tensor_hooks():
    """What is saved for the backward pass goes through hooks."""
    seen = []

    def pack(t):
        seen.append(tuple(t.shape))
        return t.clone()

    def use(f):
        t = inputs(grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.t().clone().t()):
            loss = f(*t)
        return torch.autograd.grad(loss.sum(), t)

    def offload(f):
        t = inputs(grad=True)
        with torch.autograd.graph.save_on_cpu():
            loss = squares(f)(*t)
        return torch.autograd.grad(loss, t)

    check(use)
    check(offload)
    assert (4, 3) in seen


def test_inference_mode():
    """Inference tensors in and out."""

    def use(f):
        with torch.inference_mode():
            return f(*[t.clone() for t in inputs()]).clone()

    check(use)


def test_autocast_casts_nothing():
    """The policy: a program computes in the dtypes that it gets."""
    x, w, b = [t.float() for t in inputs()]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = OURS(x, w, b)
        mixed = OURS(x @ w, torch.eye(5).bfloat16(), b.bfloat16())

    assert out.dtype == torch.float32
    assert mixed.dtype == torch.bfloat16


# torch.func --------------------------------------------------------------------------------------

FUNCTIONAL = {
    "grad": lambda f: func.grad(squares(f), argnums=(0, 1, 2))(X, W, B),
    "vjp": lambda f: func.vjp(f, X, W, B)[1](torch.ones(4, 5, dtype=torch.float64)),
    "jvp": lambda f: func.jvp(f, (X, W, B), (X, W, B)),
    "jacrev": lambda f: func.jacrev(f, argnums=(0, 1))(X, W, B),
    "jacfwd": lambda f: func.jacfwd(f, argnums=(0, 1))(X, W, B),
    "hessian": lambda f: func.hessian(squares(f))(X, W, B),
    "linearize": lambda f: func.linearize(f, X, W, B)[1](X, W, B),
    "vmap": lambda f: func.vmap(f, (0, None, None))(X, W, B),
    "vmap other axis": lambda f: func.vmap(f, (1, None, 0), 1)(
        X[:, None].expand(4, 2, 3), W, B.expand(2, 5)
    ),
    "vmap of vmap": lambda f: func.vmap(func.vmap(f, (0, None, None)), (None, None, 0))(
        X, W, B.expand(2, 5)
    ),
    "vmap chunks": lambda f: func.vmap(f, (0, None, None), chunk_size=2)(X, W, B),
    "vmap of grad": lambda f: func.vmap(func.grad(squares(f)), (0, None, None))(X, W, B),
    "grad of vmap": lambda f: func.grad(lambda *a: (func.vmap(f, (0, None, None))(*a) ** 2).sum())(
        X, W, B
    ),
    "grad of grad": lambda f: func.grad(lambda x: func.grad(squares(f))(x, W, B).pow(2).sum())(X),
    "jacrev of jacrev": lambda f: func.jacrev(func.jacrev(squares(f)))(X, W, B),
    "jacfwd of jacrev": lambda f: func.jacfwd(func.jacrev(squares(f), 1), 0)(X, W, B),
    "jvp of grad": lambda f: func.jvp(lambda x: func.grad(squares(f))(x, W, B), (X,), (X,)),
    "grad of jvp": lambda f: func.grad(
        lambda x: func.jvp(lambda x: f(x, W, B), (x,), (x,))[1].pow(2).sum()
    )(X),
    "jvp of jvp": lambda f: func.jvp(
        lambda x: func.jvp(lambda x: f(x, W, B), (x,), (x,))[1],
        (X,),
        (X,),
    ),
    "backward through func.grad": lambda f: torch.autograd.grad(
        func.grad(squares(f))(*(t := inputs(grad=True))).pow(2).sum(), t
    ),
}


# Inserted by torch.func.linearize itself, for native functions too.
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
@pytest.mark.parametrize("name", FUNCTIONAL)
def test_torch_func(name):
    """The transformations of torch.func, alone and nested."""
    check(FUNCTIONAL[name])


def test_forward_mode_over_rules_of_reverse_mode():
    """A custom_vjp function has no forward mode, but its rules have: jacfwd of jacrev works."""

    @tb.custom_vjp
    def third(x):
        return x**3

    # A factor 2 shows that the rule is used.
    third.defvjp(lambda x: (x**3, x), lambda x, ct: (2 * 3 * x**2 * ct,))
    f = wrap(lambda x: tnp.sum(third(x)))
    x = torch.arange(1.0, 4.0)

    torch.testing.assert_close(func.hessian(f)(x), torch.diag(2 * 6 * x))
    torch.testing.assert_close(func.jvp(func.grad(f), (x,), (x,))[1], 2 * 6 * x * x)
    values, pullback = func.vjp(f, x)
    torch.testing.assert_close(values, (x**3).sum())
    torch.testing.assert_close(pullback(torch.tensor(1.0))[0], 2 * 3 * x**2)
    with pytest.raises(CustomRuleError, match="third: forward-mode"):
        func.jvp(f, (x,), (x,))


def test_functional_call_and_stacked_modules():
    """An ensemble: vmap over stacked parameters of a module that calls a wrapped function."""

    class Layer(torch.nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f
            g = torch.Generator().manual_seed(1)
            self.w = torch.nn.Parameter(torch.randn(3, 5, dtype=torch.float64, generator=g))
            self.b = torch.nn.Parameter(torch.randn(5, dtype=torch.float64, generator=g))

        def forward(self, x):
            return self.f(x, self.w, self.b)

    def use(f):
        layers = [Layer(f), Layer(f)]
        params, buffers = func.stack_module_state(layers)

        def call(p, b, x):
            return func.functional_call(layers[0], (p, b), (x,))

        return func.vmap(call, (0, 0, None))(params, buffers, X)

    check(use)


# graphs ------------------------------------------------------------------------------------------


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
