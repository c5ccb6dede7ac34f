"""Torch functions and modules in traced code: values, derivatives, batches, and what is refused."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentSpecError, CallbackError
from tracebridge.testing import assert_allclose, check_grads
from tracebridge.torch import call_torch, from_torch, wrap

X = np.linspace(0.1, 1.0, 6, dtype=np.float32).reshape(2, 3)


def smooth(x):
    """A torch function of one tensor."""
    return torch.sin(x) * torch.exp(-x * x)


def ours(x):
    """The same in our operations."""
    return tnp.sin(x) * tnp.exp(-x * x)


def called(x):
    """The torch function as an operation of ours."""
    return call_torch(smooth, x)


class Cube(torch.autograd.Function):
    """A function whose derivative is written by hand, which torch.func does not take."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


TRANSFORMED = {
    "value": lambda f: f,
    "grad": lambda f: tb.grad(lambda x: f(x).sum()),
    "hessian": lambda f: tb.hessian(lambda x: f(x).sum()),
    "third": lambda f: tb.grad(
        lambda x: tb.grad(lambda x: tb.grad(lambda x: f(x).sum())(x).sum())(x).sum()
    ),
    "jacfwd": tb.jacfwd,
    "jacrev": tb.jacrev,
    "jacfwd of jacfwd": lambda f: tb.jacfwd(tb.jacfwd(lambda x: f(x).sum())),
    "vmap": tb.vmap,
    "vmap of vmap": lambda f: tb.vmap(tb.vmap(f)),
    "vmap of grad": lambda f: tb.vmap(tb.grad(lambda x: f(x).sum())),
    "grad of vmap": lambda f: tb.grad(lambda x: tb.vmap(f, in_axes=1)(x).sum()),
    "scan": lambda f: tb.grad(lambda x: tb.lax.scan(lambda c, r: (f(c) + r, c), x[0], x)[0].sum()),
    "checkpoint": lambda f: tb.grad(lambda x: tb.checkpoint(f)(x).sum()),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_equals_the_same_function_of_ours(name):
    transform = TRANSFORMED[name]
    expected = transform(ours)(X)
    assert_allclose(transform(called)(X), expected, rtol=2e-5, atol=2e-6)
    assert_allclose(tb.jit(transform(called))(X), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("method", ["vectorized", "sequential"])
def test_methods_of_vmap(method):
    f = lambda x: call_torch(smooth, x, vmap_method=method)
    g = tb.vmap(tb.grad(lambda x: f(x).sum()))
    assert_allclose(tb.jit(g)(X), tb.grad(lambda x: ours(x).sum())(X), rtol=1e-5)
    assert_allclose(tb.vmap(f, in_axes=1, out_axes=1)(X), ours(X), rtol=1e-6)


def test_functions_that_torch_func_refuses():
    f = lambda x: call_torch(Cube.apply, x)
    assert_allclose(tb.vmap(f)(X), X**3, rtol=1e-6)
    assert_allclose(tb.vmap(tb.grad(lambda x: f(x).sum()))(X), 3 * X**2, rtol=1e-6)
    assert_allclose(tb.grad(lambda x: tb.grad(lambda x: f(x).sum())(x).sum())(X), 6 * X, rtol=1e-6)
    assert_allclose(tb.jvp(f, (X,), (X,))[1], 3 * X**3, rtol=1e-6)


def test_a_backward_without_derivative_is_refused_in_forward_mode():
    class Opaque(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return torch.from_numpy(g.detach().numpy() * 2)

    f = lambda x: call_torch(Opaque.apply, x)
    assert_allclose(tb.grad(lambda x: f(x).sum())(X), np.full_like(X, 2))
    with pytest.raises(CallbackError, match="cannot be differentiated"):
        tb.jvp(f, (X,), (X,))


def test_complex_derivatives_are_not_conjugated():
    z = np.array([1 + 2j, 0.5 - 1j], np.complex64)
    f = lambda z: call_torch(lambda z: z * z * (1 + 2j), z)
    g = lambda z: z * z * (1 + 2j)
    assert_allclose(tb.vjp(f, z)[1](z)[0], tb.vjp(g, z)[1](z)[0], rtol=1e-6)
    assert_allclose(tb.jvp(f, (z,), (z,))[1], tb.jvp(g, (z,), (z,))[1], rtol=1e-6)
    real = lambda z: tnp.sum(tnp.abs(f(z)))
    assert_allclose(tb.grad(real)(z), tb.grad(lambda z: tnp.sum(tnp.abs(g(z))))(z), rtol=1e-5)


def test_derivatives_by_finite_differences():
    with tb.enable_x64(True):
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()).double()
        params = {k: from_torch(v.detach()) for k, v in net.named_parameters()}
        f = lambda p, x: call_torch(net, x, params=p)
        check_grads(f, (params, tnp.asarray(X, "float64")), order=2)


def test_module_by_parameters():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
    params = {k: from_torch(v.detach()) for k, v in net.state_dict().items()}
    loss = lambda p, x: tnp.mean(call_torch(net, x, params=p) ** 2)
    grads = tb.jit(tb.grad(loss))(params, X)
    (net(torch.from_numpy(X)) ** 2).mean().backward()
    for name, p in net.named_parameters():
        assert_allclose(grads[name], p.grad.numpy(), rtol=1e-5, atol=1e-6)
    assert all(p.grad is not None for p in net.parameters())


def test_constants_of_a_module_are_read_at_each_call():
    net = torch.nn.Linear(3, 1).requires_grad_(False)
    f = tb.jit(lambda x: call_torch(net, x))
    first = f(X)
    net.weight.zero_()
    net.bias.fill_(2.0)
    assert_allclose(f(X), np.full((2, 1), 2.0, np.float32))
    assert np.any(first != 2.0)


def test_keys_make_forward_and_backward_draw_the_same():
    x = np.ones(100, np.float32)
    f = lambda x, key: call_torch(torch.nn.functional.dropout, x, 0.5, key=key)
    key = tb.random.key(3)
    value = tb.jit(f)(x, key)
    assert 20 < np.count_nonzero(value) < 80
    assert_allclose(tb.jit(tb.grad(lambda x: f(x, key).sum()))(x), value)
    assert_allclose(f(x, key), value)
    several = tb.vmap(f, (None, 0))(x, tb.random.split(key, 3))
    assert_allclose(several[1], f(x, tb.random.split(key, 3)[1]))
    assert np.any(several[0] != several[1])
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    f(x, key)
    assert torch.equal(torch.rand(1), expected)  # torch's own state stays


def test_trees_static_arguments_and_results_of_all_kinds():
    def function(tree, n, *, scale):
        return {
            "top": torch.topk(tree["x"], n),
            "text": "static",
            "y": tree["y"][0] * scale,
            "none": None,
        }

    out = tb.jit(
        lambda x, y: {
            k: v
            for k, v in call_torch(function, {"x": x, "y": [y]}, 2, scale=3.0).items()
            if k != "text"
        }
    )(X, X)
    values, indices = torch.topk(torch.from_numpy(X), 2)
    assert_allclose(out["top"][0], values.numpy())
    assert_allclose(out["top"][1], indices.numpy().astype(np.int32))
    assert_allclose(out["y"], X * 3.0)
    assert call_torch(function, {"x": X, "y": [X]}, 2, scale=3.0)["text"] == "static"


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "bfloat16", "float16", "complex64"])
def test_dtypes_and_sizes(dtype):
    for shape in ((2, 3), (), (0, 4)):
        x = tnp.ones(shape, dtype)
        for f in (
            lambda x: call_torch(torch.clone, x),
            tb.jit(lambda x: call_torch(torch.clone, x)),
        ):
            y = f(x)
            assert y.dtype == x.dtype
            assert_allclose(y, x)


def test_64_bits():
    f = lambda x: call_torch(lambda x: (x.double() * 2, x.argmax()), x)
    assert [y.dtype.name for y in tb.jit(f)(X)] == ["float32", "int32"]
    with tb.enable_x64(True):
        assert [y.dtype.name for y in tb.jit(f)(X)] == ["float64", "int64"]
    y = wrap(lambda x: call_torch(smooth, x))(torch.ones(2, dtype=torch.float64))
    assert y.dtype == torch.float64
    assert torch.equal(y, smooth(torch.ones(2, dtype=torch.float64)))


def test_results_that_somebody_holds_are_copied():
    held = torch.zeros(3)
    y = call_torch(lambda x: held, X)
    held.fill_(7.0)
    assert_allclose(y, np.zeros(3, np.float32))
    kept = []
    tb.jit(lambda x: call_torch(lambda x: kept.append(x) or x + 1, x))(X)
    tb.jit(lambda x: x * 100)(X)
    assert torch.equal(kept[-1], torch.from_numpy(X))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_inside_wrapped_functions():
    f = wrap(lambda x: called(x) * 2)
    x = torch.from_numpy(X.copy()).requires_grad_()
    f(x).sum().backward()
    t = torch.from_numpy(X.copy()).requires_grad_()
    (smooth(t) * 2).sum().backward()
    torch.testing.assert_close(x.grad, t.grad)
    expected = torch.func.hessian(lambda x: (smooth(x) * 2).sum())(t.detach())
    torch.testing.assert_close(torch.func.hessian(lambda x: f(x).sum())(t.detach()), expected)
    torch.testing.assert_close(torch.func.vmap(f)(t.detach()), smooth(t.detach()) * 2)
    with torch.no_grad(), torch.autocast("cpu"):
        torch.testing.assert_close(f(x), smooth(t) * 2)
    with torch.inference_mode():
        torch.testing.assert_close(f(x), (smooth(t) * 2).detach())


def test_loops_and_branches():
    step = lambda c: call_torch(torch.cos, c)
    f = tb.jit(lambda x: tb.lax.fori_loop(0, 5, lambda _, c: step(c), x))
    expected = X
    for _ in range(5):
        expected = np.cos(expected)
    assert_allclose(f(X), expected, rtol=1e-5)
    g = tb.jit(lambda p, x: tb.lax.cond(p, step, lambda c: c, x))
    assert_allclose(g(False, X), X)
    assert_allclose(g(True, X), np.cos(X), rtol=1e-6)


def test_from_many_threads():
    f = tb.jit(tb.grad(lambda x: called(x).sum()))
    expected, wrong = np.asarray(f(X)), []

    def work():
        for _ in range(20):
            if not np.array_equal(f(X), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


REFUSED = {
    "parameters": (
        lambda: call_torch(torch.nn.Linear(3, 1), X),
        ArgumentSpecError,
        "'weight' requires grad",
    ),
    "unknown": (
        lambda: call_torch(torch.nn.Linear(3, 1), X, params={"w": X}),
        ArgumentSpecError,
        "names 'w'",
    ),
    "random": (lambda: call_torch(torch.rand_like, X), CallbackError, "rand"),
    "in place": (lambda: call_torch(torch.Tensor.add_, X, 1.0), CallbackError, "writes to array 0"),
    "buffers": (
        lambda: call_torch(torch.nn.BatchNorm1d(3, affine=False), X),
        CallbackError,
        "num_batches_tracked",
    ),
    "values": (
        lambda: call_torch(lambda x: x * x.sum().item(), X),
        CallbackError,
        "result_shape_dtypes",
    ),
    "shapes": (lambda: call_torch(torch.matmul, X, X), CallbackError, "the function raised"),
    "method": (
        lambda: call_torch(torch.sin, X, vmap_method="any"),
        ArgumentSpecError,
        "vmap_method",
    ),
    "no function": (lambda: call_torch(3, X), ArgumentSpecError, "fun is 3"),
    "results": (lambda: call_torch(lambda x: object(), X), CallbackError, "of type object"),
    "params of a function": (
        lambda: call_torch(torch.sin, X, params={}),
        ArgumentSpecError,
        "got params",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    call, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        call()


def test_tensors_that_require_grad_are_not_lost():
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(CallbackError, match="requires grad and is no argument"):
        call_torch(lambda x: x * weight, X)
    with pytest.raises(ArgumentSpecError, match="requires grad"):
        call_torch(torch.mul, X, weight)


def test_declared_types_and_other_results_at_run_time():
    f = tb.jit(lambda x: call_torch(lambda x: x * x.sum().item(), x, result_shape_dtypes=X))
    assert_allclose(f(X), X * X.sum(), rtol=1e-6)
    g = tb.jit(lambda x: call_torch(torch.nonzero, x, result_shape_dtypes=X))
    with pytest.raises(CallbackError, match="another type than"):
        g(X)


def test_exceptions_of_the_function():
    def fails(x):
        if type(x) is torch.Tensor:
            raise LookupError("only with values")
        return x

    for f in (lambda x: call_torch(fails, x), tb.jit(lambda x: call_torch(fails, x))):
        with pytest.raises(CallbackError, match="only with values"):
            f(X)


def test_a_torch_function_called_on_a_traced_value_names_the_ways_out():
    for call in (torch.sin, torch.nn.Linear(3, 1)):
        with pytest.raises(TypeError, match="call_torch") as error:
            tb.jit(lambda x, call=call: call(x))(X)
        assert "from_module" in str(error.value)


def test_pmap():
    f = tb.pmap(lambda x: called(x))
    assert_allclose(f(X[:1]), ours(X[:1]), rtol=1e-6)


def test_fingerprints_tell_functions_apart():
    def digest(function, *args):
        call = wrap(lambda x: call_torch(function, x, *args))
        graph = make_fx(call)(torch.ones(3))
        handle = next(n.args[-1] for n in graph.graph.nodes if n.op == "call_function")
        return handle.split("@")[1]

    plain = digest(torch.add, 1.0)
    assert plain == digest(torch.add, 1.0)
    assert plain != digest(torch.add, 2.0)
    assert plain != digest(torch.sub, 1.0)


def test_programs_keep_no_tracer_alive():
    with tb.checking_leaks():
        tb.jit(tb.grad(lambda x: called(x).sum()))(X)


def test_in_compiled_graphs():
    f = wrap(lambda x: called(x) * 2)
    x = torch.from_numpy(X.copy()).requires_grad_()
    torch.compile(lambda x: f(x).sum(), fullgraph=True, backend="aot_eager")(x).backward()
    t = torch.from_numpy(X.copy()).requires_grad_()
    (smooth(t) * 2).sum().backward()
    torch.testing.assert_close(x.grad, t.grad)
