"""Errors under ``wrap`` show the frames of the user, and name arguments as the function does."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors import filtering
from tracebridge.torch import Module, wrap

T = torch.ones(3)


def of_user(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def of_ours(*_: Any, **__: Any) -> Any:
    return tnp.ones(3) + tnp.ones(4)


def in_backward(f: Callable[..., Any]) -> Any:
    g = tb.custom_vjp(lambda x: x)
    g.defvjp(lambda x: (x, None), f)
    return wrap(g)(torch.ones(3, requires_grad=True)).sum().backward()


CALLS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "wrap": lambda f: wrap(f)(T),
    "with gradients": lambda f: wrap(f)(torch.ones(3, requires_grad=True)),
    "keywords": lambda f: wrap(f)(x=T),
    "jit inside": lambda f: wrap(tb.jit(f))(T),
    "backward": in_backward,
    "Module": lambda f: Module(f, T)(T),
    "vmap": lambda f: torch.func.vmap(wrap(f))(torch.ones(2, 3)),
    "grad": lambda f: torch.func.grad(wrap(f))(T),
    "jvp": lambda f: torch.func.jvp(wrap(f), (T,), (T,)),
}


@pytest.fixture(autouse=True)
def _filtering_on() -> Iterator[None]:
    before = filtering.mode
    filtering.set_mode("auto")
    yield
    filtering.set_mode(before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its forward mode
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("function", [of_user, of_ours])
def test_errors_under_wrap_show_the_users_frames(name: str, function: Any) -> None:
    """No frame of the engine, and none of torch that the engine called."""
    with pytest.raises((ZeroDivisionError, tb.errors.BroadcastError)) as caught:
        CALLS[name](function)

    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [] == [f for f in frames if filtering.is_internal_file(f.filename)]
    # Between the call and the function there is nothing but torch's own caller of it.
    assert "_ops.py" not in "".join(f.filename for f in frames)
    assert function.__name__ == frames[-1].name


def test_arguments_are_called_by_their_names() -> None:
    """As ``jit`` calls them, static ones not counted."""

    def loss(weights: Any, mode: str, batch: Any) -> Any:
        return weights["w"] if weights["w"].sum() > 0 else batch

    with pytest.raises(tb.errors.TracerBoolConversionError, match=r"argument weights\['w'\] of"):
        wrap(loss, static_argnames="mode")({"w": T}, "train", T)
    with pytest.raises(tb.errors.UnsupportedDtypeError, match=r"wrap\(loss\): argument batch\[1\]"):
        wrap(loss, static_argnames="mode")({"w": T}, "train", [T, "no tensor"])
    with pytest.raises(tb.errors.UnsupportedDtypeError, match=r"wrap\(loss\): argument mode is"):
        wrap(loss)({"w": T}, "train", batch=T)
