"""Autocast and memory formats: what torch's own operations do with dtypes and strides."""

from __future__ import annotations

import pickle

import pytest
import torch

import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentSpecError
from tracebridge.torch import Module, train_step, wrap

pytestmark = pytest.mark.torch


class Reference(torch.autograd.Function):
    """A product as a user writes it by ``custom_fwd``."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside torch's own compiler
def test_cast_inputs_is_custom_fwd(backend):
    """Dtypes of results and gradients, in regions of autocast and outside of them."""
    product = wrap(lambda x, w: x @ w, cast_inputs=torch.bfloat16)
    torch._dynamo.reset()
    call = product
    if backend != "eager":  # wrapped in compiled code

        @torch.compile(backend=backend, fullgraph=True)
        def call(x, w):
            return wrap(lambda x, w: x @ w, cast_inputs=torch.bfloat16)(x, w)

    x, w = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.ones(4, 2)
    for enabled in (False, True):
        ours = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        theirs = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        with torch.autocast("cpu", enabled=enabled):
            out, expected = call(*ours), Reference.apply(*theirs)
        assert out.dtype == expected.dtype == (torch.bfloat16 if enabled else torch.float32)
        torch.testing.assert_close(out, expected)
        out.sum().backward()
        expected.sum().backward()
        for a, b in zip(ours, theirs, strict=True):
            assert a.grad.dtype == b.grad.dtype == torch.float32
            torch.testing.assert_close(a.grad, b.grad, atol=0.02, rtol=0.02)


def test_what_is_cast():
    """The dtype of the region; no float64, no integers; static arguments, trees, keywords."""
    seen = []

    def fun(tree, n, *, y):
        seen.append([v.dtype.name for v in (tree["f"], tree["d"], tree["i"], y)])
        return tree["f"] * n

    cast = pickle.loads(pickle.dumps(wrap(cast_me, cast_inputs="autocast")))
    with torch.autocast("cpu", torch.float16):
        assert cast(torch.ones(2)).dtype == torch.float16
    with torch.autocast("cpu"):
        assert cast(torch.ones(2)).dtype == torch.bfloat16
        tree = {"f": torch.ones(2), "d": torch.ones(2).double(), "i": torch.ones(2).int()}
        wrap(fun, static_argnums=1, cast_inputs="autocast")(tree, 2, y=torch.ones(2))
        wrap(fun, static_argnums=1)(tree, 2, y=torch.ones(2))
    assert seen == [
        ["bfloat16", "float64", "int32", "bfloat16"],
        ["float32", "float64", "int32", "float32"],
    ]
    with pytest.raises(ArgumentSpecError, match="cast_inputs is 'half'"):
        wrap(fun, cast_inputs="half")
    with pytest.raises(ArgumentSpecError, match="cast_inputs is torch"):
        wrap(fun, cast_inputs=torch.int32)


def cast_me(x):
    """A function that can be pickled."""
    return x * 2


def test_modules_cast_no_state():
    """Running averages keep their precision, parameters stay as they are."""

    def fun(p, s, x):
        mean = tnp.mean(x * p)
        return x * p, {"mean": s["mean"] + mean.astype("float32") * 1e-3}

    module = Module(fun, tnp.ones(3), state={"mean": tnp.ones(())}, cast_inputs=torch.bfloat16)
    with torch.autocast("cpu"):
        out = module(torch.ones(3))
    assert (out.dtype, module.param.dtype) == (torch.bfloat16, torch.float32)
    assert module.mean.item() == pytest.approx(1.001, abs=1e-6)
    out.float().sum().backward()
    assert module.param.grad.tolist() == [1.0] * 3


def images(x, w, k):
    """A convolution and its sum over the image."""
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    return {"y": y * k, "mean": tnp.mean(y, (2, 3))}


def test_channels_last_is_kept():
    """Results and gradients are those of dense images, in the memory format of torch's own."""
    call = wrap(images)
    g = torch.Generator().manual_seed(0)
    dense = [torch.randn(2, 3, 5, 4, generator=g), torch.randn(6, 3, 3, 3, generator=g)]
    last = [x.to(memory_format=torch.channels_last).requires_grad_() for x in dense]
    dense = [x.requires_grad_() for x in dense]
    expected = torch.nn.functional.conv2d(*dense, padding=1)
    for given in (last, [last[0], dense[1]], [dense[0], last[1]]):
        out = call(*given, 2.0)
        assert out["y"].is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(out["y"], expected * 2, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(out["mean"], expected.mean((2, 3)), atol=1e-4, rtol=1e-4)
        ours = torch.autograd.grad((out["y"] ** 2).sum(), given)
        theirs = torch.autograd.grad(((expected * 2) ** 2).sum(), dense, retain_graph=True)
        torch.testing.assert_close(ours, theirs, atol=1e-2, rtol=1e-3)
    assert call(*dense, 2.0)["y"].is_contiguous()
    video = torch.arange(48.0).reshape(1, 2, 2, 3, 4)
    video = video.to(memory_format=torch.channels_last_3d)
    out = wrap(lambda x: x[:, ::-1])(video)
    assert torch.equal(out, video.flip(1))
    assert out.is_contiguous(memory_format=torch.channels_last_3d)
    rows = torch.func.vmap(wrap(cast_me))(last[0].detach()[None])
    assert torch.equal(rows[0], dense[0].detach() * 2)


def test_train_step_leaves_strides_alone():
    """One parameter with channels last: it and the others keep their memory format."""
    w = torch.ones(8, 4, 32, 32)
    params = {"a": w.to(memory_format=torch.channels_last), "b": w.clone()}
    module = Module(lambda p, x: (p["a"] * p["b"]).sum() * x, params)
    module.a.data = module.a.data.to(memory_format=torch.channels_last)
    step = train_step(module, lambda out, _: out, torch.optim.SGD(module.parameters(), lr=0.5))
    step(1.0, 0.0)
    assert module.b.is_contiguous()
    assert module.a.is_contiguous(memory_format=torch.channels_last)
    assert module.a.mean().item() == module.b.mean().item() == 0.5
