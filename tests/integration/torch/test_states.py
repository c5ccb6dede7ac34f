"""States of tensors, modules and threads that training programs come with."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tracebridge.numpy as tnp
from tracebridge.torch import Module, wrap

pytestmark = [
    pytest.mark.torch,
    # torch itself still uses TorchScript, which it deprecates, in its forward-mode formulas.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
layer = wrap(lambda x, w, b: tnp.tanh(x @ w) + b)


def native(x: Any, w: Any, b: Any) -> Any:
    """The same function of torch."""
    return torch.tanh(x @ w) + b


def arguments(*, grad: bool = True, rows: int = 5) -> list[Any]:
    """Argument tensors of the layer."""
    # Not the global generator: threads share that.
    generator = torch.Generator().manual_seed(0)
    shapes = [(rows, 4), (4, 3), (3,)]
    return [torch.randn(s, generator=generator, requires_grad=grad) for s in shapes]


def close(expected: Any, actual: Any) -> None:
    """Equal but for rounding."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_hooks_of_tensors_and_nodes() -> None:
    """Hooks see and change gradients as with operations of torch."""
    xs, ys = arguments(), arguments()
    seen: list[Any] = []
    for tensors, function in ((xs, layer), (ys, native)):
        tensors[0].register_hook(lambda g: g * 2)
        tensors[1].register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.shape))
        result = function(*tensors)
        result.register_hook(lambda g: g * 3)
        result.grad_fn.register_hook(lambda *_: seen.append("node"))
        result.sum().backward()

    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    for x, y in zip(xs, ys, strict=True):
        close(y.grad, x.grad)


def test_the_graph_is_freed_unless_it_is_retained() -> None:
    """``retain_graph`` allows a second pass; after the last one there is torch's own error."""
    xs = arguments()
    loss = layer(*xs).sum()
    first = torch.autograd.grad(loss, xs, retain_graph=True)
    second = torch.autograd.grad(loss, xs)

    close(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, xs)


def test_expanded_and_empty_arguments() -> None:
    """Gradients of expanded tensors are summed; tensors without elements have empty ones."""
    x, w, _ = arguments()
    one = torch.zeros(1, requires_grad=True)
    layer(x, w, one.expand(3)).sum().backward()

    close(torch.tensor([15.0]), one.grad)
    none = torch.zeros(0, 4, requires_grad=True)
    result = layer(none, w, torch.zeros(3))
    assert (0, 3) == tuple(result.shape)
    result.sum().backward()
    assert (0, 4) == tuple(none.grad.shape)


def test_meta_tensors_give_meta_tensors() -> None:
    """Shapes and dtypes without values, as with operations of torch."""
    result = layer(*[x.to("meta") for x in arguments(grad=False)])

    assert result.is_meta
    assert (5, 3) == tuple(result.shape)


def test_subclasses_are_tensors() -> None:
    """A subclass that changes no operation is used as the tensor that it is."""

    class Named(torch.Tensor):
        pass

    x, w, b = arguments()
    result = layer(x.as_subclass(Named), w, b)
    result.sum().backward()

    close(native(x, w, b).detach(), result.detach().as_subclass(torch.Tensor))
    assert isinstance(w.grad, torch.Tensor)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_traces_of_torch_jit_hold_the_call() -> None:
    """The graph calls the function; it does not keep what the example gave."""
    traced = torch.jit.trace(lambda x, w, b: layer(x, w, b) + x.sum(), arguments(grad=False))
    others = [2 * x for x in arguments(grad=False)]

    close(native(*others) + others[0].sum(), traced(*others))


def test_anomaly_mode() -> None:
    """Backward under ``detect_anomaly``."""
    xs, ys = arguments(), arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode is on
        with torch.autograd.set_detect_anomaly(True):
            layer(*xs).sum().backward()
    native(*ys).sum().backward()

    close(ys[0].grad, xs[0].grad)


def test_functions_of_autograd_functional() -> None:
    """Jacobians, Hessians and products by the older interface."""
    x, w, b = arguments(grad=False)
    tools = torch.autograd.functional
    v = torch.ones_like(x)
    for tool, extra in (
        (tools.jacobian, ()),
        (tools.hessian, ()),
        (tools.vhp, (v,)),
        (tools.jvp, (v,)),
    ):
        expected = tool(lambda x: native(x, w, b).sum(), x, *extra)

        close(expected, tool(lambda x: layer(x, w, b).sum(), x, *extra))


def test_axes_and_chunks_of_vmap() -> None:
    """``in_dims``, ``out_dims``, ``chunk_size``, nesting, and gradients inside."""
    _, w, b = arguments(grad=False)
    xs, ws = torch.randn(5, 4, 6), torch.randn(6, 4, 3)
    vmap, grad = torch.func.vmap, torch.func.grad
    for f in (
        lambda h: vmap(h, (2, None, None), 1)(xs, w, b),
        lambda h: vmap(h, (2, None, None), chunk_size=4)(xs, w, b),
        lambda h: vmap(vmap(h, (0, None, None)), (None, 0, None))(xs.permute(2, 0, 1), ws, b),
        lambda h: vmap(grad(lambda w, x: h(x, w, b).sum()), (0, None))(ws, xs[..., 0]),
        lambda h: torch.func.jvp(grad(lambda w: h(xs[..., 0], w, b).sum()), (w,), (w,))[1],
    ):
        close(f(native), f(layer))


def test_results_may_be_changed_in_place() -> None:
    """A result that the backward pass does not need is memory of the caller."""
    xs, ys = arguments(), arguments()
    for tensors, function in ((xs, layer), (ys, native)):
        result = function(*tensors)
        result.mul_(2.0)
        result[0].zero_()
        result.sum().backward()

    close(ys[1].grad, xs[1].grad)


def make_module() -> Any:
    """A module of two leaves."""
    params = {"w": tnp.ones((4, 3)), "rest": [tnp.zeros(3)]}
    return Module(_apply, params)


def _apply(params: Any, x: Any) -> Any:
    return tnp.tanh(x @ params["w"]) + params["rest"][0]


@pytest.mark.parametrize("name", ["SGD", "AdamW", "LBFGS"])
def test_optimizers(name: str) -> None:
    """A step lowers the loss."""
    module = make_module()
    optimizer = getattr(torch.optim, name)(module.parameters(), lr=0.01)
    # LBFGS raises the loss of one in fifty random inputs, in torch too.
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))

    def loss() -> Any:
        optimizer.zero_grad()
        value = module(x).square().sum()
        value.backward()
        return value

    before = loss().item()
    optimizer.step(loss)

    assert module(x).square().sum().item() < before


def test_hooks_and_parametrizations_of_modules() -> None:
    """Modules are modules: hooks run, parameters may be computed, gradients may be clipped."""
    module = make_module()
    calls: list[str] = []
    module.register_forward_pre_hook(lambda *_: calls.append("before"))
    module.register_forward_hook(lambda *_: calls.append("after"))
    module.register_full_backward_hook(lambda *_: calls.append("backward"))
    module(torch.randn(2, 4, requires_grad=True)).sum().backward()

    assert ["before", "after", "backward"] == calls
    assert torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0) > 0

    class Double(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return 2 * x

    x = torch.randn(2, 4)
    plain = make_module()
    torch.nn.utils.parametrize.register_parametrization(plain, "w", Double())
    close(torch.tanh(x @ torch.full((4, 3), 2.0)), plain(x))


def test_threads_with_their_own_graphs() -> None:
    """Eight threads call and differentiate one function at once."""
    expected = torch.autograd.grad(native(*(xs := arguments())).sum(), xs)
    failures: list[BaseException] = []

    def work(rows: int) -> None:
        try:
            for _ in range(10):
                layer(*arguments(rows=rows)).sum().backward()
                own = arguments()
                close(expected, torch.autograd.grad(layer(*own).sum(), own))
        except BaseException as error:  # noqa: BLE001 - reported in the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures, failures


def test_numbers_of_random_generators_stay() -> None:
    """A call draws no random numbers of torch."""
    xs = arguments(grad=False)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    layer(*xs)

    np.testing.assert_array_equal(expected, torch.rand(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_default_device_is_that_of_others(dtype: torch.dtype) -> None:
    """Results are where the tensors are, or on the CPU, wherever torch makes its own."""
    f = wrap(lambda x, n=2.0: x * n)
    x = torch.ones(5000, dtype=dtype, requires_grad=True)
    host = np.ones(3, np.float32)
    with torch.device("meta"):
        results = [f(x), f(x, 3.0), torch.func.vmap(f)(x.detach()), f(host), f(2.0)]
        (gradient,) = torch.autograd.grad(results[0], x, torch.ones_like(x), create_graph=True)

    assert {"cpu"} == {r.device.type for r in [*results, gradient]}
    assert [2.0, 3.0, 2.0, 2.0, 4.0] == [r.max().item() for r in results]
    assert (gradient == 2).all()
