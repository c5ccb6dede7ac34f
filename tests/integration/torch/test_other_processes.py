"""Graphs that torch keeps in files, called in a process where functions are the same or others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.torch.test_hazards import run

pytestmark = pytest.mark.torch

# Functions of one module. The words in brackets are filled in, differently in other processes.
MODULE = """
import functools
import numpy as np
import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap

TABLE = np.array([1.0, {constant}, 3.0], np.float32)

@wrap
def constants(x):
    return x * TABLE

def helper(g):
    return g * {rule}

@tb.custom_vjp
def ruled(x):
    return x * 2

ruled.defvjp(lambda x: (x * 2, None), lambda res, g: (helper(g),))

@wrap
def rules(x):
    return ruled(x)

@tb.custom_jvp
def tangents(x):
    return x * 2

tangents.defjvp(lambda primals, duals: (primals[0] * 2, duals[0] * {rule}))

@functools.partial(wrap, static_argnames="n")
def statics(x, n=1):
    return tangents(x) * n

@wrap
def sizes(x, y):
    return tnp.concatenate([x, y]).reshape(-1) * {factor}

def host(x):
    return x * {factor}

@wrap
def calls_back(x):
    return tb.pure_callback(host, tb.ShapeDtypeStruct(x.shape, x.dtype), x)

@wrap
def dtypes(x):
    return tnp.arange({length}) + x.sum()

def several(x):
    return x * 2

if {factor} == 2:  # the names of two functions of one path depend on the order
    first, second = wrap(several), wrap(lambda x: x)
else:
    second, first = wrap(lambda x: x), wrap(several)
again = wrap(several)
local = (lambda: wrap(lambda x: x * 2))()
"""
SAME = {"constant": "2.0", "rule": "3", "factor": "2", "length": "3"}
EQUAL = {"constant": "4.0 / 2", "rule": "(1 + 2)", "factor": "2", "length": "3 * 1"}
OTHERS = {"constant": "5.0", "rule": "4", "factor": "7", "length": "3, dtype=float"}

CASES = """
import json, sys, torch
import my_functions as m

class Calls(torch.nn.Module):
    def __init__(self, f, *more, **statics):
        super().__init__()
        self.f, self.statics = f, statics

    def forward(self, x):
        return self.f(x, **self.statics)

class Pair(torch.nn.Module):
    def forward(self, x, y):
        return m.sizes(x, y)

x = torch.arange(3.0)
cases = {
    "constants": Calls(m.constants),
    "rules": Calls(m.rules),
    "statics": Calls(m.statics, n=5),
    "calls_back": Calls(m.calls_back),
    "dtypes": Calls(m.dtypes),
    "again": Calls(m.again),
    "unnamed": Calls(m.second),
    "local": Calls(m.local),
}
"""
SAVE = (
    CASES
    + """
for name, model in cases.items():
    torch.export.save(torch.export.export(model, (x,)), f"{sys.argv[1]}/{name}.pt2")
batch, other = torch.export.Dim("batch"), torch.export.Dim("other")
program = torch.export.export(
    Pair(), (torch.ones(2, 3), torch.ones(4, 3)),
    dynamic_shapes={"x": {0: batch}, "y": {0: other}},
)
torch.export.save(program, sys.argv[1] + "/sizes.pt2")
"""
)
LOAD = (
    CASES
    + """
def tried(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def results(name):
    loaded = torch.export.load(f"{sys.argv[1]}/{name}.pt2").module()
    y = x.clone().requires_grad_(name != "calls_back")
    out = loaded(y)
    if name != "calls_back":
        out.sum().backward()
    return out.tolist(), None if y.grad is None else y.grad.tolist()

found = {name: tried(lambda: results(name)) for name in cases}
sizes = torch.export.load(sys.argv[1] + "/sizes.pt2").module()
found["sizes"] = tried(lambda: [sizes(torch.ones(n, 2 + 1), torch.ones(5, 3)).sum().item()
                                for n in (1, 7)])
print(json.dumps(found))
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, subprocess_environment: Any) -> Path:
    """Programs that a process has exported."""
    path = tmp_path_factory.mktemp("programs")
    run(SAVE, _with_module(path, "first", subprocess_environment, SAME), str(path))
    return path


def _with_module(path: Path, name: str, environment: Any, words: dict[str, str]) -> dict[str, str]:
    (path / name).mkdir(exist_ok=True)
    text = MODULE.format(**words)
    (path / name / "my_functions.py").write_text(text, encoding="utf-8")
    result = dict(environment)
    # Digests depend on no order of sets, and the warnings of torch.export are its own.
    result |= {"PYTHONHASHSEED": str(len(name)), "PYTHONWARNINGS": "ignore"}
    result["PYTHONPATH"] += f":{path / name}"
    return result


def test_the_same_functions(folder: Path, subprocess_environment: Any) -> None:
    """Functions that make the same programs are found by import path, and are called."""
    environment = _with_module(folder, "equal", subprocess_environment, EQUAL)
    found = json.loads(run(LOAD, environment, str(folder)))

    x = [0.0, 1.0, 2.0]
    double = [0.0, 2.0, 4.0]
    assert [[0.0, 2.0, 6.0], [1.0, 2.0, 3.0]] == found.pop("constants")
    assert [double, [3.0] * 3] == found.pop("rules")
    assert [[5 * v for v in double], [15.0] * 3] == found.pop("statics")
    assert [double, None] == found.pop("calls_back")
    assert [[3 + v for v in x], [3.0] * 3] == found.pop("dtypes")
    assert [double, [2.0] * 3] == found.pop("again")
    assert [36.0, 72.0] == found.pop("sizes")
    # Nothing tells which function it was: the program in the file runs.
    assert [x, [1.0] * 3] == found.pop("unnamed")
    assert [double, [2.0] * 3] == found.pop("local")
    assert not found


def test_other_functions_of_the_same_names(folder: Path, subprocess_environment: Any) -> None:
    """A constant, a rule, a helper, a dtype that has changed: the programs are those of the files.

    A callback cannot be in a file: an error says that it has changed.
    """
    environment = _with_module(folder, "others", subprocess_environment, OTHERS)
    found = json.loads(run(LOAD, environment, str(folder)))

    double = [0.0, 2.0, 4.0]
    assert [double, [2.0] * 3] == found["again"]
    assert [[0.0, 2.0, 6.0], [1.0, 2.0, 3.0]] == found["constants"]
    assert [double, [3.0] * 3] == found["rules"]
    assert [[5 * v for v in double], [15.0] * 3] == found["statics"]
    assert [[3.0, 4.0, 5.0], [3.0] * 3] == found["dtypes"]
    assert [36.0, 72.0] == found["sizes"]
    message = found["calls_back"]
    assert message.startswith("ProgramMismatchError: a torch graph calls my_functions:")
    assert "has changed since" in message


COMPILED = """
import sys, torch
import tracebridge.numpy as tnp
from tracebridge.torch import wrap
from torch._dynamo.utils import counters

f = wrap(eval(sys.argv[1]))
x = torch.arange(4.0).reshape(2, 2).requires_grad_()
y = torch.compile(lambda x: f(x), fullgraph=True)(x)
y.sum().backward()
found = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
print(y.tolist(), x.grad.tolist(), found > 0)
"""


@pytest.mark.slow
def test_the_cache_of_inductor(tmp_path: Path, subprocess_environment: Any) -> None:
    """A compiled graph is taken from the disk for the same function, never for another one."""
    environment = dict(subprocess_environment)
    environment |= {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}

    def result(fun: str) -> str:
        return run(COMPILED, environment, fun).strip()

    first = "[[0.0, 2.0], [4.0, 6.0]] [[2.0, 2.0], [2.0, 2.0]]"
    other = "[2.0, 4.0] [[1.0, 1.0], [1.0, 1.0]]"
    assert f"{first} False" == result("lambda x: x * 2")
    assert f"{first} True" == result("lambda y: y * (1 + 1)")
    assert f"{other} False" == result("lambda x: x.sum(axis=0)")
