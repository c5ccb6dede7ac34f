"""Functions, classes and files stay small enough to be read in one go."""

from __future__ import annotations

import ast

from tests.architecture.sources import Function, Source, package_sources, read, report

FUNCTION_LINES = 60
CLASS_LINES = 300
FILE_LINES = 800
TEST_FILE_LINES = 1000

# "path" or "path:qualified name" -> why it is longer. A file at its limit is split by topic
# instead.
EXCEPTIONS: dict[str, str] = {}


def test_functions_are_short() -> None:
    """No function of the package or the tests has more than 60 lines, its docstring not counted."""
    too_long = [
        f"{source.name}:{node.lineno} {name}: {lines} lines"
        for source in [*package_sources(), *read("tests"), *read("examples")]
        for name, node in definitions(source)
        if isinstance(node, Function)
        and (lines := code_lines(node)) > FUNCTION_LINES
        and f"{source.name}:{name}" not in EXCEPTIONS
    ]

    assert not too_long, report(f"functions with more than {FUNCTION_LINES} lines", too_long)


def test_classes_are_short() -> None:
    """No class of the package has more than 300 lines, docstrings not counted."""
    too_long = [
        f"{source.name}:{node.lineno} {name}: {lines} lines"
        for source in package_sources()
        for name, node in definitions(source)
        if isinstance(node, ast.ClassDef)
        and (lines := class_lines(node)) > CLASS_LINES
        and f"{source.name}:{name}" not in EXCEPTIONS
    ]

    assert not too_long, report(f"classes with more than {CLASS_LINES} lines", too_long)


def test_files_are_short() -> None:
    """No file of the package has more than 800 lines, no test file more than 1000."""
    limits = [
        *((source, FILE_LINES) for source in [*package_sources(), *read("examples")]),
        *((source, TEST_FILE_LINES) for source in read("tests")),
    ]
    too_long = [
        f"{source.name}: {source.line_count} lines, the limit is {limit}"
        for source, limit in limits
        if source.line_count > limit and source.name not in EXCEPTIONS
    ]

    assert not too_long, report("files that should be split by topic", too_long)


def test_init_files_only_import() -> None:
    """An `__init__.py` has imports, names and lazy loading, and defines nothing."""
    wrong = [
        f"{source.name}:{node.lineno} {ast.unparse(node).splitlines()[0]}"
        for source in package_sources()
        if source.is_init and source.name not in EXCEPTIONS
        for node in source.tree.body
        if not belongs_in_init(node)
    ]

    assert not wrong, report("statements that belong in a module of their own", wrong)


def test_exceptions_are_used() -> None:
    """An exception whose file or function is gone is removed."""
    known = {source.name for source in [*package_sources(), *read("tests"), *read("examples")]}
    stale = [key for key in EXCEPTIONS if key.partition(":")[0] not in known]

    assert not stale, report("stale exceptions", stale)


def definitions(source: Source) -> list[tuple[str, Function | ast.ClassDef]]:
    """All functions and classes of a file with their qualified names."""
    found: list[tuple[str, Function | ast.ClassDef]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function | ast.ClassDef):
                name = f"{prefix}{child.name}"
                found.append((name, child))
                visit(child, f"{name}.")
            elif not isinstance(child, ast.expr):  # which define nothing, and are most nodes
                visit(child, prefix)

    visit(source.tree, "")
    return found


def code_lines(node: Function) -> int:
    """Lines from `def` to the end, without the docstring: a long docstring is no fault."""
    return span(node) - docstring_lines(node)


def class_lines(node: ast.ClassDef) -> int:
    """Lines of a class without the docstrings of it and of its methods."""
    documented = (n for n in ast.walk(node) if isinstance(n, Function | ast.ClassDef))
    return span(node) - sum(docstring_lines(n) for n in documented)


def span(node: Function | ast.ClassDef) -> int:
    """Lines from the keyword to the end; decorators are not counted."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def docstring_lines(node: Function | ast.ClassDef) -> int:
    """Lines of the docstring, 0 without one."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return (first.end_lineno or first.lineno) - first.lineno + 1
    return 0


def belongs_in_init(node: ast.stmt) -> bool:
    """Imports, names, the docstring, `TYPE_CHECKING` blocks and the two hooks of lazy loading."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Delete():
            return True
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Expr(value=ast.Call()):
            return True  # the composition root is called: `install()`
        case ast.Assign() | ast.AnnAssign():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
            return all(belongs_in_init(child) for child in body)
        case ast.If(
            test=ast.UnaryOp(op=ast.Not(), operand=ast.Name(id="TYPE_CHECKING")),
            body=[ast.FunctionDef(name="__getattr__")],
            orelse=[],
        ):
            return True  # a type checker that saw the hook would accept every name
        case ast.FunctionDef(name="__getattr__" | "__dir__"):
            return True
    return False
