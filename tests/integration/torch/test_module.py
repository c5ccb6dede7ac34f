"""``Module``: parameters from a tree, and everything that torch does with modules."""

from __future__ import annotations

import io
import pickle
from collections import namedtuple
from copy import deepcopy

import numpy as np
import pytest
import torch

import tracebridge.numpy as tnp
from tracebridge.errors import UnsupportedDtypeError
from tracebridge.torch import Module, wrap

pytestmark = pytest.mark.torch

Dense = namedtuple("Dense", "w b")  # noqa: PYI024 - the plain form is what users have


def mlp(params, x):
    hidden = tnp.tanh(x @ params["first"].w + params["first"].b)
    return hidden @ params["second"].w + params["second"].b


def parameters(sizes=(3, 8, 2)):
    g = np.random.default_rng(0)

    def dense(n, m):
        return Dense(tnp.asarray(g.normal(size=(n, m)), "float32"), tnp.zeros(m))

    return {"first": dense(*sizes[:2]), "second": dense(*sizes[1:])}


def model():
    return Module(mlp, parameters())


def native(module):
    """The same network in torch, sharing nothing."""
    first, second = torch.nn.Linear(3, 8), torch.nn.Linear(8, 2)
    with torch.no_grad():
        for layer, name in ((first, "first"), (second, "second")):
            layer.weight.copy_(getattr(module, name).w.t())
            layer.bias.copy_(getattr(module, name).b)
    return torch.nn.Sequential(first, torch.nn.Tanh(), second)


def test_names_follow_the_tree():
    """Parameters are named by their path."""
    names = [name for name, _ in model().named_parameters()]

    assert ["first.w", "first.b", "second.w", "second.b"] == names
    assert sorted(names) == sorted(model().state_dict())


def test_forward_and_gradients():
    """Equal to the network written in torch."""
    module = model()
    reference = native(module)
    x = torch.randn(5, 3)

    module(x).pow(2).sum().backward()
    reference(x).pow(2).sum().backward()

    torch.testing.assert_close(module(x), reference(x))
    torch.testing.assert_close(module.first.w.grad, reference[0].weight.grad.t())
    torch.testing.assert_close(module.second.b.grad, reference[2].bias.grad)


def test_parameters_are_copies():
    """Training in place does not change the arrays that the module was made from."""
    params = parameters()
    module = Module(mlp, params)

    with torch.no_grad():
        module.first.w.fill_(7.0)

    assert not np.any(np.asarray(params["first"].w) == 7.0)


def test_integers_are_buffers():
    """Leaves that cannot have gradients are buffers; numbers and tensors are taken too."""
    module = Module(
        lambda p, x: x * p["scale"] + p["table"][p["index"]] + p["shift"],
        {
            "scale": 2.0,
            "index": np.int32(1),
            "table": torch.arange(3),
            "shift": torch.tensor(0.5, dtype=torch.float64),
        },
    )

    assert {"index", "table"} == {name for name, _ in module.named_buffers()}
    assert {"scale", "shift"} == {name for name, _ in module.named_parameters()}
    assert module(torch.ones(1, dtype=torch.float64)).item() == 3.5


def test_names_that_modules_use_themselves():
    """A key that is an attribute of nn.Module, or has a dot, gets another name."""
    module = Module(
        lambda p, x: x * p["type"] * p["a.b"] * p["list"][0],
        {"type": tnp.ones(()), "a.b": tnp.ones(()), "list": [tnp.ones(())]},
    )

    assert {"type_", "a_b", "list.0"} == set(module.state_dict())
    assert module(torch.ones(1)).item() == 1.0


def test_one_leaf():
    """A tree that is a single array."""
    module = Module(lambda p, x: p * x, tnp.full(2, 3.0))

    assert ["param"] == list(module.state_dict())
    assert [3.0, 3.0] == module(torch.ones(2)).tolist()


def test_shared_leaves_are_one_parameter():
    """Tied weights stay tied; an nn.Parameter is taken as it is."""
    array, own = tnp.ones(2), torch.nn.Parameter(torch.ones(2))
    module = Module(lambda p, x: p[0] * x + p[1] + p[2], [array, array, own])

    assert len(list(module.parameters())) == 2
    assert any(p is own for p in module.parameters())
    module(torch.ones(2)).sum().backward()
    assert [2.0, 2.0] == getattr(module, "0").grad.tolist()


def test_leaves_of_other_kinds_are_refused():
    """The path of the leaf is in the message."""
    with pytest.raises(UnsupportedDtypeError, match=r"params at name is 'relu' of type str"):
        Module(lambda p, x: x, {"name": "relu"})


def test_to_dtype():
    """module.to(dtype) converts parameters, and the program follows."""
    module = model().to(torch.float64)

    out = module(torch.randn(2, 3, dtype=torch.float64))

    assert out.dtype == torch.float64
    assert model().half()(torch.randn(2, 3).half()).dtype == torch.float16


def test_state_dict_round_trip():
    """Saved by torch.save, loaded strictly."""
    first, second = model(), Module(mlp, parameters((3, 8, 2)))
    with torch.no_grad():
        for p in first.parameters():
            p.normal_()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)

    second.load_state_dict(torch.load(file, weights_only=True))

    x = torch.randn(2, 3)
    torch.testing.assert_close(first(x), second(x))


def test_deepcopy_and_pickle():
    """Copies are independent; pickling works where the function can be pickled."""
    module = model()
    copy = deepcopy(module)
    again = pickle.loads(pickle.dumps(module))
    with torch.no_grad():
        module.first.w.zero_()

    x = torch.randn(2, 3)
    torch.testing.assert_close(copy(x), again(x))
    assert not torch.equal(copy(x), module(x))


def test_wrapped_function_and_keywords():
    """The result of wrap serves too, with its static arguments."""
    f = wrap(lambda p, x, n=1: p["w"] * x**n, static_argnames="n")
    module = Module(f, {"w": 2.0})

    assert module(torch.tensor(3.0), n=2).item() == 18.0


def test_training_reduces_the_loss():
    """AdamW on a regression, against the same network in torch, step by step."""
    module = model()
    reference = native(module)
    x = torch.randn(64, 3)
    y = torch.stack([x.sum(1), x.prod(1)], 1)
    losses = []
    for m in (module, reference):
        optimizer = torch.optim.AdamW(m.parameters(), lr=0.05)
        curve = []
        for _ in range(40):
            optimizer.zero_grad()
            loss = (m(x) - y).pow(2).mean()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        losses.append(curve)

    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    assert losses[0][-1] < 0.5 * losses[0][0]


def test_inside_a_sequential_with_native_layers():
    """Gradients flow through native layers on both sides."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), model(), torch.nn.Linear(2, 1))

    net(torch.randn(6, 4)).sum().backward()

    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_functional_call():
    """torch.func.functional_call replaces the parameters."""
    module = model()
    zeros = {name: torch.zeros_like(p) for name, p in module.named_parameters()}

    out = torch.func.functional_call(module, zeros, (torch.randn(2, 3),))

    assert torch.equal(out, torch.zeros(2, 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside torch's own compiler
def test_compile_and_export():
    """The module in one graph; its parameters are the graph's."""
    module = model()
    x = torch.randn(5, 3)
    torch._dynamo.reset()

    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x))
    compiled(x).sum().backward()
    assert module.first.w.grad is not None

    program = torch.export.export(module, (x,))
    assert set(module.state_dict()) == set(program.state_dict)
    torch.testing.assert_close(program.module()(x), module(x))


# gloo warns when it cannot find out the host's name, and about its own deprecations.
@pytest.mark.filterwarnings("ignore")
def test_distributed_data_parallel(process_group):
    """DDP synchronises gradients of the parameters."""
    module = model()
    parallel = torch.nn.parallel.DistributedDataParallel(deepcopy(module))
    x = torch.randn(5, 3)

    parallel(x).sum().backward()
    module(x).sum().backward()

    torch.testing.assert_close(parallel.module.first.w.grad, module.first.w.grad)


@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize("width", [3, 60])
def test_fully_sharded(process_group, width):
    """FSDP2 resizes the storage of parameters: nothing of ours may hold on to it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    weights = {"w": 0.1 * torch.randn(width, width)}
    module = model() if width == 3 else Module(lambda p, x: tnp.tanh(x @ p["w"]), weights)
    sharded = deepcopy(module)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (1,)))
    x = torch.randn(5, width)
    losses = []
    for m in (module, sharded):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.01)
        curve = []
        for _ in range(4):
            loss = m(x).pow(2).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            curve.append(loss.item())
        losses.append(curve)

    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "complex64", "float16"])
def test_parameters_are_where_programs_can_read_them(dtype):
    """Values of NumPy, of transposed tensors and of slices get dense, aligned memory of torch."""
    n = 96
    block = np.ones(n * n + 3, dtype)
    leaves = {
        "numpy": np.ones((n, n), dtype),
        "misaligned": block[3:].reshape(n, n),
        "readonly": np.broadcast_to(np.ones((), dtype), (n, n)),
        "fortran": np.asfortranarray(np.ones((n, n), dtype)),
        "array": tnp.asarray(np.ones((n, n), "float32")),
        "transposed": torch.from_numpy(np.ones((n, n), dtype)).T,
        "slice": torch.from_numpy(block)[3:].reshape(n, n),
    }

    module = Module(lambda p, x: sum(v.sum() for v in p.values()) * x, leaves)

    owned = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    assert set(leaves) == set(owned)
    for name, tensor in owned.items():
        assert tensor.is_contiguous(), name
        assert 0 == tensor.data_ptr() % 64, name
        assert tensor.untyped_storage().resizable(), name
        torch.testing.assert_close(tensor.detach(), torch.ones_like(tensor))
