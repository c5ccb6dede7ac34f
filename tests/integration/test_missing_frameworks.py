"""A look at the package imports no framework, and works without one."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOK = """
import contextlib, inspect, io, pydoc, rlcompleter, sys
import tracebridge
with contextlib.redirect_stdout(io.StringIO()) as text:
    pydoc.Helper(output=text).help(tracebridge)
assert "value_and_grad" in text.getvalue()
found = [hasattr(tracebridge, name) for name in ("torch", "tf")]
members = dict(inspect.getmembers(tracebridge))
assert {"grad", "numpy"} <= set(members)
completer = rlcompleter.Completer({"tracebridge": tracebridge})
words, i = set(), 0
while (word := completer.complete("tracebridge.", i)) is not None:
    words.add(word.rstrip("("))
    i += 1
assert {"tracebridge.jit", "tracebridge.numpy"} <= words
assert "torch" in dir(tracebridge) and "tf" in dir(tracebridge)
print(found, [m for m in ("torch", "tensorflow") if m in sys.modules])
"""

BLOCK = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "tensorflow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""

IMPORTS = """
import tracebridge
for statement in ("import tracebridge.torch", "from tracebridge import torch", "tracebridge.torch",
                  "from tracebridge.torch import wrap",
                  "import tracebridge.tf", "from tracebridge import tf", "tracebridge.tf",
                  "import tracebridge.experimental.jax2tf",
                  "from tracebridge.experimental.jax2tf import convert"):
    try:
        exec(statement)
    except (ModuleNotFoundError, AttributeError) as error:
        kind = "AttributeError" if "import" not in statement else "ModuleNotFoundError"
        assert type(error).__name__ == kind, (statement, error)
        assert "pip install" in str(error), (statement, error)
    else:
        raise AssertionError(statement)
print("all")
"""


FIRST_GRADIENTS = """
import sys
import torch
import tracebridge
f = tracebridge.torch.wrap(lambda x: tracebridge.numpy.sin(x) * 2)
x = torch.ones(4, requires_grad=True)
f(x).sum().backward()
module = tracebridge.torch.Module(lambda p, x: p * x, torch.ones(4))
module(x).sum().backward()
slow = ("torch._dynamo", "torch.distributed.tensor", "sympy")
print([name for name in slow if name in sys.modules])
from torch.distributed import HashStore, init_device_mesh, init_process_group
init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
x = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1,)), [Shard(0)])
print([type(y) is DTensor for y in (f(x), torch.ops.tracebridge.snapshot(x))])
"""


def output(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_look_imports_no_framework(subprocess_environment: dict[str, str]) -> None:
    """help, hasattr, getmembers and completion, with whatever is installed."""
    assert output(LOOK, subprocess_environment).endswith("[]")


def test_a_look_works_without_frameworks(subprocess_environment: dict[str, str]) -> None:
    """Names of missing frameworks are attributes that are not there."""
    assert "[False, False] []" == output(BLOCK + LOOK, subprocess_environment)


@pytest.mark.torch
@pytest.mark.tf
def test_a_look_finds_installed_frameworks(subprocess_environment: dict[str, str]) -> None:
    """They are there, and not imported."""
    assert "[True, True] []" == output(LOOK, subprocess_environment)


def test_imports_without_the_framework_say_how_to_install_it(
    subprocess_environment: dict[str, str],
) -> None:
    """As ModuleNotFoundError from an import, as AttributeError from an attribute."""
    assert "all" == output(BLOCK + IMPORTS, subprocess_environment)


@pytest.mark.torch
@pytest.mark.parametrize(
    "imports", ["import tracebridge.torch, torch", "import torch, tracebridge.torch"]
)
def test_an_import_statement_defines_the_operator(
    imports: str, subprocess_environment: dict[str, str]
) -> None:
    """Graphs from files call it, whatever was imported first."""
    pytest.importorskip("torch")

    found = output(f"{imports}\nprint(torch.ops.tracebridge.call.default)", subprocess_environment)

    assert found == "tracebridge.call.default"


@pytest.mark.torch
def test_first_gradients_wait_for_no_compiler(subprocess_environment: dict[str, str]) -> None:
    """Slow parts of torch are imported by who needs them; DTensors have their rules then."""
    pytest.importorskip("torch")

    found = output(FIRST_GRADIENTS, subprocess_environment).splitlines()

    assert found == ["[]", "[True, True]"]
