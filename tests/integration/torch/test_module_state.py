"""Modules with state, buffers and random numbers: against torch's own, in all that torch does."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ArgumentSpecError,
    ArgumentTypeError,
    DtypeMismatchError,
    ShapeMismatchError,
    TreeMismatchError,
)
from tracebridge.torch import Module, generator_to_key, key_to_generator, train_step, wrap

pytestmark = pytest.mark.torch


def batch_norm(p, s, x, *, train):
    """Batch normalization as torch defines it."""
    if not train:
        return (x - s["mean"]) / tnp.sqrt(s["var"] + 1e-5) * p["w"] + p["b"], s
    mean, var, n = tnp.mean(x, 0), tnp.var(x, 0), x.shape[0]
    new = {
        "mean": 0.9 * s["mean"] + 0.1 * mean,
        "n": s["n"] + 1,
        "var": 0.9 * s["var"] + 0.1 * var * (n / (n - 1)),
    }
    return (x - mean) / tnp.sqrt(var + 1e-5) * p["w"] + p["b"], new


def norm():
    """Our batch normalization."""
    state = {"mean": tnp.zeros(3), "var": tnp.ones(3), "n": 0}
    params = {"w": tnp.ones(3), "b": tnp.zeros(3)}
    return Module(batch_norm, params, state=state, train_argname="train")


def scaled(p, s, x):
    """A function whose gradient depends on the state that it changes."""
    return (p["w"] * x * s["a"]) ** 2, {"a": s["a"] + 1.0}


def counting(n=3):
    """Its module; the state begins at 2."""
    return Module(scaled, {"w": tnp.ones(())}, state={"a": tnp.full((n,), 2.0)})


def noisy(x, key):
    """Dropout."""
    return x * tb.random.bernoulli(key, 0.5, x.shape)


def test_running_statistics():
    """Outputs, gradients and statistics are those of BatchNorm1d, in both modes."""
    ours, theirs = norm(), torch.nn.BatchNorm1d(3)
    assert ["b", "mean", "n", "var", "w"] == sorted(ours.state_dict())

    for step in range(4):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(step)).requires_grad_()
        y = x.detach().clone().requires_grad_()
        out, expected = ours(x), theirs(y)
        out.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(x.grad, y.grad, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.mean, theirs.running_mean)
    torch.testing.assert_close(ours.state()["var"], theirs.running_var)
    assert int(ours.n) == 4
    ours.eval()
    version = ours.mean._version
    torch.testing.assert_close(ours(x), theirs.eval()(y))
    assert ours.mean._version == version  # what comes back as it was is not written


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside torch's own compiler
def test_backward_reads_the_state_of_its_forward(backend):
    """However often the state has changed since."""
    module = counting()
    torch._dynamo.reset()
    call = module if backend == "eager" else torch.compile(module, fullgraph=True, backend=backend)
    x = torch.ones(3, requires_grad=True)

    (call(x) + call(x)).sum().backward()

    assert x.grad.tolist() == [2.0 * (4 + 9)] * 3
    assert module.a.tolist() == [4.0] * 3
    with torch.no_grad():
        call(x)
    assert module.a.tolist() == [5.0] * 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside torch's forward mode
def test_higher_order_and_forward_mode():
    """Derivatives of any order, with the state as a constant."""
    module = norm().double()
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(module, x.requires_grad_(), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(module, x)
    assert module(x).grad_fn is not None
    assert module.mean.grad_fn is None


def test_modes_of_torch():
    """The state is written under no_grad and inference_mode, where views see it, and copies not."""
    for n in (3, 100_000):
        module = counting(n)
        view = module.a[:1]
        copy = pickle.loads(pickle.dumps(module))
        twin = deepcopy(module)
        with torch.no_grad():
            module(torch.ones(n))
        with torch.inference_mode():
            module(torch.ones(n))
        assert (view.item(), copy.a[0].item(), twin.a[0].item()) == (4.0, 2.0, 2.0)
        module.load_state_dict(copy.state_dict())
        assert view.item() == 2.0
        del view
        with torch.no_grad():
            module(torch.ones(n))
        assert module.a[-1].item() == 3.0


def test_functional_call():
    """Buffers that are given take the state; under torch.func those of the module do too."""
    module = counting()
    x = torch.ones(3)
    params = {"w": torch.tensor(3.0)}
    given = {"a": torch.full((3,), 10.0)}

    def loss(p, *buffers):
        return torch.func.functional_call(module, (p, *buffers), (x,)).sum()

    loss(params, given)
    assert (given["a"][0].item(), module.a[0].item()) == (11.0, 2.0)
    assert torch.func.grad(loss)(params)["w"].item() == 3 * 2 * 3.0 * 4
    assert module.a[0].item() == 3.0
    assert torch.func.grad(loss)(params, given)["w"].item() == 3 * 2 * 3.0 * 121
    assert (given["a"][0].item(), module.a[0].item()) == (12.0, 3.0)


# gloo warns when it cannot find out the host's name, and about its own deprecations.
@pytest.mark.filterwarnings("ignore")
def test_distributed_data_parallel(process_group):
    """DDP sends the state around; gradients are those without it."""
    del process_group
    keyed = Module(
        lambda p, s, x: (p * x, {"key": tb.random.split(s["key"])[0], "n": s["n"] + 1}),
        tnp.ones(3),
        state={"key": tb.random.key(0), "n": 0},
    )
    parallel = torch.nn.parallel.DistributedDataParallel(keyed)
    for _ in range(2):
        parallel(torch.ones(3)).sum().backward()
    assert keyed.param.grad.tolist() == [2.0] * 3
    assert int(keyed.n) == 2


def test_a_call_that_fails_changes_nothing():
    """Whatever is wrong with the new state, the old one stays, and the error names the leaf."""
    cases = [
        (lambda p, s, x: (x, {"n": s["n"] + 1.5, "m": s["m"]}), DtypeMismatchError, "'n'"),
        (lambda p, s, x: (x, {"n": s["n"] + 1, "m": x}), ShapeMismatchError, "'m'"),
        (lambda p, s, x: (x, {"n": s["n"] + 1}), TreeMismatchError, "structure"),
        (lambda p, s, x: x, ArgumentSpecError, "new state"),
    ]
    for fun, error, text in cases:
        module = Module(fun, {}, state={"n": 1, "m": 0.5})
        with pytest.raises(error, match=text):
            module(torch.ones(3))
        assert (int(module.n), float(module.m)) == (1, 0.5)
    with pytest.raises(ArgumentSpecError, match="an nn"):
        Module(scaled, {}, state=torch.nn.Parameter(torch.ones(3)))
    with pytest.raises(ArgumentSpecError, match="mode"):
        Module(scaled, {}, state=1.0, train_argname="mode")
    with pytest.raises(ArgumentSpecError, match="wrapped already"):
        Module(wrap(scaled), {}, state=1.0, static_argnums=2)


def test_ensembles():
    """States that are mapped over are written, each for its element; sizes may vary beside them."""
    modules = [counting() for _ in range(2)]
    modules[1].a.fill_(5.0)
    params, buffers = torch.func.stack_module_state(modules)

    def call(p, b, x):
        return torch.func.functional_call(modules[0], (p, b), (x,))

    with torch.no_grad():
        out = torch.func.vmap(call, in_dims=(0, 0, None))(params, buffers, torch.ones(3))
        assert out[:, 0].tolist() == [4.0, 25.0]
        assert buffers["a"][:, 0].tolist() == [3.0, 6.0]
        with pytest.raises(RuntimeError, match="vmap"):
            torch.func.vmap(modules[0])(torch.ones(2, 3))
    sized = wrap(batch_norm, dynamic_shapes=(None, None, "n, _"), static_argnames="train")
    state = {"mean": tnp.zeros(3), "var": tnp.ones(3), "n": 0}
    ours = Module(sized, {"w": tnp.ones(3), "b": tnp.zeros(3)}, state=state, train_argname="train")
    theirs = torch.nn.BatchNorm1d(3)
    for n in (5, 7):
        x = torch.randn(n, 3, generator=torch.Generator().manual_seed(n))
        torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.var, theirs.running_var)


def test_buffers_keys_and_narrow_states():
    """Buffers are not trained; keys are held as words; states keep the dtype of the module."""

    def fun(p, b, s, x):
        key, new = tb.random.split(s["key"])
        return p * x + b["c"] * tb.random.normal(key), {"ema": s["ema"] * 0.5 + x[0], "key": new}

    state = {"ema": tnp.zeros(()), "key": tb.random.key(7)}
    module = Module(fun, tnp.ones(2), buffers={"c": 2.0}, state=state).to(torch.bfloat16)
    assert [name for name, _ in module.named_parameters()] == ["param"]
    assert module.key.dtype == torch.int32

    results = [module(torch.zeros(2)) for _ in range(2)]

    first, rest = tb.random.split(tb.random.key(7))
    second = tb.random.split(rest)[0]
    expected = [2.0 * float(tb.random.normal(k)) for k in (first, second)]
    assert [r[0].item() for r in results] == pytest.approx(expected)
    assert module.ema.dtype == torch.bfloat16
    assert module.function is not None


def test_train_step_writes_the_state():
    """The step is that of the plain loop over BatchNorm1d."""
    ours, theirs = norm(), torch.nn.BatchNorm1d(3)
    step = train_step(
        ours, lambda out, y: tnp.mean((out - y) ** 2), torch.optim.SGD(ours.parameters(), 0.1)
    )
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    x, y = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        optimizer.zero_grad()
        loss = ((theirs(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(x, y), loss.detach())
    torch.testing.assert_close(ours.w, theirs.weight)
    torch.testing.assert_close(ours.var, theirs.running_var)
    ours.eval()
    step(x, y)
    assert int(ours.n) == 2
    dropping = Module(lambda p, x, key: noisy(p * x, key), tnp.ones(64), rng_argnames="key")
    step = train_step(
        dropping, lambda out, _: tnp.sum(out), torch.optim.SGD(dropping.parameters(), 0.0)
    )
    torch.manual_seed(0)
    first, second = [float(step(torch.ones(64), 0.0)) for _ in range(2)]
    torch.manual_seed(0)
    assert float(step(torch.ones(64), 0.0)) == first != second


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside torch's own compiler
def test_keys_of_torch(backend):
    """Each call draws anew, seeds repeat, the backward pass has the numbers of the forward pass."""
    drop = wrap(noisy, rng_argnames="key")
    torch._dynamo.reset()
    call = drop if backend == "eager" else torch.compile(drop, fullgraph=True, backend=backend)
    x = torch.ones(4096, requires_grad=True)
    torch.manual_seed(5)
    first, second = call(x), call(x)
    torch.manual_seed(5)
    again = call(x)

    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert 0.45 < first.mean().item() < 0.55
    assert torch.equal(torch.autograd.grad(first.sum(), x)[0], first)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside torch's forward mode
def test_keys_under_transformations():
    """torch.func decides whether elements share a key; checkpoints draw the same again."""
    drop = wrap(noisy, rng_argnames="key")
    x = torch.ones(64)
    rows = torch.func.vmap(drop, randomness="different")(torch.ones(2, 64))
    assert not torch.equal(*rows)
    assert torch.equal(*torch.func.vmap(drop, randomness="same")(torch.ones(2, 64)))
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(drop)(torch.ones(2, 64))
    out, tangent = torch.func.jvp(drop, (x,), (x,))
    assert torch.equal(out, tangent)
    x.requires_grad_()
    out = checkpoint(drop, x, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], out)


def test_keys_that_are_given():
    """A key, a generator, by position or by name; in traced code one must be given."""
    drop = wrap(noisy, rng_argnames="key")
    x, key = torch.ones(64), tb.random.key(3)
    expected = noisy(tnp.ones(64), key).tolist()
    assert drop(x, key).tolist() == drop(x, key=key).tolist() == expected
    assert drop(x, key=tb.random.key_data(key)).tolist() == expected
    other = tb.random.key(3, impl="rbg")
    others = noisy(tnp.ones(64), other).tolist()
    assert drop(x, other).tolist() == drop(x, key=other).tolist() == others
    assert tb.jit(drop)(tnp.ones(64), key).tolist() == expected
    generator = torch.Generator().manual_seed(9)
    word = generator_to_key(generator)
    assert torch.equal(drop(x, key=generator.manual_seed(9)), drop(x, key=word))
    assert drop(x.double()).dtype == torch.float64
    with pytest.raises(ArgumentSpecError, match="no key in a call"):
        tb.jit(drop)(tnp.ones(64))
    with pytest.raises(ArgumentSpecError, match="has no seed"):
        wrap(noisy, rng_argnames="seed")


def test_generators_and_keys():
    """Equal states give equal keys, equal keys equal generators; other things are refused."""
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    words = [tb.random.key_data(generator_to_key(g)).tolist() for g in generators]
    assert words[0] == words[1]
    assert words[0] != tb.random.key_data(generator_to_key(generators[0])).tolist()
    with tb.default_prng_impl("rbg"):
        assert tb.random.key_impl(generator_to_key()) == "rbg"
        assert key_to_generator(tb.random.key(0)).initial_seed()
    hidden = wrap(lambda x: tb.vmap(lambda y: y * tb.random.uniform(generator_to_key()))(x))
    with pytest.raises(ArgumentSpecError, match="function that is being traced"):
        hidden(torch.ones(3))
    assert tb.vmap(lambda y: y * tb.random.uniform(generator_to_key()))(tnp.ones(3)).shape == (3,)
    draws = [torch.rand(3, generator=key_to_generator(tb.random.key(n))) for n in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    with pytest.raises(ArgumentTypeError, match="generator_to_key"):
        generator_to_key(3)
    with pytest.raises(ShapeMismatchError, match="one key"):
        key_to_generator(tb.random.split(tb.random.key(0)))


def test_steps_take_keys():
    """A step has the key or generator that it is given, by position or by name."""
    x, key = torch.ones(64), tb.random.key(3, impl="rbg")
    lost = float(noisy(tnp.ones(64), key).sum())
    scaled = lambda p, x, key: noisy(x, key) * p["w"]
    module = Module(scaled, {"w": tnp.ones(())}, rng_argnames="key")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    step = train_step(module, lambda out, y: tnp.sum(out) + y, optimizer)
    assert float(step(x, key, 0.0)) == float(step(x, 0.0, key=key)) == lost
    losses = [float(step(x, 0.0, key=torch.Generator().manual_seed(1))) for _ in range(2)]
    assert losses[0] == losses[1] != float(step(x, 0.0))
