"""Annotations say something: `Any` is the exception."""

from __future__ import annotations

import ast

from tests.architecture.sources import Function, package_sources

MOST = 0.25
"""Of all annotated parameters; it goes down, never up."""


def test_few_parameters_are_any() -> None:
    """At most a quarter of the parameters have `Any` in their annotations."""
    by_folder: dict[str, list[bool]] = {}
    for source in package_sources():
        found = by_folder.setdefault("/".join(source.path.parts[:2]), [])
        found += [_says_any(a) for a in annotations_of(source.tree)]
    every = [says for found in by_folder.values() for says in found]
    worst = sorted(by_folder.items(), key=lambda item: -sum(item[1]))[:10]

    assert sum(every) <= MOST * len(every), "\n".join(
        [
            f"{sum(every)} of {len(every)} parameters have Any, {MOST:.0%} may; most of them in:",
            *[f"  {folder}: {sum(found)} of {len(found)}" for folder, found in worst],
        ]
    )


def test_contexts_of_rules_have_types() -> None:
    """Rules and their helpers say which context they are given: LoweringContext, BatchContext."""
    found: list[str] = []
    for source in package_sources():
        for parameter in parameters(source.tree):
            if parameter.arg == "ctx" and (
                parameter.annotation is None or _says_any(parameter.annotation)
            ):
                found.append(f"{source.path}:{parameter.lineno}")

    assert not found, f"say LoweringContext, BatchContext (core/ir/rule_contexts.py): {found}"


def annotations_of(tree: ast.Module) -> list[ast.expr]:
    """The annotations of the parameters of all functions of a file."""
    return [p.annotation for p in parameters(tree) if p.annotation is not None]


def parameters(tree: ast.Module) -> list[ast.arg]:
    """The parameters of all functions of a file."""
    found: list[ast.arg] = []
    for node in ast.walk(tree):
        if isinstance(node, Function):
            a = node.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
            found += [p for p in every if p is not None]
    return found


def _says_any(annotation: ast.expr | None) -> bool:
    if annotation is None:
        return False
    return any([isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(annotation)])
