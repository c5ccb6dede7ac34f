"""The examples in the docstrings of public functions are right, and each function has one.

Modules are imported by their public names: collected as files they would be loaded a second time.
"""

from __future__ import annotations

import doctest
import inspect
import re
from typing import Any

import pytest

from tests.public_modules import is_function, is_ours, public_modules, public_names

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NUMBER = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=e))(?:e[+-]?\d+)?")

# "module.name" -> why a public function has no example of its own.
WITHOUT_EXAMPLE: dict[str, str] = {}


class TolerantChecker(doctest.OutputChecker):
    """Compares floating-point numbers only as far as the expected digits go."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Whether the output is the expected one, numbers rounded as the example rounds them."""
        return super().check_output(want, rounded_like(want, got), optionflags)


def rounded_like(want: str, got: str) -> str:
    """The text `got` with each number replaced by that of `want`, where they agree to its digits.

    >>> rounded_like("[0.33, 1.]", "[0.33333334, 1.0000001]")
    '[0.33, 1.]'
    >>> rounded_like("0.34", "0.33333334")
    '0.33333334'
    """
    wanted, present = list(NUMBER.finditer(want)), list(NUMBER.finditer(got))
    if len(wanted) != len(present):
        return got
    pieces: list[str] = []
    end = 0
    for w, g in zip(wanted, present, strict=True):
        pieces.append(got[end : g.start()])
        pieces.append(w[0] if abs(float(w[0]) - float(g[0])) <= unit(w[0]) else g[0])
        end = g.end()
    return "".join((*pieces, got[end:]))


def unit(number: str) -> float:
    """One unit of the last digit of a decimal number, at least the precision of float32."""
    mantissa, _, exponent = number.partition("e")
    digits = len(mantissa.partition(".")[2])
    return max(10.0 ** (int(exponent or 0) - digits), abs(float(number)) * 2e-6)


def documented_objects() -> list[tuple[str, Any]]:
    """Every public object written here, once, by its shortest public name."""
    found: dict[int, tuple[str, Any]] = {}
    for module in public_modules():
        try:
            names = public_names(module)
        except Exception as error:  # noqa: BLE001 - one broken module must not hide the others' examples
            found[id(error)] = (module, error)
            continue
        for name, value in names.items():
            if is_ours(value) and (is_function(value) or inspect.isclass(value)):
                entry = (f"{module}.{name}", value)
                old = found.setdefault(id(value), entry)
                if len(entry[0]) < len(old[0]):
                    found[id(value)] = entry
    return sorted(found.values(), key=lambda entry: entry[0])


OBJECTS = documented_objects()


def examples_of(name: str, value: Any) -> list[doctest.DocTest]:
    """The doctests of an object and, for a class, of its methods."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(value, name=name, module=False, globs={}) if test.examples]


@pytest.mark.parametrize(("name", "value"), OBJECTS, ids=[name for name, _ in OBJECTS])
def test_examples_are_right(name: str, value: Any) -> None:
    """What the documentation shows is what happens."""
    if isinstance(value, Exception):
        raise value
    runner = doctest.DocTestRunner(checker=TolerantChecker(), verbose=False, optionflags=OPTIONS)
    output: list[str] = []
    for test in examples_of(name, value):
        runner.run(test, out=output.append)

    assert runner.summarize(verbose=False).failed == 0, "".join(output)


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name, _ in OBJECTS}))
def test_every_public_function_has_an_example(module: str) -> None:
    """A function without an example is documented by nobody's having tried it."""
    missing = [
        name
        for name, value in OBJECTS
        if name.rpartition(".")[0] == module
        and is_function(value)
        and name not in WITHOUT_EXAMPLE
        and not examples_of(name, value)
    ]

    assert not missing, f"no example in the documentation of: {', '.join(missing)}"


def test_numbers_are_compared_to_their_last_digit() -> None:
    """The checker accepts rounding and nothing more."""
    checker = TolerantChecker()

    assert checker.check_output("0.33\n", "0.3333334\n", OPTIONS)
    assert checker.check_output("[1., 2.5e-3]\n", "[1.0000001, 2.4999e-3]\n", OPTIONS)
    assert not checker.check_output("0.35\n", "0.3333334\n", OPTIONS)
    assert not checker.check_output("1\n", "2\n", OPTIONS)
