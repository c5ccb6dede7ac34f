"""Every public function with arguments of wrong kinds: our classes, its name, no inner frames.

Each function gets a good array for each argument it needs but one, and that one is a string, None,
an object, a list, a dict, a function, a leaked tracer or an array of strings; options get them too.
A function may accept such a value; what it may not do is fail with an error of its inside.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors import filtering
from tracebridge.errors import TracebridgeError, UnexpectedTracerError

# function -> why it is not called here
LEFT_OUT = {
    "clear_caches": "has no arguments",
    "print_environment_info": "prints",
    "printoptions": "changes how arrays are printed",
    "set_printoptions": "changes how arrays are printed",
    "save": "writes files",
    "savez": "writes files",
    "load": "a string is the name of a file",
    "fromfile": "a string is the name of a file",
    "devices": "takes no arrays; tests/bridge/_api/devices/test_devices.py has its errors",
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Names and functions of the package, of ``lax`` and of ``numpy``."""
    for module in (tb, lax, tnp):
        for name in sorted(dir(module)):
            if name.startswith("_") or name in LEFT_OUT or name in ("torch", "tf"):
                continue
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


FUNCTIONS = dict(public_functions())


def leaked() -> Any:
    """A tracer whose tracing has ended."""
    kept: list[Any] = []
    tb.make_jaxpr(kept.append)(tnp.ones(3))
    return kept[0]


def calls(function: Callable[..., Any]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Calls with one bad argument each: what it is, arguments, keyword arguments."""
    good = tnp.arange(6.0).reshape(2, 3)
    everywhere: dict[str, Any] = {
        "str": "a",
        "object": object(),
        "list": [1.5, "x"],
        "dict": {"k": 1},
        "strings": np.array(["a"]),
    }
    bad = {**everywhere, "None": None, "function": lambda *_: 1, "tracer": leaked()}
    parameters = list(inspect.signature(function).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = sum(p.kind in positional and p.default is p.empty for p in parameters)
    if not needed and any(p.kind is p.VAR_POSITIONAL for p in parameters):
        needed = 2
    for kind, value in bad.items():
        for position in range(needed):
            arguments: list[Any] = [good] * needed
            arguments[position] = value
            yield f"{kind} as argument {position}", arguments, {}
    for p in parameters:
        if p.default is not p.empty and p.kind is not inspect.Parameter.POSITIONAL_ONLY:
            for kind, value in everywhere.items():
                yield f"{p.name}={kind}", [good] * needed, {p.name: value}


def complaints(name: str, function: Callable[..., Any], error: BaseException) -> list[str]:
    """What is wrong with the error of a call."""
    text, short = str(error), name.rpartition(".")[2]
    frames = traceback.extract_tb(error.__traceback__)
    inner = [f.name for f in frames if filtering.is_internal_file(f.filename)]
    # Python's own words for a call that does not fit the signature.
    if type(error) is TypeError and not inner and "argument" in text:
        return []
    found = [] if isinstance(error, TracebridgeError) else [f"class {type(error).__name__}"]
    # An alias says the name that it stands for; a leaked tracer says where it was made.
    named = short in text or function.__name__ in text
    if not named and not isinstance(error, UnexpectedTracerError):
        found.append("no name")
    # Elementwise operations of lax have no boundary: see bridge/lax.
    elementwise = function.__module__.startswith("tracebridge.core.lax.elementwise")
    # Functions of the API that users call show themselves.
    if not elementwise and (len(inner) > 1 or (inner and inner[0] not in (short, "boundary"))):
        found.append(f"frames {inner}")
    return [f"{c}: {text.splitlines()[0] if text else ''}" for c in found]


@pytest.fixture(autouse=True)
def _filtering_on() -> Iterator[None]:
    """The rest of the suite may run with filtering off."""
    before = filtering.mode
    filtering.set_mode("auto")
    yield
    filtering.set_mode(before)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bad_input_is_reported_in_the_callers_terms(name: str) -> None:
    """Under tracing, where no call costs a compilation."""
    function = FUNCTIONS[name]
    found: list[str] = []
    for what, arguments, options in calls(function):

        def run(arguments: Any = arguments, options: Any = options) -> None:
            try:
                function(*arguments, **options)
            except Exception as error:  # noqa: BLE001 - any error is looked at
                found.extend(f"{what}: {c}" for c in complaints(name, function, error))  # noqa: B023 - runs within the iteration

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tb.make_jaxpr(run)()

    assert not found, "\n".join(found)
