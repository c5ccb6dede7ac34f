"""What could go silently wrong between torch and XLA, and does not."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap

pytestmark = pytest.mark.torch


def run(code: str, environment: dict[str, str], *arguments: str) -> str:
    """The output of a program in a fresh process, which must end well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_changing_a_saved_input_is_an_error():
    """As in torch: version counters see that a tensor was written to before its backward pass."""
    x = torch.randn(3, requires_grad=True)
    y = x * 1
    out = wrap(lambda y: tnp.sum(y**2))(y)

    with torch.no_grad():
        y.add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_changing_a_saved_result_is_an_error():
    """A result that serves as a residual is watched; never a wrong gradient."""
    f = wrap(lambda x: tnp.tanh(x))
    x = torch.randn(100_000, requires_grad=True)
    expected = torch.autograd.grad(torch.tanh(x).sum(), x)[0]
    out = f(x)

    with torch.no_grad():
        out.mul_(100)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(torch.autograd.grad(f(x).sum(), x)[0], expected)


def test_changing_an_argument_after_the_call():
    """The result was computed from the old values, also for misaligned memory."""
    f = wrap(lambda x: x @ x)
    for offset in (0, 1):
        x = torch.ones(256 * 256 + offset)[offset:].reshape(256, 256)
        out = f(x)
        x.zero_()

        assert (out == 256).all()


def test_changing_a_result_does_not_change_a_constant():
    """Programs that return a constant return a copy of it."""
    constant = tnp.arange(1000.0)
    f = wrap(lambda x: (constant, x + 1.0))
    x = torch.zeros(1)

    f(x)[0].fill_(-1)

    assert f(x)[0].sum() == 499_500
    assert float(tnp.sum(constant)) == 499_500


def test_the_asynchronous_client_is_as_safe(subprocess_environment):
    """With cpu_async_dispatch a call still ends before torch may write to its arguments."""
    run(
        """
        import torch
        import tracebridge as tb
        tb.config.update("cpu_async_dispatch", True)
        from tracebridge.torch import wrap
        f = wrap(lambda x, y: (x @ y) @ x)
        for i in range(10):
            x = torch.ones(400, 400)
            out = f(x, x)
            x.zero_()
            assert (out == 160_000).all(), i
            y = torch.ones(400, 400, requires_grad=True)
            z = y.detach().clone().requires_grad_()
            f(y, z).sum().backward()
            y.data.zero_()
            assert (z.grad == 160_000).all()
        """,
        subprocess_environment,
    )


def test_forked_children_raise(subprocess_environment):
    """XLA's threads do not survive a fork: a call would hang, also of a compiled function."""
    out = run(
        """
        import os, sys, warnings
        import torch
        from tracebridge.errors import ForkedProcessError
        from tracebridge.torch import wrap
        warnings.simplefilter("ignore")  # Python warns of forks with threads
        f = wrap(lambda x: x * 2)
        x = torch.ones(3, requires_grad=True)
        y = f(x)
        y.sum().backward(retain_graph=True)
        child = os.fork()
        if child == 0:
            caught = 0
            for use in (lambda: f(x), lambda: f(x.detach()), lambda: y.sum().backward()):
                try:
                    use()
                except ForkedProcessError:
                    caught += 1
            os._exit(caught)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        subprocess_environment,
    )

    assert out.split() == ["3"]


def test_captured_functions_live_as_long_as_their_graph():
    """A graph holds only a name; the function behind it is kept."""
    f = wrap(lambda x: tnp.cos(x))
    program = torch.export.export(_module(f), (torch.ones(3),))

    del f
    gc.collect()

    torch.testing.assert_close(program.module()(torch.ones(3)), torch.ones(3).cos())


def _module(f):
    class Calls(torch.nn.Module):
        def forward(self, x):
            return f(x)

    return Calls()


MODULE = """
import tracebridge.numpy as tnp
from tracebridge.torch import wrap

@wrap
def network(params, x, scale=1.0):
    return {"out": tnp.tanh(x @ params["w"]) * scale}
"""


@pytest.mark.filterwarnings("ignore")
def test_exported_programs_load_in_another_process(subprocess_environment, tmp_path):
    """The name of a function in a graph is its import path: who imports the module can run it."""
    (tmp_path / "my_model.py").write_text(MODULE, encoding="utf-8")
    environment = dict(subprocess_environment)
    environment["PYTHONPATH"] += f":{tmp_path}"
    path = str(tmp_path / "program.pt2")

    saved = run(
        """
        import sys, torch
        from my_model import network

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.w = torch.nn.Parameter(torch.randn(3, 2))

            def forward(self, x):
                return network({"w": self.w}, x, scale=2.0)["out"]

        x = torch.ones(4, 3)
        program = torch.export.export(Model(), (x,))
        torch.export.save(program, sys.argv[1])
        print(program.module()(x).sum().item())
        """,
        environment,
        path,
    )
    loaded = run(
        """
        import sys, torch
        import tracebridge.torch  # defines the operator
        program = torch.export.load(sys.argv[1])
        module = program.module()
        try:
            module(torch.ones(4, 3))
        except Exception as error:
            assert "import the module that wraps it" in str(error), error
        import my_model
        out = module(torch.ones(4, 3))
        out.sum().backward()
        assert all(p.grad.abs().sum() > 0 for p in module.parameters())
        print(out.sum().item())
        """,
        environment,
        path,
    )

    assert float(saved) == pytest.approx(float(loaded))


def test_errors_inside_the_function_keep_their_type():
    """An error of the traced function reaches the caller as it is, and the next call works."""
    from tracebridge.errors import ShapeMismatchError

    f = wrap(lambda x, y: x @ y)

    for _ in range(2):
        with pytest.raises(ShapeMismatchError):
            f(torch.ones(2, 3), torch.ones(2, 3))
    assert f(torch.ones(2, 3), torch.ones(3, 1)).shape == (2, 1)


def test_tensors_on_different_devices_are_refused():
    """The devices are named."""
    from tracebridge.errors import ExchangeError

    with pytest.raises(ExchangeError, match="meta"):
        wrap(lambda x, y: x + y)(torch.ones(2), torch.ones(2, device="meta"))


# torch warns that these layouts are in beta state, and deprecates quantized tensors.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensors_that_are_not_dense_are_refused():
    """Also where a dense tensor of that shape was seen before: the message says the way out."""
    from tracebridge.errors import ExchangeError

    f = wrap(lambda x: x * 2)
    x = torch.ones(2, 2)
    refused = {
        "to_dense": [x.to_sparse(), x.to_sparse_csr(), x.to_mkldnn()],
        "to_padded_tensor": [
            torch.nested.nested_tensor([x, x]),
            torch.nested.nested_tensor([x, x], layout=torch.jagged),
        ],
        "dequantize": [torch.quantize_per_tensor(x, 1.0, 0, torch.quint8)],
    }
    for _ in range(2):
        for hint, tensors in refused.items():
            for tensor in tensors:
                with pytest.raises(ExchangeError, match=hint):
                    f(tensor)
        assert [[2.0, 2.0], [2.0, 2.0]] == f(x).tolist()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_tensors_are_refused_where_calls_are_known():
    """torch's look at tensors must not see them: it would end the process."""
    from tracebridge.errors import ExchangeError

    x = torch.ones(2, 2)
    nested = torch.nested.nested_tensor([x, x[:1]])
    for fun in (lambda x: x * 2, lambda x: tb.numpy.log1p(x).sum()):
        f = wrap(fun)
        tree = wrap(lambda p, fun=fun: fun(p["x"]))
        calls = [
            f,
            lambda x, tree=tree: tree({"x": x}),
            torch.func.vmap(f),
            lambda x, f=f: torch.func.vmap(lambda y: f(x) + y)(torch.ones(2, 2)),
            lambda x, f=f: torch.func.grad(lambda y: (f(x) * y).sum())(torch.ones(2)),
        ]
        for call in calls:
            for _ in range(3):
                call(x)
                with pytest.raises(ExchangeError, match="to_padded_tensor"):
                    call(nested)


def _shrunk(elements, how):
    """A tensor of 2 rows whose storage was resized to some elements less than it needs."""
    base = torch.ones(elements + 16)
    x = base[16:].reshape(2, -1) if how == "behind" else base[:elements].reshape(2, -1)
    x = {"transposed": x.T, "strided": x[:, ::2], "negative": torch._neg_view(x)}.get(how, x)
    left = {"nothing": 0, "behind": elements, "negative": elements - 1}.get(how, elements // 2)
    base.untyped_storage().resize_(4 * left)
    return x


@pytest.mark.parametrize("how", ["nothing", "half", "behind", "transposed", "strided", "negative"])
@pytest.mark.parametrize("elements", [24, 24_000])
def test_storages_that_were_resized_are_refused(elements, how):
    """On every path, whether or not a tensor of the kind was seen before: never foreign memory."""
    from tracebridge.errors import ExchangeError
    from tracebridge.torch import Module, from_torch

    f = wrap(lambda x, y: x * 2 + y)
    many = wrap(lambda xs: sum(x.sum() for x in xs))
    module = Module(lambda p, x: p["w"] * x, {"w": torch.ones(())})
    bad = _shrunk(elements, how)
    good = torch.ones(elements + 16)[:elements].reshape(2, -1)
    good = good.T if how == "transposed" else good[:, ::2] if how == "strided" else good
    calls = {
        "short": lambda x: f(x, x),
        "general": lambda x: f(x, y=x),
        "gradient": lambda x: f(x, torch.ones(x.shape, requires_grad=True)),
        "operator": lambda x: torch.func.vmap(f)(x, torch.ones(x.shape)),
        "many": lambda x: many([x] * 201),
        "parameter": lambda x: module(x),
        "from_torch": from_torch,
        "disable_jit": lambda x: f(x, 1.0),
    }
    if how == "negative":
        del calls["operator"]  # torch makes it dense before anybody else sees it
    for name, call in calls.items():
        for _ in range(2):
            with tb.disable_jit(name == "disable_jit"):
                if name != "from_torch":
                    call(good)
                with pytest.raises(ExchangeError, match="resize it back"):
                    call(bad)


def test_saved_tensors_whose_storage_is_gone_are_refused():
    """The backward pass reads what the forward pass saved: as it was, or an error."""
    from tracebridge.errors import ExchangeError

    f = wrap(lambda x, y: x * y)
    for size in (10, 10_000):
        x, y = torch.ones(size, requires_grad=True), torch.ones(size)
        out = f(x, y).sum()
        y.untyped_storage().resize_(0)

        with pytest.raises(ExchangeError, match="resize it back"):
            out.backward(retain_graph=True)
        y.untyped_storage().resize_(4 * size)
        y.data.fill_(3)
        out.backward()
        assert (x.grad == 3).all()


def test_parameters_whose_storage_is_gone_are_refused():
    """As sharded training leaves them between uses; afterwards they work as before."""
    from tracebridge.errors import ExchangeError
    from tracebridge.torch import Module

    module = Module(lambda p, x: p["w"] * x, {"w": torch.ones(3000)})
    x = torch.ones(3000)
    storage = module.w.untyped_storage()
    for _ in range(3):
        module(x).sum().backward()
        storage.resize_(0)
        with pytest.raises(ExchangeError, match="resize it back"):
            module(x)
        storage.resize_(12_000)
        module.w.data.fill_(2)
        assert (module(x) == 2).all()
