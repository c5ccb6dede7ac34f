"""Small programs are compiled without XLA's newer emitters: sooner, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core._jaxlib.xla import NO_EMITTERS
from tracebridge.core.config.scopes import scope
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lowering.emitters import is_brief, is_small
from tracebridge.core.runtime.programs import compile as compiling
from tracebridge.core.runtime.programs.flags import without_emitters
from tracebridge.scipy import special


def staged(f: Callable[..., Any], n: int, dtype: Any = np.float32) -> Any:
    """The program of a function of one array."""
    return stage(lambda *x: tb.tree.leaves(f(*x)), [ShapedArray((n,), np.dtype(dtype))])


@pytest.mark.parametrize(
    ("function", "n", "dtype", "expected"),
    [
        (tnp.sin, 1024, np.float32, True),
        (tnp.sin, 1025, np.float32, False),
        (tnp.sin, 0, np.float64, True),
        (tnp.sin, 8, np.complex64, False),
        (tnp.sort, 8, np.int32, True),
        (lambda x: tb.nn.softmax(x), 8, np.float16, True),
        (lambda x: special.zeta(x, x), 8, np.float32, True),
        (lambda x: special.zeta(x, x), 9, np.float32, False),
        (tnp.tan, 8, np.float32, False),
        (lambda x: x @ x, 8, np.float32, True),
        (lambda x: tnp.sin(x) @ x, 8, np.float32, False),
        (lambda x: lax.fori_loop(0, 9, lambda _, y: y + y, x), 8, np.float32, False),
        (lambda x: sum([x * k for k in range(9)]), 8, np.float32, False),
    ],
)
def test_which_programs_are_small(
    function: Callable[..., Any], n: int, dtype: Any, expected: bool
) -> None:
    """Few equations on few real numbers; functions that may be loops have fewer."""
    jaxpr = staged(function, n, dtype)
    tb.jit(function).lower(np.ones(n, dtype))  # notes what is one operation of XLA

    assert expected == is_small(jaxpr)


def test_which_functions_of_the_library_are_brief() -> None:
    """Loops are, where all values are small; products are not."""
    looped = staged(lambda x: lax.fori_loop(0, 9, lambda _, y: y + y, x), 8)

    assert is_brief(looped, 32)
    assert not is_brief(looped, 33)
    assert not is_brief(staged(lambda x: lax.fori_loop(0, 9, lambda _, y: y * (y @ y), x), 8), 32)


def test_flags_of_users_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among the compiler's options and in the environment."""
    chosen = tuple([(name, True) for name, _ in NO_EMITTERS])

    assert chosen == without_emitters(chosen)
    assert NO_EMITTERS == without_emitters(())
    monkeypatch.setenv("XLA_FLAGS", " ".join([f"--{name}=true" for name, _ in NO_EMITTERS]))
    assert () == without_emitters(())


@pytest.mark.skipif(not NO_EMITTERS, reason="this jaxlib has no emitters to choose")
def test_programs_are_compiled_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single operations and small programs, not large ones, and none where rules are off."""
    seen: list[bool] = []
    compiled = compiling._compile

    def noted(lowered: Any, placement: Any, options: Any, bytecode: Any) -> Any:
        seen.append(NO_EMITTERS[0] in options)
        return compiled(lowered, placement, options, bytecode)

    monkeypatch.setattr(compiling, "_compile", noted)
    with scope("disable_most_optimizations", False):
        for n in (13, 1300):
            tb.jit(lambda x: tnp.sin(x) + 0.125)(np.ones(n, np.float32))
        with scope("platform_rules", False):
            tb.jit(lambda x: tnp.sin(x) + 0.125)(np.ones(14, np.float32))
    assert [True, False, False] == seen


FUNCTIONS = {
    "mean": tnp.mean,
    "softmax": tb.nn.softmax,
    "power": lambda x: x**2.5,
    "log1p": tnp.log1p,
    "gammaln": special.gammaln,
    "cumsum": tnp.cumsum,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_the_same(name: str, dtype: Any) -> None:
    """To the last bit, whether the emitters are left out or not."""
    x = np.random.default_rng(0).uniform(0.1, 0.9, 100).astype(dtype)
    with tb.enable_x64(True):
        lowered = tb.jit(FUNCTIONS[name]).lower(x)
        quick = lowered.compile()
        slow = lowered.compile({flag: True for flag, _ in NO_EMITTERS})
        np.testing.assert_array_equal(np.asarray(slow(x)), np.asarray(quick(x)))
