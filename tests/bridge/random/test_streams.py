"""The numbers of all samplers are those written down."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.bridge.random import stream_cases as cases
from tracebridge import random

HERE = Path(__file__).parent
RECORDED: dict[str, Any] = json.loads((HERE / "streams.json").read_text("utf-8"))
# "generator form function arguments..." -> dtype, shape, elements
BASIC: dict[str, Any] = json.loads((HERE / "basic.json").read_text("utf-8"))
FORMS = {"split": True, "whole": False}


def compare(recorded: Any, found: Any) -> None:
    """Integers and booleans agree exactly, floats to a few roundings."""
    found = np.asarray(found)
    if found.dtype.kind == "c":
        found = np.stack([found.real, found.imag], -1)
    # Without a dtype NumPy makes floats of integers of 64 bits.
    expected = np.array(recorded, found.dtype if found.dtype.kind in "iu" else None)
    assert expected.shape == found.shape
    if found.dtype.kind in "iub":
        assert expected.tolist() == found.tolist()
    else:
        eps = float(tb.numpy.finfo(found.dtype).eps)
        found = found.astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=32 * eps, atol=4 * eps)


@pytest.mark.parametrize("name", BASIC)
def test_basic_draws(name: str) -> None:
    """Both forms of threefry, whose halves make the keys of the other generators too."""
    impl, form, function, *rest = name.split(" ", 3)
    dtype, shape, elements = BASIC[name]
    arguments = [ast.literal_eval(a) if a[0] in "(-0123456789" else a for a in _parts(rest)]
    if function == "bits":
        arguments = [arguments[0], *shape]
    with tb.threefry_partitionable(FORMS[form]):
        found = cases.BASIC[function](random, random.key(7, impl=impl), *arguments)

    assert dtype == str(found.dtype)
    compare(np.array(elements).reshape(shape).tolist(), found)


def _parts(rest: list[str]) -> list[str]:
    """Words, and a shape in brackets as one of them."""
    return re.findall(r"\([^)]*\)|\S+", rest[0]) if rest else []


@pytest.mark.parametrize("name", cases.WIDE)
@pytest.mark.parametrize("form", FORMS)
def test_wide_draws(form: str, name: str) -> None:
    """64 bits of a number come from two words."""
    with tb.enable_x64(), tb.threefry_partitionable(FORMS[form]):
        found = cases.WIDE[name](random, random.key(7))

    compare(RECORDED[f"threefry2x32 {form} {name}"], found)


@pytest.mark.parametrize("name", cases.DISTRIBUTIONS)
def test_distributions(name: str) -> None:
    """One draw of each distribution, and of its arguments."""
    found = cases.DISTRIBUTIONS[name](random, random.key(7))

    compare(RECORDED[f"threefry2x32 split {name}"], found)


@pytest.mark.parametrize("name", cases.TRANSFORMED)
def test_transformed_draws(name: str) -> None:
    """Batches draw what each key draws; derivatives move numbers at their probability."""
    compare(RECORDED[name], cases.TRANSFORMED[name](tb, random))


@pytest.mark.parametrize("generator", ["rbg", "unsafe_rbg"])
def test_draws_of_other_generators(generator: str) -> None:
    """Rejection works on one key after the other where several keys would share words."""
    for name, draw in cases.OF_OTHERS.items():
        compare(RECORDED[f"{generator} {name}"], draw(random, random.key(7, impl=generator)))


@pytest.mark.parametrize("name", ["gamma", "beta", "dirichlet", "binomial", "multinomial", "ball"])
def test_words_are_keys_too(name: str) -> None:
    """Legacy keys give the numbers of typed ones."""
    draw = cases.DISTRIBUTIONS[name]

    expected = np.asarray(draw(random, random.key(7)))

    np.testing.assert_array_equal(expected, np.asarray(draw(random, random.PRNGKey(7))))


def test_everything_recorded_is_drawn() -> None:
    """No number is written down in vain."""
    names = {name for table in (cases.WIDE, cases.DISTRIBUTIONS) for name in table}
    keys = {key for key in RECORDED if key not in cases.TRANSFORMED and "rbg" not in key}

    assert names == {key.split(" ", 2)[2] for key in keys}


@pytest.mark.parametrize("shape", [(1001,), (1024,), (400, 3), (2000, 1), (64, 64, 2), (3, 1001)])
def test_shapes_are_rows_of_one_sequence(shape: tuple[int, ...]) -> None:
    """How numbers lie in an array, and whether their count is round, does not change them."""
    key, size = random.key(7), int(np.prod(shape))
    more = -(-size // 64) * 64 + 64

    for draw in (random.bits, random.uniform, random.normal):
        found = np.asarray(draw(key, shape)).reshape(-1)
        assert found.tolist() == np.asarray(draw(key, (more,)))[:size].tolist()
