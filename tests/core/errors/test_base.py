"""The form of a message, the link to its page, pickling, for every error class."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
import pkgutil
import re
import types
import warnings
from pathlib import Path

import pytest

import tracebridge.core.errors
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.base import DOCUMENTATION, InternalError, TracebridgeError, compose
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import AxisSpecError, TreeMismatchError

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs" / "errors"


def defined_in(module: types.ModuleType) -> set[str]:
    """Names of the classes that a file defines; their ``__module__`` is the public one."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def error_classes() -> list[type[BaseException]]:
    """Every exception and warning class that a module of core/errors defines."""
    found: list[type[BaseException]] = []
    package = tracebridge.core.errors
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, BaseException)
            and value.__name__ in defined_in(module)
        ]
    return sorted(found, key=lambda cls: cls.__name__)


ERRORS = [cls for cls in error_classes() if issubclass(cls, TracebridgeError)]
ARGUMENTS = {"AxisError": (3, 2)}


def make(cls: type[TracebridgeError]) -> TracebridgeError:
    """An instance with the fewest arguments."""
    if cls.__name__ in ARGUMENTS:
        return cls(*ARGUMENTS[cls.__name__])
    parameters = list(inspect.signature(cls).parameters.values())
    if (
        parameters
        and parameters[0].name == "tracer"
        and parameters[0].default is parameters[0].empty
    ):
        return cls(object())
    return cls("something is wrong")


def test_fields_make_a_sentence() -> None:
    """Call, got and expected are one line; where and the way out follow."""
    expected = (
        "lax.add(x, y): got shapes (2,) and (3,), expected equal shapes\n"
        "    where: argument y\n"
        "    way out: broadcast first"
    )

    actual = compose(
        call="lax.add(x, y)",
        got="shapes (2,) and (3,)",
        expected="equal shapes",
        where="argument y",
        hint="broadcast first",
    )

    assert expected == actual


def test_fields_follow_a_finished_sentence() -> None:
    """With a message, got and expected are not lost."""
    actual = compose("no such thing", got="a", expected="b", where="c", hint="d")

    assert actual == ("no such thing\n    got: a\n    expected: b\n    where: c\n    way out: d")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"call": "f"}, "f"),
        ({"got": "x"}, "got x"),
        ({"call": "f", "expected": "y"}, "f: expected y"),
        ({}, ""),
    ],
)
def test_empty_fields_leave_no_trace(fields: dict[str, str], text: str) -> None:
    """A field that is not given adds neither a word nor a line."""
    assert text == compose(**fields)


def test_quoted_messages_have_no_page() -> None:
    """A message that quotes another one links the page of its own class alone."""
    inner = ArgumentTypeError("f: x is a str", hint="pass numbers")
    outer = ArgumentValueError(f"g: {inner}")

    assert 1 == str(outer).count("    see ")
    assert str(outer).endswith(f"way out: pass numbers\n    see {ArgumentValueError.page}")


def test_message_ends_with_the_page() -> None:
    """The last line names the page that explains the class."""
    exc = ShapeMismatchError(call="f", got="1")

    assert (
        str(exc)
        == "f: got 1\n    see https://tracebridge.readthedocs.io/en/latest/errors/ShapeMismatchError.html"
    )
    assert exc.call == "f"
    assert exc.got == "1"


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_links_its_own_page(cls: type[TracebridgeError]) -> None:
    """The page exists, is about this class, and str() shows its path."""
    page = PAGES / f"{cls.__name__}.md"

    assert f"{DOCUMENTATION}/errors/{page.stem}.html" == cls.page
    assert str(make(cls)).endswith(f"see {cls.page}")
    assert page.read_text("utf-8").startswith(f"# {cls.__name__}\n")


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_every_page_is_in_the_docstring(cls: type[BaseException]) -> None:
    """Who installed a wheel has no pages: after its summary the docstring has their text."""
    page = (PAGES / f"{cls.__name__}.md").read_text("utf-8").partition("\n")[2]
    page = re.sub(r"^```\w*$", "", page.replace("## Cause", ""), flags=re.MULTILINE)
    page = re.sub(r"^## (.*)$", r"\1::", page, flags=re.MULTILINE)

    assert page.split() == str(cls.__doc__).split()[-len(page.split()) :]


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_every_class_says_its_public_path(cls: type[BaseException]) -> None:
    """Tracebacks print from where a class is imported, and it can be imported from there."""
    assert "tracebridge.errors" == cls.__module__
    assert cls is getattr(importlib.import_module("tracebridge.errors"), cls.__name__)


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_every_page_has_cause_wrong_and_right(cls: type[BaseException]) -> None:
    """Every class of the folder, warnings too, has a page with the three parts."""
    text = (PAGES / f"{cls.__name__}.md").read_text("utf-8")

    missing = [part for part in ("## Cause", "## Wrong", "## Right") if part not in text]
    assert not missing


def test_no_page_without_a_class() -> None:
    """A page whose class was renamed or removed would mislead."""
    assert {cls.__name__ for cls in error_classes()} == {page.stem for page in PAGES.glob("*.md")}


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_can_be_pickled_and_copied(cls: type[TracebridgeError]) -> None:
    """Exceptions cross process boundaries with type, text and fields."""
    exc = make(cls)

    for other in (pickle.loads(pickle.dumps(exc)), copy.copy(exc)):
        assert type(exc) is type(other)
        assert str(exc) == str(other)
        assert exc.args == other.args
        assert exc.hint == other.hint


def test_axis_error_keeps_its_numbers_through_pickling() -> None:
    """NumPy's slots travel too."""
    other = pickle.loads(pickle.dumps(AxisError(5, 2)))

    assert (other.axis, other.ndim) == (5, 2)


def test_every_error_has_a_builtin_base_too() -> None:
    """Each concrete class is also a builtin that a caller may already catch."""
    plain = {Exception, BaseException, object, TracebridgeError}

    without = [
        cls.__name__
        for cls in ERRORS
        if cls is not TracebridgeError
        and not any(base.__module__ == "builtins" for base in set(cls.__mro__) - plain)
    ]
    assert without == []


def test_a_subclass_from_elsewhere_keeps_its_parents_page() -> None:
    """A class outside the package has no page of its own."""

    class Mine(ShapeMismatchError):
        pass

    assert Mine.page == ShapeMismatchError.page


def test_internal_error_asks_for_a_report() -> None:
    """The way out of our own bugs is a report, unless the place knows a better one."""
    assert "please report" in str(InternalError("broken"))
    assert "please report" not in str(InternalError("broken", hint="restart"))


def test_warning_classes_are_warnings() -> None:
    """What is no error is a UserWarning that filters can name."""
    others = [cls for cls in error_classes() if not issubclass(cls, TracebridgeError)]

    assert [cls.__name__ for cls in others] == ["ExplicitX64Warning"]
    with pytest.warns(others[0], match="x"):
        warnings.warn("x", others[0], stacklevel=1)


@pytest.mark.parametrize(
    "cls",
    [ShapeMismatchError, DtypeMismatchError, TreeMismatchError, AxisSpecError],
    ids=lambda cls: cls.__name__,
)
def test_mismatches_are_type_errors_and_value_errors(cls: type[TracebridgeError]) -> None:
    """Code that catches either keeps working: other libraries are not of one mind."""
    assert issubclass(cls, TypeError)
    assert issubclass(cls, ValueError)


def test_axes_are_caught_as_shapes_are() -> None:
    """Programs that expect a TypeError of a wrong axis, as of a wrong shape, get one."""
    for expected in (TypeError, ValueError, IndexError):
        with pytest.raises(expected):
            raise AxisError(3, 2)
