"""What interpreters know about primitives stands in their classes, read from the syntax trees."""

from __future__ import annotations

import ast

from tests.architecture.sources import package_sources, report
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.primitive import Primitive

READERS = {"getattr", "hasattr", "attribute", "attrgetter", "methodcaller"}
# Other objects have these too.
COMMON = {"name", "effects"}
RULES = {n for c in (Primitive, HigherOrderPrimitive) for n in vars(c) if n[0] != "_"} - COMMON


def _reads_a_rule(call: ast.Call) -> bool:
    """Whether a call reads an attribute of a primitive, or any object's named like a rule."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else call.func
    named = function.id if isinstance(function, ast.Name) else function
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if named not in READERS or not texts:
        return False
    owner = ast.unparse(call.args[0]).rpartition(".")[2].rstrip(")").rpartition("(")[2]
    return owner in {"primitive", "prim"} or bool(RULES.intersection(texts))


def test_no_rule_is_fetched_by_its_name() -> None:
    """Rules are methods with defaults: a misspelt one is an error of the type checker."""
    found = [
        f"{source.name}:{node.lineno}: {ast.unparse(node)}"
        for source in package_sources()
        for node in source.nodes
        if isinstance(node, ast.Call) and _reads_a_rule(node)
    ]

    assert not found, report("rules that are fetched by a string", found)


def _compared(node: ast.AST) -> bool:
    """Whether the name of a primitive is looked up or compared, as a whole or by its start."""
    if isinstance(node, ast.Compare):
        return any([_is_name(side) for side in (node.left, *node.comparators)])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr
        if method in {"startswith", "endswith"}:
            return _is_name(node.func.value)
        return method == "get" and bool(node.args) and _is_name(node.args[0])
    return isinstance(node, ast.Subscript) and _is_name(node.slice)


def _is_name(node: ast.AST) -> bool:
    return ast.unparse(node).endswith(("primitive.name", "prim.name"))


def test_no_table_knows_primitives_by_name() -> None:
    """What a primitive costs, moves or needs is an attribute of its class."""
    found = [
        f"{source.name}:{node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]  # nodes of expressions have a line
        for source in package_sources()
        for node in source.nodes
        if _compared(node)
    ]

    assert not found, report("tables of primitives by name", found)


def test_the_search_finds_what_it_is_to_find() -> None:
    """The forms in which rules were fetched."""
    forms = (
        'getattr(app.primitive, "evaluate", None)',
        'hasattr(type(primitive), "linearize")',
        'getattr(p, "by_steps", None)',
        'operator.attrgetter("dce")(x)',
    )

    for text in forms:
        assert any([_reads_a_rule(c) for c in _calls(text)]), text
    assert not any([_reads_a_rule(c) for c in _calls('getattr(fun, "__name__", "")')])


def _calls(text: str) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
