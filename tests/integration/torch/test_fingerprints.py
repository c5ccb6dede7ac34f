"""Fingerprints of programs: equal for what computes the same, different for what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo import compiled_autograd
from torch.fx.experimental.proxy_tensor import make_fx

import tracebridge as tb
import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tracebridge.torch import wrap
from tracebridge.torch._graphs.fingerprint import UNIQUE, fingerprint

pytestmark = pytest.mark.torch
N = 3.0


def of(fun: Any, x: Any = None) -> str:
    """The fingerprint of a function at three numbers."""
    return fingerprint(tb.make_jaxpr(fun)(tnp.ones(3) if x is None else x).jaxpr)


def times(factor: Any) -> Any:
    return lambda x: x * factor


def vjp(scale: Any) -> Any:
    f = tb.custom_vjp(tnp.sin)
    f.defvjp(lambda x: (tnp.sin(x), x), lambda x, g: (g * scale,))
    return f


def jvp(scale: Any) -> Any:
    f = tb.custom_jvp(tnp.sin)
    f.defjvp(lambda primals, tangents: (tnp.sin(primals[0]), tangents[0] * scale))
    return f


def batched(scale: Any) -> Any:
    f = tb.custom_batching.custom_vmap(tnp.sin)
    f.def_vmap(lambda n, mapped, x: (tnp.sin(x) * scale, mapped[0]))
    return f


class Host:
    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def method(self, x: Any) -> Any:
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale


def calls(host: Any) -> Any:
    return lambda x: tb.pure_callback(host, tb.ShapeDtypeStruct(x.shape, x.dtype), x)


def kept(*names: str) -> Any:
    policy = tb.checkpoint_policies.save_only_these_names(*names)
    return lambda x: tb.checkpoint(lambda y: tnp.sin(y) * 2, policy=policy)(x)


# Functions of one number, in which it must show.
PROGRAMS: dict[str, Any] = {
    "a literal": lambda n: lambda x: x * n,
    "a constant array": lambda n: lambda x: x * np.array([1.0, 2.0, n], np.float32),
    "a captured array": lambda n: times(tnp.full(3, n)),
    "a shape": lambda n: lambda x: tnp.ones(int(n)),
    "a dtype": lambda n: lambda x: x.astype(tnp.float16 if n > 2 else tnp.int32),
    "an axis": lambda n: lambda x: lax.rev(x[None], (int(n) - 2,)),
    "the order of arguments": lambda n: lambda x: x - n if n > 2 else n - x,
    "the order of results": lambda n: lambda x: [x, -x][:: 1 if n > 2 else -1],
    "the body of a loop": lambda n: lambda x: lax.fori_loop(0, 3, lambda i, y: y * n, x),
    "a condition": lambda n: lambda x: lax.while_loop(lambda y: y[0] < n, lambda y: y + 1, x),
    "an inner function": lambda n: lambda x: tb.jit(lambda y: y * n)(x) + 1,
    "a branch": lambda n: lambda x: lax.cond(x[0] > 0, lambda y: y * n, lambda y: y, x),
    "a rule of vjp": vjp,
    "a rule of jvp": jvp,
    "a rule of batching": batched,
    "a derivative of a rule": lambda n: tb.grad(lambda x: tnp.sum(jvp(n)(x))),
    "a mapped rule": lambda n: tb.vmap(vjp(n)),
    "a callback": lambda n: calls(lambda x: x * n),
    "a method as a callback": lambda n: calls(Host(n).method),
    "an object as a callback": lambda n: calls(Host(n)),
    "a default of a callback": lambda n: calls(lambda x, m=n: x * m),
    "a policy": lambda n: kept("a", "b" if n > 2 else "c"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_whatever_differs_shows(name: str) -> None:
    """Programs made twice have one fingerprint, those of another number another one."""
    make = PROGRAMS[name]

    first, again, other = of(make(N)), of(make(N)), of(make(2.0))

    assert first == again
    assert first != other
    assert not first.startswith(UNIQUE)


def test_no_two_programs_have_one_fingerprint() -> None:
    """Programs of different kinds differ."""
    assert len(PROGRAMS) == len({of(make(N)) for make in PROGRAMS.values()})


def test_how_a_program_is_written_does_not_show() -> None:
    """Names, files, Python between the operations: only what is computed counts."""

    def written_otherwise(value: Any) -> Any:
        """Say what it does."""
        parts = [value * n for n in (2.0,)]
        return tnp.sin(sum(parts[1:], parts[0]))

    assert of(lambda x: tnp.sin(x * 2.0)) == of(written_otherwise)


def test_options_show_where_they_matter() -> None:
    """A program under another option is another program if it is."""

    def product(x: Any) -> Any:
        return x @ x

    plain = of(product)
    with tb.default_matmul_precision("float32"):
        assert plain != of(lambda x: x @ x)
    wide = [of(lambda x: tnp.arange(3) + x, tnp.ones(3, tnp.int32))]
    with tb.enable_x64(True):
        wide.append(of(lambda x: tnp.arange(3) + x, tnp.ones(3, tnp.int32)))
    assert 2 == len(set(wide))


def test_what_has_no_content_is_like_nothing_else() -> None:
    """An object that cannot be compared makes a fingerprint of one process."""
    generator = (i for i in range(3))

    found = [of(calls(lambda x: x * len(list(generator)))) for _ in range(2)]

    assert found[0] != found[1]
    assert all([f.startswith(UNIQUE) for f in found])


def test_rules_that_refer_to_themselves() -> None:
    """A cycle of functions and objects ends."""

    def make(scale: Any) -> Any:
        things: dict[str, Any] = {}

        def host(x: Any) -> Any:
            return x * scale if things else host(x)

        things["host"] = host
        return calls(host)

    assert of(make(2.0)) == of(make(2.0)) != of(make(3.0))


# Handles in graphs -----------------------------------------------------------------------------


def of_compiled(f: Any, x: Any) -> list[Any]:
    """The graphs of a forward and a backward pass, and that of compiled autograd."""
    graphs: list[Any] = []

    def keep(graph: Any, example_inputs: Any) -> Any:
        del example_inputs
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    torch.compile(f, backend=keep, fullgraph=True, dynamic=True)(x)
    with compiled_autograd._enable(torch.compile(backend=keep, fullgraph=True)):
        f(x).sum().backward()
    return graphs


def of_export(f: Any, x: Any) -> list[Any]:
    class Calls(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return f(x)

    program = torch.export.export(Calls(), (x,))
    return [program.graph_module, program.run_decompositions().graph_module]


GRAPHS: dict[str, Any] = {
    "Dynamo": of_compiled,
    "export": of_export,
    "make_fx": lambda f, x: [make_fx(f)(x)],
    "fake make_fx": lambda f, x: [make_fx(f, tracing_mode="symbolic")(x)],
    "a gradient": lambda f, x: [make_fx(torch.func.grad(lambda x: f(x).sum()))(x)],
    "a map": lambda f, x: [make_fx(torch.func.vmap(f))(x[None])],
    "a tangent": lambda f, x: [make_fx(lambda x: torch.func.jvp(f, (x,), (x,)))(x)],
}


# torch asks saved tensors for .grad, and warns of that itself, as of what it deprecates.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_holds_fingerprints(name: str) -> None:
    """However torch captures a graph, its handles say which programs they mean."""
    f = wrap(lambda x: tnp.sin(x))
    handles = [
        node.args[1]
        for graph in GRAPHS[name](f, torch.ones(3, requires_grad=True))
        for node in graph.graph.nodes
        if str(node.target).startswith("tracebridge.call")
    ]

    assert handles
    assert [True] * len(handles) == [f"{f.root}@" in handle for handle in handles]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_graphs_of_torch_jit_hold_fingerprints() -> None:
    """The same of traces that TorchScript keeps."""
    f = wrap(lambda x: tnp.sin(x))

    traced: Any = torch.jit.trace(lambda x: f(x), torch.ones(3))

    assert f"{f.root}@" in str(traced.graph)


def test_what_ran_before_does_not_show() -> None:
    """Library functions in rules remember their staged bodies; those are no part of a program."""
    before = of(vjp(N))
    for size in (3, 4):
        tb.jit(tb.grad(lambda x: tnp.sum(tnp.sin(tnp.cos(x) * x))))(tnp.ones(size))
        tnp.sin(tnp.ones(size))

    assert before == of(vjp(N))
    assert not before.startswith(UNIQUE)
