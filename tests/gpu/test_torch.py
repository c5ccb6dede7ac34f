"""The bridge to PyTorch with tensors of a GPU: memory, streams, autograd, graphs, steps."""

from __future__ import annotations

import copy
import gc
import time
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

torch = pytest.importorskip("torch")
from tracebridge.torch import (  # noqa: E402 - torch may be missing
    Module,
    call_torch,
    from_module,
    from_torch,
    to_graph_module,
    to_torch,
    train_step,
    wrap,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    # Of torch's own modules, at their first import.
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]

CYCLES = 200_000_000  # about a tenth of a second


@pytest.fixture(autouse=True)
def _precise() -> Any:
    """TF32 off: results of both sides are compared."""
    torch.manual_seed(0)
    with tb.default_matmul_precision("highest"):
        yield


def randn(*shape: int, **kwargs: Any) -> torch.Tensor:
    """A tensor of the GPU."""
    return torch.randn(*shape, device="cuda", **kwargs)


def layer(x: Any, w: Any) -> Any:
    """A layer."""
    return tnp.tanh(x @ w)


def test_exchange_shares_memory() -> None:
    """Both ways, of every dtype that both have."""
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
                  torch.int8, torch.uint8, torch.complex64):  # fmt: skip
        x = torch.arange(12, device="cuda").reshape(3, 4).to(dtype)
        a = from_torch(x)
        assert a.device.platform in ("cuda", "gpu")
        assert a.unsafe_buffer_pointer() == x.data_ptr()
        back = to_torch(a)
        assert back.device == x.device
        assert back.dtype == dtype
        assert back.data_ptr() == x.data_ptr()
        assert torch.equal(back, x)
    flags = torch.tensor([True, False], device="cuda")
    assert torch.equal(to_torch(from_torch(flags)), flags)
    strided = randn(4, 6).T
    np.testing.assert_array_equal(np.asarray(from_torch(strided)), strided.cpu().numpy())
    assert from_torch(torch.zeros(0, 3, device="cuda")).shape == (0, 3)


def test_exchange_waits_for_pending_work() -> None:
    """Kernels that were launched before, on a stream of one's own too, have written."""
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 20, device="cuda")
            torch.cuda._sleep(CYCLES)
            x += 1
            y = wrap(lambda v: v * 2)(x)
            z = (y + 1).sum()
            a = from_torch(x)
            assert float(z) == 3 * (1 << 20)
            assert float(tnp.sum(a)) == 1 << 20


def test_memory_of_results_is_not_used_again_too_early() -> None:
    """torch still reads a result that nobody holds any more while the engine computes."""
    make = wrap(lambda x: x * 2)
    x = torch.ones(1 << 22, device="cuda")
    busy = tb.jit(lambda n: tnp.full((1 << 22,), 7.0) + n)
    busy(0.0).block_until_ready()
    for _ in range(5):
        y = make(x)
        torch.cuda._sleep(CYCLES)
        out = y + 0
        del y
        others = [busy(float(i)) for i in range(8)]
        [o.block_until_ready() for o in others]
        assert float(out.min()) == float(out.max()) == 2


def test_much_memory_that_comes_back_does_not_wait_for_a_call() -> None:
    """Nor does it pile up while the GPU is behind."""
    make = wrap(lambda x: x * 2)
    x = torch.ones(1 << 26, device="cuda")
    make(x)
    torch.cuda.synchronize()
    device = tb.devices("gpu")[0]
    before = device.memory_stats()["bytes_in_use"]
    for _ in range(40):
        y = make(x)
        torch.cuda._sleep(CYCLES // 10)
        y += 1
        del y
        assert device.memory_stats()["bytes_in_use"] - before < 6 * x.nbytes
    torch.cuda.synchronize()
    deadline = time.monotonic() + 10
    while device.memory_stats()["bytes_in_use"] > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert device.memory_stats()["bytes_in_use"] <= before


def test_tensors_that_outlive_the_interpreter(run_alone: Any) -> None:
    """A process ends while torch has results, some of them in use."""
    out = run_alone("""
import torch, tracebridge.torch
from tracebridge.torch import wrap
f = wrap(lambda x: x * 2)
x = torch.ones(1 << 20, device="cuda", requires_grad=True)
kept = f(x)
torch.kept = f(x.detach())
kept.sum().backward()
torch.cuda._sleep(100_000_000)
y = f(x) + 1
del kept
print(float(y.detach().sum()))
""")
    assert float(out) == 3 * (1 << 20)


def test_memory_of_arguments_is_not_used_again_too_early() -> None:
    """The engine still reads an argument that nobody holds any more while torch computes."""
    slow = wrap(lambda x: tb.lax.fori_loop(0, 300, lambda i, c: tnp.sin(c) + x, x))
    expected = slow(torch.ones(1 << 20, device="cuda")).cpu()
    for _ in range(5):
        x = torch.ones(1 << 20, device="cuda")
        y = slow(x)
        del x
        junk = [torch.full((1 << 20,), 9.0, device="cuda") for _ in range(8)]
        assert torch.equal(y.cpu(), expected)
        del junk
        a = from_torch(torch.ones(1 << 20, device="cuda"))
        b = tb.jit(lambda x: tb.lax.fori_loop(0, 300, lambda i, c: tnp.sin(c) + x, x))(a)
        del a
        junk = [torch.full((1 << 20,), 9.0, device="cuda") for _ in range(8)]
        assert len(junk) == 8
        np.testing.assert_array_equal(np.asarray(b), expected.numpy())


def test_gradients() -> None:
    """First and second order, checked by torch."""
    f = wrap(layer)
    x, w = randn(3, 4, dtype=torch.float64), randn(4, 5, dtype=torch.float64)
    x.requires_grad_()
    w.requires_grad_()
    assert torch.autograd.gradcheck(f, (x, w))
    assert torch.autograd.gradgradcheck(f, (x, w))
    got = torch.autograd.grad(f(x, w).sum(), (x, w))
    expected = torch.autograd.grad(torch.tanh(x @ w).sum(), (x, w))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert all(g.device.type == "cuda" for g in got)


def test_transformations_of_torch() -> None:
    """torch.func: grad, vmap, jacrev, hessian, jvp."""
    f = wrap(lambda x, w: tnp.sum(layer(x, w) ** 2))
    g = lambda x, w: (torch.tanh(x @ w) ** 2).sum()
    x, w = randn(6, 4), randn(4, 5)
    x, w = x.double(), w.double()
    for make in (
        lambda f: torch.func.grad(f)(x[0], w),
        lambda f: torch.func.vmap(torch.func.grad(f, argnums=1), in_dims=(0, None))(x, w),
        lambda f: torch.func.jacrev(f, argnums=1)(x, w),
        lambda f: torch.func.hessian(f)(x[0], w),
        lambda f: torch.func.jvp(f, (x, w), (x, w))[1],
    ):
        torch.testing.assert_close(make(f), make(g))


def test_compiled() -> None:
    """torch.compile: one graph, forward and backward."""
    f = wrap(layer)
    x, w = randn(8, 4, requires_grad=True), randn(4, 4, requires_grad=True)

    @torch.compile(fullgraph=True)
    def program(x: Any, w: Any) -> Any:
        return torch.relu(f(x * 2, w)).sum()

    out = program(x, w)
    grads = torch.autograd.grad(out, (x, w))
    plain = torch.relu(torch.tanh((x * 2) @ w)).sum()
    torch.testing.assert_close(out, plain)
    for a, b in zip(grads, torch.autograd.grad(plain, (x, w)), strict=True):
        torch.testing.assert_close(a, b)


def test_cuda_graphs_are_left_out() -> None:
    """reduce-overhead captures what it can, and not our call."""
    f = wrap(layer)
    program = torch.compile(lambda x, w: f(x + 1, w) * 2, mode="reduce-overhead")
    w = randn(4, 4)
    for _ in range(4):
        x = randn(8, 4)
        torch.testing.assert_close(program(x, w), torch.tanh((x + 1) @ w) * 2)


def test_tensors_of_the_cpu_stay_there() -> None:
    """A GPU in the machine changes nothing for tensors of the CPU."""
    f = wrap(layer)
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4)
    out = f(x, w)
    out.sum().backward()
    assert out.device.type == x.grad.device.type == "cpu"
    torch.testing.assert_close(out, torch.tanh(x @ w))
    assert from_torch(x.detach()).device.platform == "cpu"


def test_two_devices_are_refused() -> None:
    """As torch does."""
    with pytest.raises(tb.errors.TracebridgeError, match="device"):
        wrap(layer)(randn(3, 4), torch.randn(4, 4))
    # Scalars of the CPU go anywhere, as in torch.
    x = randn(3)
    torch.testing.assert_close(wrap(lambda x, s: x * s)(x, torch.tensor(2.0)), x * 2)
    torch.testing.assert_close(wrap(lambda x, s: x * s)(x, 3.0), x * 3)


def test_a_module_trains() -> None:
    """Module with Adam, moved to the GPU, against the plain loop; autocast."""
    p = {"w": torch.randn(4, 5) * 0.3, "v": torch.randn(5, 1) * 0.3}
    m = Module(lambda p, x: tnp.tanh(x @ p["w"]) @ p["v"], p).to("cuda")
    plain = {k: t.detach().clone().cuda().requires_grad_() for k, t in p.items()}
    x, y = randn(16, 4), randn(16, 1)
    mine, theirs = torch.optim.Adam(m.parameters()), torch.optim.Adam(list(plain.values()))
    for _ in range(10):
        a = ((m(x) - y) ** 2).mean()
        b = ((torch.tanh(x @ plain["w"]) @ plain["v"] - y) ** 2).mean()
        for loss, optimizer in ((a, mine), (b, theirs)):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_module_in_a_graph(device: str) -> None:
    """torch.compile and torch.export of a Module, here and beside a GPU."""
    p = {"w": torch.randn(4, 5), "v": torch.randn(5, 1)}
    m = Module(lambda p, x: tnp.tanh(x @ p["w"]) @ p["v"], p).to(device)
    x = torch.randn(3, 4, device=device)
    torch._dynamo.reset()
    compiled = torch.compile(m, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), m(x))
    compiled(x).sum().backward()
    assert all(q.grad is not None and q.grad.device.type == device for q in m.parameters())
    torch.testing.assert_close(torch.export.export(m, (x,)).module()(x), m(x))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_a_whole_step(make: Any) -> None:
    """train_step on the GPU equals the loop of torch."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
    other = copy.deepcopy(net)
    x, y = randn(16, 4), randn(16, 1)
    model = from_module(net, (x,))
    loss = lambda out, y: tnp.mean((out - y) ** 2)
    step = train_step(model, loss, make(net.parameters(), lr=0.01))
    optimizer = make(other.parameters(), lr=0.01)
    for _ in range(10):
        mine = step(x, y)
        optimizer.zero_grad()
        theirs = ((other(x) - y) ** 2).mean()
        theirs.backward()
        optimizer.step()
    torch.testing.assert_close(torch.as_tensor(mine), theirs, rtol=1e-4, atol=1e-5)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_translated_module() -> None:
    """from_module with parameters on the GPU: convolution, norm, attention."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 5),
    ).cuda().eval()  # fmt: skip
    x = randn(2, 3, 8, 8)
    model = from_module(net, (x,))
    out = model(model.params, from_torch(x))
    torch.backends.cudnn.allow_tf32 = False
    torch.testing.assert_close(to_torch(out), net(x).detach(), rtol=1e-3, atol=1e-3)


def test_torch_inside() -> None:
    """call_torch in a program of the GPU: values and gradients."""
    f = lambda x: tnp.sum(call_torch(torch.special.entr, x) * 2)
    x = np.linspace(0.1, 0.9, 5).astype("f4")
    value, grad = tb.jit(tb.value_and_grad(f))(x)
    np.testing.assert_allclose(float(value), float(-2 * (x * np.log(x)).sum()), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(grad), -2 * (np.log(x) + 1), rtol=1e-4)


def test_as_a_graph_of_torch() -> None:
    """to_graph_module for the GPU."""
    x, w = randn(3, 4), randn(4, 4)
    graph = to_graph_module(layer, (x, w))
    torch.testing.assert_close(graph(x, w), torch.tanh(x @ w))


def test_results_free_their_memory() -> None:
    """Nothing stays in either allocator when the tensors are gone."""
    f = wrap(lambda x: tnp.sin(x) * x)
    x = torch.ones(1 << 22, device="cuda", requires_grad=True)
    f(x).sum().backward()
    x.grad = None
    device = tb.devices("gpu")[0]
    torch.cuda.synchronize()
    gc.collect()
    ours, theirs = device.memory_stats()["bytes_in_use"], torch.cuda.memory_allocated()
    for _ in range(5):
        f(x).sum().backward()
    x.grad = None
    torch.cuda.synchronize()
    gc.collect()
    f(x[:1].detach())  # what torch gave back while it was computing
    assert device.memory_stats()["bytes_in_use"] <= ours + 4096
    assert torch.cuda.memory_allocated() <= theirs + 4096


def test_autocast() -> None:
    """Under autocast of CUDA: cast_inputs as custom_fwd."""
    f = wrap(layer, cast_inputs=torch.bfloat16)
    x, w = randn(3, 4), randn(4, 4)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert f(x, w).dtype == torch.bfloat16
    assert f(x, w).dtype == torch.float32


def test_randomness() -> None:
    """Draws follow torch's seed, on the device of the tensors."""
    f = wrap(lambda x: x + tb.random.normal(tb.random.key(0), x.shape))
    x = randn(5)
    torch.testing.assert_close(f(x), f(x))
