"""No option without effect: the source of the package asks for the value of each."""

from __future__ import annotations

import ast
import functools

import pytest

from tests.architecture import sources
from tracebridge.core.config.options import OPTIONS

# What asks for the value of an option in force, for all threads or for this one.
READERS = ("option", "global_value", "read_environment_again")


@functools.cache
def names_that_are_read() -> frozenset[str]:
    """First arguments of all calls of readers, and loops over rows that name none."""
    found: set[str] = set()
    for source in sources.package_sources():
        for node in source.nodes:
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                function = node.func
                name = function.id if isinstance(function, ast.Name) else ""
                name = function.attr if isinstance(function, ast.Attribute) else name
                if name in READERS:
                    found.add(str(node.args[0].value))
    return frozenset(found)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_has_a_reader(name: str) -> None:
    assert name in names_that_are_read()
