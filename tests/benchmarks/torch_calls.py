"""torch in, torch out: a wrapped function beside eager torch and the raw compiled call.

    python tests/benchmarks/torch_calls.py [--rounds 6] [--record FILE]

Each round is a process of its own: where the memory of a process happens to lie decides about
page faults of large results. Budgets are compared with the best round; the worst stands beside it.
``--record`` writes its section of a file of figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sections import record

import tracebridge as tb
import tracebridge.numpy as tnp

Figures = dict[str, float]

NEW, FORWARD, BOTH = "forward, one new input", "forward", "forward and backward"
ALL_NEW = "forward, all inputs new"
RAW, AROUND = "compiled call on an Array", "torch in and out"
CHAIN = "chain of 10 on 1e6 elements, "
INTO, OUT = "torch tensor to Array", "Array to torch tensor"
PEER = ", torch's own"
IN_GRAPH = "8x8 layer, in torch.compile"
MAPPED, SLOPES = "8x8 layer, torch.func.vmap", "8x8 layer, torch.func.grad of its sum"
# The smallest functions under torch.func: sums of products, and one or two operations.
SMALL_SLOPES, SMALL_MAPPED = "sum(x * x) of 8, torch.func.grad", "sum(x * x) of 8, torch.func.vmap"
SMALL_TWO, SMALL_DICT = "sum(x * y) of 8, torch.func.grad", "sum(x * y) of a dict, torch.func.vmap"
SMALL_EACH, SMALL_BOTH = "sum(x * x) of 8, vmap of grad", "sum(x * x) of 8, grad_and_value"
SMALL_WAVE, SMALL_JACOBIAN = "sin(x) * 2 of 8, torch.func.vmap", "sin(x) * 2 of 8, jacrev"
SMALL_LONE = "sin(x) of 8, torch.func.vmap"
SMALL_LONG = "sum of log1p(sin(x * y)) * x of 8, torch.func.grad"
SMALL = (
    SMALL_SLOPES, SMALL_MAPPED, SMALL_TWO, SMALL_DICT, SMALL_EACH, SMALL_BOTH, SMALL_WAVE,
    SMALL_JACOBIAN, SMALL_LONE, SMALL_LONG,
)  # fmt: skip
LOSS = "loss of a layer of 8, forward and backward"
SCALED = "a quarter of that loss, forward and backward"
SHORT = 50  # calls of a sample
MANY = (100, 199, 201, 300)
# In microseconds.
BUDGETS = {
    **{f"8x8 layer, {kind}": 15.0 for kind in (FORWARD, NEW, ALL_NEW)},
    f"8x8 layer, {BOTH}": 90.0,
    IN_GRAPH: 40.0,
    INTO: 10.0,
    OUT: 10.0,
}
# Of another row.
SHARES = {
    CHAIN + AROUND: (1.2, CHAIN + RAW),
    MAPPED: (1.5, MAPPED + PEER),
    SLOPES: (1.5, SLOPES + PEER),
    **{name: (1.5, name + PEER) for name in SMALL},
    LOSS: (1.2, LOSS + PEER),
    SCALED: (1.2, SCALED + PEER),
}
# Read beside the table: where budgets are missed, and why.
REMARKS = """\
Tensors of at most 4 KB are copied into buffers that wait for them, until their memory comes for the
third time. A larger new tensor costs about 2.7 us to enter as a view, most of it in jaxlib; buffers
of tensors that come again are held.
The large chain scatters with the page faults of its 4 MB results: where glibc gives freed memory
back to the system, a call costs 977 of them, and 5 to 50 times the time. The CPU backend makes
glibc keep up to 64 MB; before that about half of all processes were hit.
"""


def best(run: Callable[[], Any], calls: int, samples: int = 9) -> float:
    """Microseconds per call, best of several samples.

    Samples of fast functions are short: the machine may give us no long time to ourselves.
    """
    for _ in range(max(3, calls // 10)):
        run()
    if calls > SHORT:
        calls, samples = SHORT, samples * calls // SHORT
    result = float("inf")
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        result = min(result, (time.perf_counter() - start) / calls)
    return 1e6 * result


def layer(x: Any, w: Any, b: Any) -> Any:
    """tanh(x @ w) + b."""
    return tnp.tanh(x @ w) + b


def chain(x: Any) -> Any:
    """Ten elementwise operations."""
    for _ in range(3):
        x = tnp.maximum(x * 1.01, -0.5) - 0.01
    return x * x


def torch_layer(x: Any, w: Any, b: Any) -> Any:
    """``layer`` by torch."""
    return torch.tanh(x @ w) + b


def small_layer() -> Figures:
    """A layer of 8x8 on the CPU."""
    wrapped = tb.torch.wrap(layer)
    tensors = [torch.randn(8, 8), torch.randn(8, 8), torch.randn(8)]
    leaves = [t.clone().requires_grad_() for t in tensors]
    seed = torch.ones(8, 8)
    x, *rest = tensors

    def both(f: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(f(*leaves), leaves, seed)

    figures: Figures = {}
    for kind, f in (("", wrapped), (", eager torch", torch_layer)):
        figures[f"8x8 layer, {FORWARD}{kind}"] = best(lambda f=f: f(*tensors), 2000)
        figures[f"8x8 layer, {NEW}{kind}"] = best(lambda f=f: f(x.detach(), *rest), 2000)
        figures[f"8x8 layer, {ALL_NEW}{kind}"] = best(
            lambda f=f: f(*[t.detach() for t in tensors]), 2000
        )
        figures[f"8x8 layer, {BOTH}{kind}"] = best(both(f), 500)
    return figures


def small_loss() -> Figures:
    """A step of training but for the optimizer, of a loss that is one call."""
    w = torch.randn(8, 1, requires_grad=True)
    x, y = torch.randn(16, 8), torch.randn(16, 1)
    ours = tb.torch.wrap(lambda w, x, y: tnp.mean((tnp.tanh(x @ w) - y) ** 2))

    def step(loss: Callable[..., Any]) -> None:
        w.grad = None
        loss(w, x, y).backward()

    def scaled_step(loss: Callable[..., Any]) -> None:
        w.grad = None
        (loss(w, x, y) / 4).backward()

    def theirs(w: Any, x: Any, y: Any) -> Any:
        return torch.mean((torch.tanh(x @ w) - y) ** 2)

    return {
        LOSS: best(lambda: step(ours), 500),
        LOSS + PEER: best(lambda: step(theirs), 500),
        SCALED: best(lambda: scaled_step(ours), 500),
        SCALED + PEER: best(lambda: scaled_step(theirs), 500),
    }


def around_calls() -> Figures:
    """The layer in compiled code, under torch.func, and with arguments in a tree or by name."""
    tensors = [torch.randn(8, 8), torch.randn(8, 8), torch.randn(8)]
    many = [torch.randn(16, 8, 8), *tensors[1:]]
    wrapped = tb.torch.wrap(layer)
    total = tb.torch.wrap(lambda *xs: tnp.sum(layer(*xs)))
    figures: Figures = {}
    for kind, f, loss in (
        ("", wrapped, total),
        (PEER, torch_layer, lambda *xs: torch_layer(*xs).sum()),
    ):
        compiled = torch.compile(lambda x, w, b, f=f: f(x, w, b), fullgraph=True)
        mapped = torch.func.vmap(f, in_dims=(0, None, None))
        slopes = torch.func.grad(loss, argnums=(0, 1, 2))
        figures[IN_GRAPH + kind] = best(lambda f=compiled: f(*tensors), 1000)
        figures[MAPPED + kind] = best(lambda f=mapped: f(*many), 1000)
        figures[SLOPES + kind] = best(lambda f=slopes: f(*tensors), 1000)
    x, w, b = tensors
    params = {"w": w, "b": b}
    tree = tb.torch.wrap(lambda p, x: layer(x, p["w"], p["b"]))
    module = tb.torch.Module(lambda p, x: layer(x, p["w"], p["b"]), params)
    figures["8x8 layer, two keywords"] = best(lambda: wrapped(x, w=w, b=b), 1000)
    figures["8x8 layer, a dict"] = best(lambda: tree(params, x), 1000)
    figures["parameters of a module of two"] = best(module.params, 1000)
    return figures


def smallest() -> Figures:
    """Functions of 8 elements under torch.func, where all the time goes into the way."""
    func = torch.func
    x, y = torch.randn(8), torch.randn(8)
    xs, ys = torch.randn(16, 8), torch.randn(16, 8)
    wrap = tb.torch.wrap
    of_torch = {
        "square": lambda x: (x * x).sum(),
        "product": lambda x, y: (x * y).sum(),
        "tree": lambda p: (p["x"] * p["y"]).sum(),
        "wave": lambda x: torch.sin(x) * 2,
        "lone": lambda x: torch.sin(x),
        "long": lambda x, y: (torch.log1p(torch.sin(x * y)) * x).sum(),
    }
    ours = {
        "square": wrap(lambda x: tnp.sum(x * x)),
        "product": wrap(lambda x, y: tnp.sum(x * y)),
        "tree": wrap(lambda p: tnp.sum(p["x"] * p["y"])),
        "wave": wrap(lambda x: tnp.sin(x) * 2),
        "lone": wrap(lambda x: tnp.sin(x)),
        "long": wrap(lambda x, y: tnp.sum(tnp.log1p(tnp.sin(x * y)) * x)),
    }
    figures: Figures = {}
    for kind, f in (("", ours), (PEER, of_torch)):
        calls = {
            SMALL_SLOPES: (func.grad(f["square"]), x),
            SMALL_MAPPED: (func.vmap(f["square"]), xs),
            SMALL_TWO: (func.grad(f["product"]), x, y),
            SMALL_DICT: (func.vmap(f["tree"]), {"x": xs, "y": ys}),
            SMALL_EACH: (func.vmap(func.grad(f["square"])), xs),
            SMALL_BOTH: (func.grad_and_value(f["square"]), x),
            SMALL_WAVE: (func.vmap(f["wave"]), xs),
            SMALL_JACOBIAN: (func.jacrev(f["wave"]), x),
            SMALL_LONE: (func.vmap(f["lone"]), xs),
            SMALL_LONG: (func.grad(f["long"]), x, y),
        }
        for name, (call, *args) in calls.items():
            figures[name + kind] = best(lambda call=call, args=args: call(*args), 1000)
    return figures


def large_chain() -> Figures:
    """Ten elementwise operations on a million elements."""
    wrapped = tb.torch.wrap(chain)
    compiled = tb.jit(chain)
    x = torch.randn(1_000_000)
    array = tb.numpy.asarray(x)
    return {
        CHAIN + RAW: best(lambda: compiled(array), 20, 200),
        CHAIN + AROUND: best(lambda: wrapped(x), 20, 200),
    }


def many_leaves() -> Figures:
    """A tree of many small tensors: the time of a leaf should not depend on how many there are."""
    figures: Figures = {}
    for n in MANY:
        leaves = [torch.ones(4) for _ in range(n)]
        wrapped = tb.torch.wrap(lambda *xs: sum([x[0] for x in xs]))
        tree = tb.torch.wrap(lambda xs: sum([x[0] for x in xs]))
        us = best(lambda f=wrapped, xs=leaves: f(*xs), 20, 50)
        figures[f"{n} small tensors, each"] = us / n
        us = best(lambda f=tree, xs=leaves: f(xs), 20, 50)
        figures[f"a list of {n} small tensors, each"] = us / n
    return figures


def made_of_numpy() -> Figures:
    """A module whose parameters were ndarrays, beside one of tensors."""
    params = np.ones((2048, 1024), np.float32)
    x = torch.ones(1024)
    figures: Figures = {}
    for kind, value in (("NumPy", params), ("torch", torch.from_numpy(params).clone())):
        module = tb.torch.Module(lambda p, x: p["w"] @ x, {"w": value})
        figures[f"module of 8 MB made of {kind}"] = best(lambda m=module, x=x: m(x), 50, 20)
    return figures


def crossing() -> Figures:
    """One tensor in and out, without computing."""
    x = torch.randn(64, 64)
    array = tb.torch.from_torch(x)
    return {
        INTO: best(lambda: tb.torch.from_torch(x), 2000),
        OUT: best(lambda: tb.torch.to_torch(array), 2000),
    }


def measure(rounds: int) -> tuple[Figures, Figures]:
    """The least and the greatest of each figure over several processes."""
    command = [sys.executable, __file__, "--once"]
    found = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        for _ in range(rounds)
    ]
    least = {name: min([one[name] for one in found]) for name in found[0]}
    return least, {name: max([one[name] for one in found]) for name in found[0]}


def verdict(name: str, figures: Figures) -> str:
    """What the budget of a row is, and whether it is met."""
    budget = BUDGETS.get(name)
    if name in SHARES:
        share, other = SHARES[name]
        budget = share * figures[other]
    if budget is None:
        return ""
    missed = figures[name] / budget
    return f"{budget:.4g} us: " + ("met" if missed <= 1 else f"missed by {missed:.2f} times")


def main(argv: list[str]) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--once", action="store_true", help="measure here and print JSON")
    options = parser.parse_args(argv)
    if options.once:
        torch.set_num_threads(1)
        print(
            json.dumps(
                {
                    **small_layer(),
                    **small_loss(),
                    **around_calls(),
                    **smallest(),
                    **large_chain(),
                    **many_leaves(),
                    **made_of_numpy(),
                    **crossing(),
                }
            )
        )
        return
    figures, worst = measure(options.rounds)
    lines = [
        "### torch in and out",
        "",
        f"Best and worst of {options.rounds} processes; tensors come again unless a row says new.",
        "",
        "| case | best, us | worst, us | budget, for the best |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {n} | {us:.4g} | {worst[n]:.4g} | {verdict(n, figures)} |" for n, us in figures.items()
    ]
    text = "\n".join([*lines, "", REMARKS, f"torch {torch.__version__}, one thread.", ""])
    print(text)
    if options.record:
        record(options.record, text)


if __name__ == "__main__":
    main(sys.argv[1:])
