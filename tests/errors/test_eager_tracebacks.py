"""Errors of eager functions, operators and methods show the user's frames only."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.errors import filtering


@pytest.fixture(autouse=True)
def _filtering_on() -> Iterator[None]:
    """The rest of the suite may run with filtering off."""
    before = filtering.mode
    filtering.set_mode("auto")
    yield
    filtering.set_mode(before)


def six() -> Any:
    """An array of shape (6,)."""
    return tnp.arange(6.0)


def four() -> Any:
    """An array of shape (4,), which does not fit."""
    return tnp.ones((4,))


def deleted() -> Any:
    """An array without memory."""
    x = tnp.ones((3,))
    x.delete()
    return x


def internal_frames(error: BaseException) -> list[str]:
    """Functions of the engine that the traceback shows."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f.name for f in frames if filtering.is_internal_file(f.filename)]


HIDDEN: dict[str, Callable[[], Any]] = {
    "x + y": lambda: six() + four(),
    "2 - x": lambda: "2" - six(),
    "x @ y": lambda: six() @ four(),
    "x == y": lambda: six() == four(),
    "~x": lambda: ~six(),
    "x[1, 2]": lambda: six()[1, 2],
    "x[0.5]": lambda: six()[0.5],
    "round(x)": lambda: round(tnp.ones((2,), bool), 2) + four(),
    "x.sum(axis)": lambda: six().sum(axis=7),
    "x.reshape": lambda: six().reshape(5),
    "x.transpose": lambda: six().transpose(1),
    "x.std(axis)": lambda: six().std(axis=2),
    "x.sort(axis)": lambda: six().sort(axis=2),
    "x.at.set": lambda: six().at[1, 2].set(3.0),
    "x.at.add": lambda: six().at[:2].add(four()),
    "x.at.get": lambda: six().at[1, 2].get(),
    "add": lambda: tnp.add(six(), four()),
    "sin": lambda: tnp.sin("text"),
    "sum": lambda: tnp.sum(six(), axis=7),
    "mean": lambda: tnp.mean(six(), axis=7),
    "reshape": lambda: tnp.reshape(six(), (5,)),
    "concatenate": lambda: tnp.concatenate([six(), tnp.ones((2, 2))]),
    "stack": lambda: tnp.stack([six(), four()]),
    "where": lambda: tnp.where(six() > 0, six(), four()),
    "einsum": lambda: tnp.einsum("ij,jk", six(), four()),
    "take": lambda: tnp.take(six(), 1, axis=3),
    "interp": lambda: tnp.interp(six(), six(), four()),
    "cumsum": lambda: tnp.cumsum(six(), axis=4),
    "arange": lambda: tnp.arange("text"),
    "zeros": lambda: tnp.zeros("text"),
    "deleted": lambda: deleted() + 1,
    "deleted in a function": lambda: tnp.exp(deleted()),
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("again", [False, True], ids=["eager", "under jit"])
def test_no_frame_of_the_engine(name: str, again: bool) -> None:
    """Neither when the operation runs at once nor while it is traced."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the class is not the point here
        tb.jit(HIDDEN[name])() if again else HIDDEN[name]()

    assert [] == internal_frames(caught.value)
    while (cause := caught.value.__cause__) is not None:
        assert [] == internal_frames(cause)
        caught.value.__cause__ = cause.__cause__


@pytest.mark.parametrize(
    ("call", "function"),
    [
        (lambda: lax.add(six(), four()), ["add"]),
        (lambda: lax.sin(deleted()), ["sin"]),
        (lambda: lax.reshape(six(), (5,)), []),
        (lambda: lax.reshape(six(), "a"), []),
        (lambda: lax.scan(3, six(), six()), []),
    ],
)
def test_elementwise_operations_of_lax_show_one_frame(
    call: Callable[[], Any], function: list[str]
) -> None:
    """These are called most while tracing and have no wrapper; the others show none."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the class is not the point here
        call()

    assert function == internal_frames(caught.value)


@pytest.mark.parametrize("name", ["x + y", "sum", "x.sum(axis)", "interp", "x.at.set"])
def test_option_off_shows_all_frames(name: str) -> None:
    """Who debugs the engine sees where an error was raised."""
    filtering.set_mode("off")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the class is not the point here
        HIDDEN[name]()

    assert len(internal_frames(caught.value)) > 5


def test_frames_of_callbacks_stay() -> None:
    """A user's function that the engine calls is in the traceback."""

    def mine(_: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        tnp.apply_along_axis(mine, 0, six())

    assert "mine" == traceback.extract_tb(caught.value.__traceback__)[-1].name
    assert [] == internal_frames(caught.value)


@pytest.mark.parametrize("name", ["sum", "interp", "sin", "add", "percentile", "zeros"])
def test_public_functions_can_be_pickled(name: str) -> None:
    """By reference, with or without a wrapper."""
    function = getattr(tnp, name)

    assert function is pickle.loads(pickle.dumps(function))
    assert name == function.__name__
    assert function.__doc__
