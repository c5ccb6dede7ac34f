"""Checks that two processes make together; test_distributed.py starts the second one.

python distributed_cases.py RENDEZVOUS    is the second process
"""

from __future__ import annotations

import sys
from copy import deepcopy
from datetime import timedelta

import pytest
import torch
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.torch import Module, train_step, wrap

PROCESSES = 2
WHOLE = [Replicate()]


def together(rank: int, rendezvous: str) -> None:
    """All checks, one after the other, as one of the processes."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=PROCESSES,
        timeout=timedelta(seconds=60),
    )
    try:
        mesh = init_device_mesh("cpu", (PROCESSES,))
        for check in (
            whole_tensors,
            axes_of_programs,
            rows_and_columns,
            derivatives_of_programs,
            sizes_in_programs,
            mapped_axes,
            second_order,
            uneven_shards,
            more_axes,
            messages,
            graphs,
            data_parallel,
            fully_sharded,
            tensor_parallel,
        ):
            torch.manual_seed(0)  # the same values everywhere
            check(mesh)
        torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()


def network(p, x):
    """For a batch; what mixes its entries is the mean, and the columns of w the softmax."""
    return tb.nn.softmax((x - tnp.mean(x, axis=0)) @ p["w"])


def entry(p, x):
    """For one entry."""
    return tnp.tanh(x @ p["w"]) @ p["v"]


def values(n=4):
    """Parameters and a batch."""
    params = {"w": torch.randn(3, 5) / 2, "v": torch.randn(5, 2) / 2}
    return params, torch.randn(n, 3)


def on(mesh, placements, *tensors):
    """Leaves on the mesh."""
    return [distribute_tensor(t, mesh, placements).requires_grad_() for t in tensors]


def same(x, y):
    """A DTensor beside a tensor of this process."""
    assert isinstance(x, DTensor)
    torch.testing.assert_close(x.full_tensor(), y.detach())


def whole_tensors(mesh):
    """A function that mixes all entries gets whole tensors, whatever their shards."""
    params, x = values()
    leaf = params["w"].clone().requires_grad_()
    expected = network({"w": leaf.detach().numpy()}, x.numpy())
    f = wrap(network)
    plain = f({"w": leaf}, x)
    plain.square().sum().backward()
    (w,) = on(mesh, [Shard(1)], params["w"])
    (data,) = on(mesh, [Shard(0)], x)

    out = f({"w": w}, data)
    out.square().sum().backward()

    torch.testing.assert_close(plain.detach(), torch.from_dlpack(expected))
    assert out.placements == (Replicate(),)
    same(out, plain)
    same(w.grad, leaf.grad)
    scaled = wrap(lambda x, s, n: x * s + n)(data, torch.tensor(2.0), 1)
    same(scaled, 2 * x + 1)


def divided(mesh, f, *given):
    """Results of f at DTensors and gradients of both, beside those of one process."""
    plain = [x.clone().requires_grad_() for x, _ in given]
    shards = [on(mesh, [placement], x)[0] for x, placement in given]
    out, wanted = f(*shards), f(*plain)
    same(out, wanted)
    out.square().sum().backward()
    wanted.square().sum().backward()
    for x, y in zip(shards, plain, strict=True):
        same(x.grad, y.grad)
    return out, shards


def axes_of_programs(mesh):
    """Axes that go through the program stay divided: batch, features, heads, positions."""
    gelu = wrap(lambda x, b: tb.nn.gelu(x * 2 + b))
    x, b = torch.randn(4, 6), torch.randn(6)
    for axis, of_bias, grad in ((0, Replicate(), Partial()), (1, Shard(0), Shard(0))):
        out, shards = divided(mesh, gelu, (x, Shard(axis)), (b, of_bias))
        assert out.placements == shards[0].grad.placements == (Shard(axis),)
        assert shards[1].grad.placements == (grad,)
        assert out.to_local().shape == ((2, 6) if axis == 0 else (4, 3))
    # What is whole is cut where that is enough.
    out, _ = divided(mesh, gelu, (x, Replicate()), (b, Shard(0)))
    assert out.placements == (Shard(1),)

    def attention(q, k, v):
        scores = tnp.einsum("bqhd,bkhd->bhqk", q, k)
        return tnp.einsum("bhqk,bkhd->bqhd", tb.nn.softmax(scores, axis=-1), v)

    q, k, v = torch.randn(3, 2, 4, 2, 5).unbind()
    for axis, whole in ((1, Replicate()), (2, Shard(2))):
        out, _ = divided(mesh, wrap(attention), (q, Shard(axis)), (k, whole), (v, whole))
        assert out.placements == (Shard(axis),)


def rows_and_columns(mesh):
    """Products: columns of a matrix, its rows with a sum of terms, both one after the other."""
    product = wrap(lambda x, w: x @ w)
    x, w = torch.randn(4, 6), torch.randn(6, 2)
    for of_x, of_w, result in (
        (Replicate(), Shard(1), Shard(1)),
        (Shard(1), Shard(0), Partial()),
        (Shard(1), Replicate(), Partial()),
        (Shard(0), Shard(1), Shard(0)),  # either the rows or the columns, whatever moves less
        (Shard(0), Replicate(), Shard(0)),
    ):
        out, _ = divided(mesh, product, (x, of_x), (w, of_w))
        assert out.placements == (result,), (of_x, of_w, out.placements)
    two = wrap(lambda x, v, w: tnp.tanh(x @ v) @ w)
    out, shards = divided(
        mesh, two, (x, Replicate()), (torch.randn(6, 4), Shard(1)), (torch.randn(4, 2), Shard(0))
    )
    assert out.placements == shards[0].grad.placements == (Partial(),)
    assert [(Shard(1),), (Shard(0),)] == [s.grad.placements for s in shards[1:]]
    # Nothing but linear functions may follow a sum of terms.
    out, _ = divided(mesh, wrap(lambda x, w: tnp.tanh(x @ w)), (x, Shard(1)), (w, Shard(0)))
    assert out.placements == (Replicate(),)


def derivatives_of_programs(mesh):
    """Derivatives of derivatives, tangents, rules of one's own, and meshes of two axes."""
    f = wrap(lambda x, w: tnp.sin(x @ w))

    def curvature(x, w):
        (g,) = torch.autograd.grad(f(x, w).square().sum(), w, create_graph=True)
        return torch.autograd.grad((g * g).sum(), (x, w))

    given = torch.randn(4, 3), torch.randn(3, 6)
    plain = curvature(*[x.clone().requires_grad_() for x in given])
    for of_x, of_w in ((Shard(0), Replicate()), (Replicate(), Shard(1))):
        (x,), (w,) = on(mesh, [of_x], given[0]), on(mesh, [of_w], given[1])
        for ours, wanted in zip(curvature(x, w), plain, strict=True):
            same(ours, wanted)

    # The backward rule mixes what the function does not.
    @tb.custom_vjp
    def halves(x):
        return x / 2

    halves.defvjp(lambda x: (halves(x), None), lambda _, g: (g / tnp.max(tnp.abs(g)),))
    out, shards = divided(mesh, wrap(halves), (given[0], Shard(0)))
    assert out.placements == (Shard(0),)
    assert shards[0].grad.placements == (Replicate(),)
    square = init_device_mesh("cpu", (PROCESSES, 1))
    x = distribute_tensor(given[0], square, (Shard(0), Replicate()))
    w = distribute_tensor(given[1], square, (Replicate(), Shard(1)))
    out = f(x, w)
    assert out.placements == (Shard(0), Shard(1))
    same(out, f(*given))


def sizes_in_programs(mesh):
    """Functions that read sizes: their shards would be others. Uneven and empty shards."""
    mean = wrap(lambda x: x * x.shape[0] + tnp.sum(x, axis=1, keepdims=True))
    x = torch.randn(5, 3)
    assert divided(mesh, mean, (x, Shard(0)))[0].placements == (Replicate(),)
    fixed = wrap(lambda x: x.reshape(5, 3) * 2)
    assert divided(mesh, fixed, (x, Shard(0)))[0].placements == (Replicate(),)
    each = wrap(lambda x: tnp.tanh(x).reshape(x.shape[0], 3, 1))
    assert divided(mesh, each, (x, Shard(0)))[0].placements == (Shard(0),)
    assert each(on(mesh, [Shard(0)], x[:1])[0]).placements == (Replicate(),)
    counted = wrap(lambda x: x * tnp.arange(5.0)[:, None])
    assert divided(mesh, counted, (x, Shard(0)))[0].placements == (Replicate(),)
    narrow = wrap(lambda x: tnp.sum(x))(on(mesh, [Shard(0)], x.bfloat16())[0])
    assert (narrow.dtype, narrow.placements) == (torch.bfloat16, (Partial(),))
    many = wrap(lambda x: (x + 1, tnp.argmax(x, axis=1)))
    rest, best = many(on(mesh, [Shard(0)], x.double())[0])
    assert rest.placements == best.placements == (Shard(0),)
    torch.testing.assert_close(best.full_tensor().long(), x.argmax(1))


def mapped_axes(mesh):
    """Shards along a mapped axis stay, and an optimizer steps as in one process."""
    params, x = values()
    module = Module(tb.vmap(entry, in_axes=(None, 0)), params)
    plain = deepcopy(module)
    for name, p in list(module.named_parameters()):
        setattr(module, name, torch.nn.Parameter(distribute_tensor(p.detach(), mesh, WHOLE)))
    (data,) = on(mesh, [Shard(0)], x)
    losses = []
    for m, batch in ((module, data), (plain, x.clone().requires_grad_())):
        optimizer = torch.optim.AdamW(m.parameters(), lr=0.1)
        for _ in range(2):
            out = m(batch)
            loss = out.square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append((out, loss, batch.grad))

    (out, loss, grad), (out_plain, loss_plain, grad_plain) = losses
    assert out.placements == grad.placements == (Shard(0),)
    assert out.to_local().shape == (2, 2)
    assert module.w.grad.placements == (Partial(),)
    same(out, out_plain)
    same(loss, loss_plain)
    same(grad, grad_plain)
    for name, p in plain.named_parameters():
        same(getattr(module, name), p)
    # Two axes; results have the mapped one where out_axes says.
    product = wrap(tb.vmap(tb.vmap(lambda x, y: x * y), in_axes=(-1, 0), out_axes=1))
    (a,) = on(mesh, [Shard(0)], x)
    (b,) = on(mesh, [Shard(1)], x.T.contiguous())
    both = product(a, b)
    assert both.placements == (Shard(0),)
    same(both, x * x)


def second_order(mesh):
    """Derivatives of derivatives, and tangents."""
    params, x = values()
    f = wrap(tb.vmap(lambda w, x: tnp.sum(tnp.sin(x @ w)), in_axes=(None, 0)))

    def curvature(w, x):
        (g,) = torch.autograd.grad(f(w, x).square().sum(), w, create_graph=True)
        return torch.autograd.grad((g * g).sum(), (w, x))

    plain = curvature(params["w"].clone().requires_grad_(), x.clone().requires_grad_())
    (w,), (data,) = on(mesh, WHOLE, params["w"]), on(mesh, [Shard(0)], x)
    for ours, wanted in zip(curvature(w, data), plain, strict=True):
        same(ours, wanted)
    # torch's own way to say which shards a function wants, where nothing tells us.
    divided = local_map(
        wrap(lambda w, x: tnp.sum(tnp.sin(x @ w), axis=1)),
        out_placements=[Shard(0)],
        in_placements=(WHOLE, [Shard(0)]),
        in_grad_placements=([Partial()], [Shard(0)]),
        device_mesh=mesh,
    )
    for ours, wanted in zip(
        torch.autograd.grad(divided(w, data).sum(), (w, data)),
        torch.autograd.grad(f(w, data).sum(), (w, data)),
        strict=True,
    ):
        same(ours, wanted.full_tensor())


def uneven_shards(mesh):
    """Shards of different sizes, and too few entries for all processes."""
    f = wrap(tb.vmap(entry, in_axes=(None, 0)))
    for n, placement in ((5, Shard(0)), (1, Replicate())):
        params, x = values(n)
        leaves = {k: on(mesh, WHOLE, p)[0] for k, p in params.items()}
        out = f(leaves, on(mesh, [Shard(0)], x)[0])
        out.square().sum().backward()
        wanted = {k: p.clone().requires_grad_() for k, p in params.items()}
        f(wanted, x).square().sum().backward()
        assert out.placements == (placement,)
        same(out, f(params, x))
        for k, p in wanted.items():
            same(leaves[k].grad, p.grad)


def more_axes(mesh):
    """Meshes of two axes, inference mode, and shards that no function knows of."""
    params, x = values()
    f = wrap(tb.vmap(entry, in_axes=(None, 0)))
    square = init_device_mesh("cpu", (PROCESSES, 1))
    for first, second, placements in (
        (Shard(0), Shard(0), (Shard(0), Shard(0))),
        (Shard(0), Replicate(), (Shard(0), Replicate())),
        (Shard(1), Shard(0), (Replicate(), Shard(0))),
        (Partial(), Replicate(), (Replicate(), Replicate())),
    ):
        leaves = {k: distribute_tensor(p, square, 2 * WHOLE) for k, p in params.items()}
        share = x / PROCESSES
        data = DTensor.from_local(share, square, (first, second)) if first.is_partial() else (
            distribute_tensor(x, square, (first, second))
        )  # fmt: skip
        with torch.inference_mode():
            out = f(leaves, data)
        assert out.placements == placements
        same(out, f(params, x))
    other = {**leaves, "w": on(mesh, WHOLE, params["w"])[0]}
    with pytest.raises(ExchangeError, match=r"(?s)entry: tensor 0 is a DTensor on .*one mesh"):
        f(other, distribute_tensor(x, square, 2 * WHOLE))


def messages(mesh):
    """What cannot be says so, with the way out, in all processes."""
    params, x = values()
    with pytest.raises(ExchangeError, match=r"network: tensor 1, of shape \(4, 3\).*a DTensor"):
        wrap(network)({"w": on(mesh, WHOLE, params["w"])[0]}, x)
    module = Module(network, {"w": params["w"]})
    optimizer = torch.optim.SGD(module.parameters())
    for distributed in (torch.nn.parallel.DistributedDataParallel(module), fully_shard(module)):
        with pytest.raises(ArgumentSpecError, match="processes"):
            train_step(distributed, torch.nn.MSELoss(), optimizer)


def graphs(mesh):
    """In code that torch compiles."""
    params, x = values()
    f = wrap(tb.vmap(entry, in_axes=(None, 0)))
    compiled = torch.compile(lambda p, x: 2 * f(p, x), backend="aot_eager", fullgraph=True)
    leaves = {k: on(mesh, WHOLE, p)[0] for k, p in params.items()}
    out = compiled(leaves, on(mesh, [Shard(0)], x)[0])
    out.square().sum().backward()
    wanted = {k: p.clone().requires_grad_() for k, p in params.items()}
    (2 * f(wanted, x)).square().sum().backward()
    assert out.placements == (Shard(0),)
    for k, p in wanted.items():
        same(leaves[k].grad, p.grad)


def data_parallel(mesh):
    """DDP: each process its part of the batch, gradients averaged."""
    params, x = values()
    module = Module(tb.vmap(entry, in_axes=(None, 0)), params)
    plain = deepcopy(module)
    parallel = torch.nn.parallel.DistributedDataParallel(module)
    parallel(x[mesh.get_rank() :: 2]).square().mean().backward()
    plain(x).square().mean().backward()
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def fully_sharded(mesh):
    """FSDP2: each process its part of the parameters, too."""
    params, x = values()
    module = Module(network, {"w": params["w"]})
    plain = deepcopy(module)
    fully_shard(module, mesh=mesh)
    for m in (module, plain):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        for _ in range(2):
            m(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    same(module.w, plain.w)
    assert module.w.to_local().shape == (2 if mesh.get_rank() == 0 else 1, 5)


def tensor_parallel(mesh):
    """Between layers whose columns and rows are divided, an elementwise module stays divided."""
    gelu = tb.vmap(tb.vmap(lambda s, x: s * tb.nn.gelu(x), in_axes=(None, 0)), in_axes=(None, 0))
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 6), Module(gelu, torch.tensor(1.5)), torch.nn.Linear(6, 2)
    )
    plain, x = deepcopy(net), torch.randn(4, 3)
    parallelize_module(
        net,
        mesh,
        {
            "0": ColwiseParallel(use_local_output=False),
            "1": PrepareModuleInput(
                input_layouts=Shard(-1), desired_input_layouts=Shard(-1), use_local_output=False
            ),
            "2": RowwiseParallel(input_layouts=Shard(-1)),
        },
    )
    seen = []
    net[1].register_forward_hook(
        lambda _, args, out: seen.append((args[0].placements, out.placements))
    )
    out, wanted = net(x), plain(x)
    out.square().sum().backward()
    wanted.square().sum().backward()
    assert seen == [((Shard(1),), (Shard(1),))]
    torch.testing.assert_close(out, wanted)
    same(net[0].weight.grad, plain[0].weight.grad)
    same(net[1].param.grad, plain[1].param.grad)


if __name__ == "__main__":
    together(1, sys.argv[1])
