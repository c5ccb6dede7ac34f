"""The paths that classes print are those from which users import them."""

from __future__ import annotations

import importlib
import inspect
import pickle

import pytest

import tracebridge as tb
import tracebridge.core
import tracebridge.numpy as tnp
from tests.public_modules import is_ours, public_modules, public_names

ENGINE = "tracebridge.core"
"""The names of the engine that its users may import; what lies below is private."""


def public_classes() -> dict[type, str]:
    """Each class that a public module offers, and one name of it."""
    names = {module: public_names(module) for module in public_modules()}
    names[ENGINE] = {
        name: getattr(tracebridge.core, name)
        for name in dir(tracebridge.core)
        if not name.startswith("_")
    }
    return {
        value: f"{module}.{name}"
        for module in sorted(names)
        for name, value in names[module].items()
        if inspect.isclass(value) and is_ours(value)
    }


CLASSES = public_classes()


@pytest.mark.parametrize("cls", CLASSES, ids=CLASSES.values())
def test_printed_path_is_public(cls: type) -> None:
    """The module and the name of a public class are a public module and the name there."""
    assert cls.__module__ in {*public_modules(), ENGINE}
    assert cls is getattr(importlib.import_module(cls.__module__), cls.__qualname__)
    assert cls.__name__ == cls.__qualname__


@pytest.mark.parametrize("cls", CLASSES, ids=CLASSES.values())
def test_classes_are_pickled_by_their_public_path(cls: type) -> None:
    """A pickle of a public class gives the class again."""
    assert cls is pickle.loads(pickle.dumps(cls))


def test_paths_of_what_users_meet() -> None:
    """Objects that users print by their class show public paths, be their classes or bases."""
    closed = tb.make_jaxpr(tnp.sin)(1.0)
    seen: list[type] = []
    tb.jit(lambda x: seen.extend(type(x).__mro__[:2]) or x)(1.0)
    met = [type(closed), type(closed.jaxpr), type(closed.in_avals[0]), *seen]

    assert [
        "tracebridge.extend.core.ClosedJaxpr",
        "tracebridge.extend.core.Jaxpr",
        "tracebridge.core.ShapedArray",
        "tracebridge.interpreters.partial_eval.DynamicJaxprTracer",
        "tracebridge.core.Tracer",
    ] == [f"{cls.__module__}.{cls.__qualname__}" for cls in met]
