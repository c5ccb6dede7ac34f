"""The measured cases. A case is a function of the API that gives ``(callable, calls per sample)``.

The callable is what is timed. Groups and budgets (ours / the peer's) are in ``GROUPS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import control_programs
import draws
import elementwise
import matrices
import numpy as onp
import products
import programs
import windows
from api import width

Case = Callable[[Any], tuple[Callable[[], Any], int]]
CASES: dict[str, dict[str, Case]] = {}


def case(group: str, name: str) -> Callable[[Case], Case]:
    """Register a case under its group."""

    def add(function: Case) -> Case:
        CASES.setdefault(group, {})[name] = function
        return function

    return add


def vector(api: Any, i: int = 0) -> Any:
    """A small array."""
    return api.np.asarray(onp.arange(8, dtype=onp.float32) + i)


# cached jit calls --------------------------------------------------------------------------------


@case("cached call", "1 -> 1")
def one_to_one(api: Any) -> Any:
    f, x = api.jit(lambda x: x + x), vector(api)
    return lambda: f(x), 3000


@case("cached call", "10 -> 1")
def ten_to_one(api: Any) -> Any:
    f = api.jit(lambda *xs: xs[0] + xs[1])
    xs = [vector(api, i) for i in range(10)]
    return lambda: f(*xs), 3000


@case("cached call", "2 -> 2")
def two_to_two(api: Any) -> Any:
    f, x, y = api.jit(lambda x, y: (x + y, x * y)), vector(api), vector(api, 1)
    return lambda: f(x, y), 3000


@case("cached call", "10 -> 10")
def ten_to_ten(api: Any) -> Any:
    f = api.jit(lambda xs: [x + x for x in xs])
    xs = [vector(api, i) for i in range(10)]
    return lambda: f(xs), 1500


@case("cached call", "tree of 100 -> 1")
def tree_to_one(api: Any) -> Any:
    f = api.jit(lambda d: d["k0"] + d["k1"])
    tree = {f"k{i}": vector(api, i) for i in range(100)}
    return lambda: f(tree), 1500


# tracing and lowering ----------------------------------------------------------------------------


def _lowering(api: Any, make: Callable[[Any], Any], derive: Callable[[Any], Any]) -> Any:
    """Trace and lower a new function object each time: nothing of the function is cached."""
    f, args = make(api)

    def run() -> Any:
        g = derive(lambda *a: f(*a))
        return api.jit(g).lower(*args)

    return run, 1


for _name, _make, _derive in (
    ("gradient of a 20-layer MLP", programs.mlp, lambda api: api.grad),
    ("gradient of a 6-block transformer", programs.transformer, lambda api: api.grad),
    ("chain of 200 operations", programs.chain, lambda api: lambda f: f),
    ("hessian", programs.quadratic, lambda api: api.hessian),
    (
        "vmap of the gradient of an MLP",
        programs.mlp,
        lambda api: lambda f: api.vmap(api.grad(f), (None, 0)),
    ),
    ("gradient of a scan", programs.scan_loss, lambda api: api.grad),
    ("gradient of the body of that scan", control_programs.scan_body, lambda api: api.grad),
    ("gradient of a scan of a new cell", control_programs.new_scan, lambda api: api.grad),
    ("gradient of one step of a new cell", control_programs.new_body, lambda api: api.grad),
    ("gradient of 20 calls of a jitted layer", control_programs.nested_jit, lambda api: api.grad),
    ("gradient of 20 checkpointed layers", control_programs.checkpointed, lambda api: api.grad),
    ("gradient of 8 nested checkpoints", control_programs.nested_checkpoints, lambda api: api.grad),
    ("gradient of 10 calls of a custom_vjp", control_programs.custom_vjp, lambda api: api.grad),
    ("gradient of 10 conds", control_programs.conds, lambda api: api.grad),
    ("while_loop", control_programs.while_loop, lambda api: lambda f: f),
):

    @case("tracing and lowering", _name)
    def _trace_case(api: Any, make: Any = _make, derive: Any = _derive) -> Any:
        return _lowering(api, make, derive(api))


# eager operations --------------------------------------------------------------------------------


@case("eager", "x + x")
def eager_add(api: Any) -> Any:
    x = vector(api)
    return lambda: x + x, 3000


@case("eager", "x + 1.0")
def eager_add_scalar(api: Any) -> Any:
    x = vector(api)
    return lambda: x + 1.0, 3000


@case("eager", "sin(x)")
def eager_sin(api: Any) -> Any:
    x = vector(api)
    return lambda: api.np.sin(x), 3000


@case("eager", "x @ x (8x8)")
def eager_matmul(api: Any) -> Any:
    x = api.np.asarray(onp.ones((8, 8), onp.float32))
    return lambda: x @ x, 2000


@case("eager", "x[3:9, 2]")
def eager_slice(api: Any) -> Any:
    x = api.np.asarray(onp.ones((16, 8), onp.float32))
    return lambda: x[3:9, 2], 500


@case("eager", "x.mean(0)")
def eager_mean(api: Any) -> Any:
    x = api.np.asarray(onp.ones((16, 8), onp.float32))
    return lambda: x.mean(0), 2000


# compiled code -----------------------------------------------------------------------------------


@case("compiled code", "gradient of a 6-block transformer")
def run_transformer(api: Any) -> Any:
    f, args = programs.transformer(api)
    g = api.jit(api.grad(f))
    return lambda: api.block(g(*args)), 20


@case("compiled code", "matmul 256 and tanh")
def run_matmul(api: Any) -> Any:
    x = api.np.asarray(onp.ones((256, 256), onp.float32))
    f = api.jit(lambda x: api.np.tanh(x @ x))
    return lambda: api.block(f(x)), 50


@case("compiled code", "gradient of a scan")
def run_scan(api: Any) -> Any:
    f, args = programs.scan_loss(api)
    g = api.jit(api.grad(f))
    return lambda: api.block(g(*args)), 50


# convolutions and pooling ------------------------------------------------------------------------

for _group, _table in (
    ("convolutions and pooling that XLA is slow at", windows.WEAK),
    ("convolutions that XLA does well", windows.STRONG),
):
    for _name, _program in _table.items():

        @case(_group, _name)
        def _window_case(api: Any, name: str = _name, program: windows.Make = _program) -> Any:
            with width(api, name):
                f, args = program(api)
            g = api.jit(f)

            def run() -> None:
                with width(api, name):
                    api.block(g(*args))

            return run, 3


matrices.register(case)
products.register(case)
elementwise.register(case)
draws.register(case)
