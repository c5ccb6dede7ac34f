"""Failures of XLA come as errors of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.errors.runtime_errors import ExecutionError, OutOfMemoryError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.arrays.failures import check_host_holds, raise_failure

N = 1 << 22


def outer(x: Any) -> Any:
    return lax.reshape(x, (N, 1)) * lax.reshape(x, (1, N))


CALLS: dict[str, Callable[[Any], Any]] = {
    "made": lambda x: tnp.ones((N, N)),
    "operation": lambda x: lax.broadcast(x, (N,)),
    "operator": lambda x: x[:, None] * x[None, :],
    "jit": tb.jit(outer),
    "compiled": lambda x: tb.jit(outer).lower(x).compile()(x),
    "grad": tb.grad(lambda x: outer(x).sum()),
    "vmap": lambda x: tb.vmap(lambda a: a * x)(x),
}


@pytest.mark.parametrize("call", CALLS)
def test_out_of_memory(call: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The error says what was asked for and what lives; XLA's log says nothing before it."""
    x = tnp.ones(N)
    x.block_until_ready()
    capfd.readouterr()
    with pytest.raises(OutOfMemoryError, match=r"TiB were asked for; .* f32\[4194304\]") as caught:
        CALLS[call](x)

    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, XlaRuntimeError)
    assert capfd.readouterr().err == ""


HUGE = 1 << 46
MADE: dict[str, Callable[[], Any]] = {
    "zeros": lambda: tnp.zeros(HUGE),
    "eye": lambda: tnp.eye(1 << 23),
    "linspace": lambda: tnp.linspace(0, 1, HUGE),
    "broadcast_to": lambda: tnp.broadcast_to(tnp.ones(3), (HUGE // 2, 3)),
    "arange": lambda: tnp.arange(HUGE),
    "arange in jit": lambda: tb.jit(lambda: tnp.arange(0.0, HUGE, 2))(),
    "hanning": lambda: tnp.hanning(HUGE),
    "blackman": lambda: tnp.blackman(HUGE),
    "tril_indices": lambda: tnp.tril_indices(1 << 25),
    "triu_indices": lambda: tnp.triu_indices(1 << 25),
    "diag_indices": lambda: tnp.diag_indices(HUGE),
    "ogrid": lambda: tnp.ogrid[0:HUGE],
    "fromfunction": lambda: tnp.fromfunction(lambda i: i, (HUGE,)),
}


@pytest.mark.parametrize("name", MADE)
def test_out_of_memory_where_the_host_makes_the_numbers(name: str) -> None:
    """The same error as where a device has no memory."""
    with pytest.raises(OutOfMemoryError, match=r"out of memory: .* [TP]iB were asked for"):
        MADE[name]()


def test_other_failures() -> None:
    """The text of XLA follows the name of the program."""
    with pytest.raises(ExecutionError, match=r"step: XLA could not .*: INTERNAL: lost"):
        raise_failure("step", XlaRuntimeError("INTERNAL: lost"))


def test_errors_of_ours_stay() -> None:
    """They say more already."""
    raise_failure("step", OutOfMemoryError("RESOURCE_EXHAUSTED"))


def test_sizes_that_no_host_holds() -> None:
    """Known before a program is compiled; what a host may hold passes."""
    check_host_holds("step", [ShapedArray((1 << 10,), np.dtype(np.float32))] * 2)
    with pytest.raises(OutOfMemoryError, match=r"step: out of memory: 256\.0 TiB were asked for"):
        check_host_holds("step", [ShapedArray((1 << 23, 1 << 22), np.dtype(np.float32))] * 2)
