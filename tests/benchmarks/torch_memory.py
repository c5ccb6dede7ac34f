"""Memory of loops over wrapped functions beside eager torch: what they peak at and what stays.

    python tests/benchmarks/torch_memory.py [--only WORDS] [--record FILE]

Each loop runs in a process of its own, on a function of ours and on the same function in torch.
Both figures count from the end of a first loop, so that programs and threads are there; ``peak`` is
the most memory during the loop, ``resident`` what is left after its last statement. The tensors are
larger than 64 MB, which the allocators of both give back at once. Where the system does not reset
the high-water mark of a process, peaks cannot be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tracebridge.numpy as tnp
from tracebridge.core._jaxlib.xla import collect_garbage
from tracebridge.torch import Module, from_torch, wrap

BUDGET = 1.05
WIDTH = 4608  # a matrix of that width takes 81 MB
BATCH = 64
OURS, EAGER = "ours", "eager"
Loop = Callable[[int, str], Any]


def network(weights: Any, x: Any) -> Any:
    """A multilayer perceptron of tracebridge operations."""
    for w in weights:
        x = tnp.tanh(x @ w)
    return x


def torch_network(weights: Any, x: Any) -> Any:
    """The same of torch operations."""
    for w in weights:
        x = torch.tanh(x @ w)
    return x


def chain(x: Any) -> Any:
    """Elementwise work whose backward pass needs what the forward pass has computed."""
    return tnp.tanh(tnp.exp(tnp.tanh(x)))


def torch_chain(x: Any) -> Any:
    """The same of torch operations."""
    return torch.tanh(torch.exp(torch.tanh(x)))


class TorchNetwork(torch.nn.Module):
    """``torch_network`` with its weights."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch_network(list(self.weights), x)


def make_weights(width: int, n: int = 3) -> list[torch.Tensor]:
    """Matrices that keep the scale of what they multiply."""
    return [torch.randn(width, width) / width**0.5 for _ in range(n)]


def make_model(width: int, which: str, n: int = 3) -> torch.nn.Module:
    """The network as a module."""
    weights = [torch.nn.Parameter(w) for w in make_weights(width, n)]
    return Module(network, weights) if which == OURS else TorchNetwork(weights)


def make_chain(which: str) -> Callable[[Any], Any]:
    """The elementwise function."""
    return wrap(chain) if which == OURS else torch_chain


def training(width: int, which: str) -> Any:
    """Steps of an optimizer."""
    model = make_model(width, which)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(BATCH, width)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def adam(width: int, which: str) -> Any:
    """Steps of an optimizer with two states for each parameter."""
    model = make_model(width, which, 2)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(BATCH, width)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def accumulation(width: int, which: str) -> Any:
    """Gradients of several batches are added."""
    model = make_model(width, which)
    for _ in range(3):
        model(torch.randn(BATCH, width)).square().mean().backward()
    return model


def accumulation_deep(width: int, which: str) -> Any:
    """The same with more layers."""
    model = make_model(width, which, 8)
    for _ in range(3):
        model(torch.randn(BATCH, width)).square().mean().backward()
    return model


def shared(width: int, which: str) -> Any:
    """Gradients of several batches are added; each weight stands at two places of the network."""
    weights = [torch.nn.Parameter(w) for w in make_weights(width, 3)]
    if which == OURS:
        model: torch.nn.Module = Module(lambda ws, x: network([*ws, *ws], x), weights)
    else:
        model = TorchNetwork([*weights, *weights])
    for _ in range(3):
        model(torch.randn(BATCH, width)).square().mean().backward()
    return model


def together(width: int, which: str) -> Any:
    """Several batches go through a module before one backward pass."""
    model = make_model(width, which)
    for _ in range(2):
        model.zero_grad()
        losses = [model(torch.randn(BATCH, width)).square().mean() for _ in range(3)]
        sum(losses).backward()
        del losses
    return model


def in_backward(width: int, which: str) -> Any:
    """Each parameter is updated when its gradient is there, which is then freed."""
    model = make_model(width, which)

    def update(p: torch.Tensor) -> None:
        with torch.no_grad():
            p.sub_(p.grad, alpha=0.1)
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    for _ in range(3):
        model(torch.randn(BATCH, width)).square().mean().backward()
    return model


def gradients(width: int, which: str) -> Any:
    """Forward and backward, without an optimizer."""
    model = make_model(width, which)
    parameters = list(model.parameters())
    for _ in range(3):
        torch.autograd.grad(model(torch.randn(BATCH, width)).square().mean(), parameters)
    return model


def activations(width: int, which: str) -> Any:
    """Forward and backward where the intermediate values are the larger part."""
    f = make_chain(which)
    x = torch.randn(width, width, requires_grad=True)
    for _ in range(3):
        x.grad = None
        f(x).sum().backward()
    return x


def inference(width: int, which: str) -> Any:
    """Results that the next ones replace."""
    f = make_chain(which)
    x = torch.randn(width, width)
    result = None
    with torch.no_grad():
        for _ in range(4):
            result = f(x)
    del result
    return x


def forward_only(width: int, which: str) -> Any:
    """Results that want gradients which nobody asks for."""
    f = make_chain(which)
    x = torch.randn(width, width, requires_grad=True)
    for _ in range(4):
        f(x)
    return x


def autoregressive(width: int, which: str) -> Any:
    """Each result is the next argument."""
    f = make_chain(which)
    x = torch.randn(width, width)
    with torch.no_grad():
        for _ in range(4):
            x = f(x)
    return x


def dropped(width: int, which: str) -> Any:
    """Several results live together, then none, then torch works on."""
    f = make_chain(which)
    x = torch.randn(width, width)
    with torch.no_grad():
        results = [f(x) for _ in range(4)]
        del results
        others = [x + 1 for _ in range(4)]
    del others
    return x


def handed_on(width: int, which: str) -> Any:
    """Results die in operations of torch between calls."""
    f = make_chain(which)
    x = torch.randn(width, width)
    with torch.no_grad():
        for _ in range(3):
            x = f(x)
            x = x * 2
            x = x - 1
    return x


def exceptions(width: int, which: str) -> Any:
    """Backward passes that end in an exception, or never happen."""
    f = make_chain(which)
    x = torch.randn(width, width, requires_grad=True)

    def fail(_: Any) -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        y = f(x)
        y.register_hook(fail)
        with contextlib.suppress(KeyboardInterrupt):
            y.sum().backward()
        del y
        gc.collect()
    return x


def cast(width: int, which: str) -> Any:
    """The parameters of a module get other memory: half as much."""
    model = make_model(width, which)
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(BATCH, width))
    return model.half()


def replaced(width: int, which: str) -> Any:
    """The data of parameters is replaced, as when a checkpoint is assigned."""
    model = make_model(width, which)
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(BATCH, width))
            for p in model.parameters():
                p.data = p.data * 0.9
    return model


def freed(width: int, which: str) -> Any:
    """The storages of parameters are given back, as in sharded training."""
    model = make_model(width, which)
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(BATCH, width))
    for p in model.parameters():
        p.untyped_storage().resize_(0)
    return model


def second_order(width: int, which: str) -> Any:
    """Gradients of gradients."""
    f = make_chain(which)
    x = torch.randn(width // 2, width, requires_grad=True)
    for _ in range(2):
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        torch.autograd.grad(g.sum(), x)
        del g
    return x


LOOPS: dict[str, Loop] = {
    loop.__name__: loop
    for loop in (
        training, adam, accumulation, accumulation_deep, shared, together, in_backward, gradients,
        activations, inference, forward_only, autoregressive, dropped, handed_on, exceptions, cast,
        replaced, freed, second_order,
    )
}  # fmt: skip


def memory_of_process(field: str) -> float:
    """VmHWM or VmRSS in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith(field + ":")]
    return int(line.split()[1]) / 1024


def once(name: str, which: str) -> dict[str, float]:
    """Peak and resident memory of one loop, here."""
    torch.manual_seed(0)
    # An exchange makes the client of the backend, a first loop its programs.
    from_torch(torch.ones(2))
    LOOPS[name](WIDTH, which)
    gc.collect()
    # What that loop may have left is part of what is measured.
    collect_garbage()
    ctypes.CDLL(None).malloc_trim(0)
    base = memory_of_process("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    kept = LOOPS[name](WIDTH, which)
    result = {
        "peak": memory_of_process("VmHWM") - base,
        "resident": memory_of_process("VmRSS") - base,
    }
    del kept
    return result


def measure(name: str, which: str) -> dict[str, float]:
    """``once`` in a process of its own."""
    command = [sys.executable, __file__, "--once", name, which]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def row(name: str) -> str:
    """A line of the table."""
    ours, eager = measure(name, OURS), measure(name, EAGER)
    cells = [f"{ours[k]:.0f} | {eager[k]:.0f} | {ours[k] / eager[k]:.2f}" for k in eager]
    met = all([ours[k] <= BUDGET * eager[k] for k in eager])
    return f"| {name} | {' | '.join(cells)} | {'met' if met else 'missed'} |"


def main(argv: list[str]) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--only", default="", help="names of loops, separated by commas")
    parser.add_argument("--once", nargs=2, help="measure here and print JSON")
    options = parser.parse_args(argv)
    if options.once:
        torch.set_num_threads(1)
        print(json.dumps(once(*options.once)))
        return
    names = options.only.split(",") if options.only else list(LOOPS)
    head = ["### memory of loops beside eager torch", "", "In MB.", ""]
    head += ["| loop | peak | eager | ratio | resident | eager | ratio | budget 1.05 |"]
    head += ["|---|---|---|---|---|---|---|---|"]
    print("\n".join(head), flush=True)
    lines = []
    for name in names:
        lines.append(row(name))
        print(lines[-1], flush=True)
    if options.record:
        text = "\n".join([*head, *lines, "", f"torch {torch.__version__}, one thread.", ""])
        options.record.write_text(f"{options.record.read_text().rstrip()}\n\n{text}")


if __name__ == "__main__":
    main(sys.argv[1:])
