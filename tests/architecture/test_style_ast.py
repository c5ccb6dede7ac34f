"""Rules of this code base that no linter knows, read from the syntax trees."""

from __future__ import annotations

import ast
import re

import tracebridge.core.lax as lax
from tests.architecture.sources import ROOT, Function, Source, package_sources, read, report

# "path" or "path:name" -> reason. One table per rule: an exception to one is none to another.
ENVIRONMENT_READERS: dict[str, str] = {}
LATE_IMPORTS: dict[str, str] = {}
REEXPORT_USERS: dict[str, str] = {}

# Thin modules for users. Inside the package the defining module is imported instead.
REEXPORTS = frozenset(
    f"tracebridge.{name}"
    for name in (
        "tree",
        "dtypes",
        "errors",
        "config",
        "sharding",
        "stages",
        "custom_derivatives",
        "ffi",
        "typing",
        "tree_util",
        "extend",
    )
)
# Packages whose `__init__` is meant to be used as a namespace: the operations of the layer below.
NAMESPACES = frozenset({"tracebridge.core.lax", "tracebridge.lax", "tracebridge.numpy"})

TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".cfg", ".ini", ""}
TEXT_FOLDERS = ("bridge", "core", "interop", "tests", "examples", "docs", ".ci")
# Absolute paths of somebody's machine, and folders outside the repository.
MACHINE_PATHS = re.compile(r"(?<![\w.:/}*-])/(?:work|opt|root|home)\b|\.\./shared\b")

SILENCERS = re.compile(r"#\s*(?:type:\s*ignore|pyright:\s*ignore|noqa)(?P<rest>.*)")
NOTES = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
SHORTEST_REASON = 8


def test_environment_is_read_in_one_place() -> None:
    """Only `core/config` reads environment variables: every option is in its table."""
    found = [
        f"{source.name}:{node.lineno}"
        for source in package_sources()
        if not source.name.startswith("core/config/") and source.name not in ENVIRONMENT_READERS
        for node in source.nodes
        if isinstance(node, ast.Attribute)
        and node.attr in {"environ", "getenv", "putenv"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]

    assert not found, report("uses of the environment outside core/config", found)


def test_nothing_imports_jax() -> None:
    """`jax` is not a dependency: neither the package nor tests nor examples import it."""
    found = [
        f"{source.name}:{line} {module}"
        for source in [*package_sources(), *read("tests"), *read("examples")]
        for line, module, _ in imports(source)
        if module == "jax" or module.startswith(("jax.", "jax_plugins"))
    ]

    assert not found, report("imports of jax", found)


def test_siblings_in_lax_are_called_through_the_package() -> None:
    """A file of `core/lax` takes no operation from a sibling file; see docs/decisions/0001."""
    operations = set(dir(lax))
    found = [
        f"{source.name}:{line} {module} {' '.join(names)}".rstrip()
        for source in read("core")
        if source.name.startswith("core/lax/") and not source.is_init
        for line, module, names in imports(source)
        if f"{module}.".startswith("tracebridge.core.lax.")
        and (operations.intersection(names) or (module == "tracebridge.core.lax" and names))
    ]

    assert not found, report("imports of sibling operations: use `lax.name(...)`", found)


def test_imports_name_the_defining_module() -> None:
    """No file of the package imports what is only passed on for users."""
    found = [
        f"{source.name}:{line} from {module}"
        for source in package_sources()
        if not source.is_init and source.name not in REEXPORT_USERS
        for line, module, names in imports(source)
        if (module == "tracebridge" and not submodules_only(module, names)) or module in REEXPORTS
    ]

    assert not found, report("imports from a module that only re-exports", found)


def test_names_are_not_taken_from_a_package() -> None:
    """`from package import name` takes a submodule, or what the package itself defines."""
    packages = {source.module: source for source in package_sources() if source.is_init}
    found = [
        f"{source.name}:{line} from {module} import {name}"
        for source in package_sources()
        if not source.is_init and source.name not in REEXPORT_USERS
        for line, module, names in imports(source)
        if module in packages and module not in NAMESPACES and module != "tracebridge"
        for name in names
        if not submodules_only(module, (name,)) and name in imported_names(packages[module])
    ]

    assert not found, report(
        "names taken from a package instead of the module that defines them", found
    )


def test_our_modules_are_imported_at_the_top() -> None:
    """No function imports a module of ours: that hides a circle, and costs in each call."""
    found = [
        f"{source.name}:{inner.lineno}"
        for source in package_sources()
        for node in source.nodes
        if isinstance(node, Function)
        and f"{source.name}:{node.name}" not in LATE_IMPORTS
        and not (source.is_init and node.name == "__getattr__")
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
        and any(module.startswith("tracebridge") for module in modules_of(inner))
    ]

    assert not found, report("imports inside functions", sorted(set(found)))


def test_nothing_is_left_unimplemented() -> None:
    """The package has no `NotImplementedError` and no note about work to do."""
    stubs = [
        f"{source.name}:{node.lineno} NotImplementedError"
        for source in package_sources()
        for node in source.nodes
        if isinstance(node, ast.Raise)
        and node.exc is not None
        and "NotImplementedError" in ast.unparse(node.exc)
    ]
    notes = [
        f"{source.name}:{line} {match.string}"
        for source in package_sources()
        for line, match in source.comments(NOTES)
    ]

    assert not stubs + notes, report("unfinished places", stubs + notes)


def test_silenced_checks_have_a_reason() -> None:
    """Each `type: ignore`, `pyright: ignore` and `noqa` says which rule and why, on its line."""
    found = [
        f"{source.name}:{line} {match.string}"
        for source in [*package_sources(), *read("tests"), *read("examples")]
        for line, match in source.comments(SILENCERS)
        if not has_rule_and_reason(match["rest"])
    ]

    assert not found, report("silenced checks without a rule or a reason", found)


def test_no_machine_is_named() -> None:
    """No file names a path of the machine that it was written on."""
    files = [
        path
        for folder in TEXT_FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
    ]
    # In a linked working tree `.git` is a file: git's own, with the path of the main one.
    files += [
        path
        for path in ROOT.iterdir()
        if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name != ".git"
    ]
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{number} {line.strip()[:80]}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATHS.search(line) and "MACHINE_PATHS" not in line
    ]

    assert not found, report("paths of a machine", found)


def imports(source: Source) -> list[tuple[int, str, tuple[str, ...]]]:
    """Line, module and taken names of every import of a file; no names for a plain `import`."""
    found: list[tuple[int, str, tuple[str, ...]]] = []
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            found.append((node.lineno, node.module or "", names))
    return found


def modules_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that one import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""]


def submodules_only(package: str, names: tuple[str, ...]) -> bool:
    """Whether all names taken from a package are modules of ours."""
    folder, *rest = package.split(".")
    if rest[:1] == ["core"] or rest[:1] == ["interop"]:
        base = ROOT.joinpath(*rest)
    else:
        base = ROOT.joinpath("bridge", *rest)
    return (
        folder == "tracebridge"
        and bool(names)
        and all((base / f"{name}.py").exists() or (base / name).is_dir() for name in names)
    )


def imported_names(source: Source) -> set[str]:
    """Names that a file gets from elsewhere."""
    return {
        alias.asname or alias.name
        for node in source.nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def has_rule_and_reason(rest: str) -> bool:
    """Whether the text after the keyword names a rule and goes on with words."""
    match = re.match(r"(?:\[[\w\-, ]+\]|:\s*[A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*)(?P<reason>.*)", rest)
    return match is not None and len(match["reason"].strip(" #-:.,")) >= SHORTEST_REASON


# Lists of one module that another one fills when it is imported -> why.
FILLED_AT_IMPORT: dict[str, str] = {}


def _fills(node: ast.stmt) -> str | None:
    """The list that a statement ``x.append(...)``, ``x.extend(...)`` or ``x[:] = ...`` fills."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr in {"append", "extend", "insert"}:
            return ast.unparse(function.value)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        return ast.unparse(target.value) if isinstance(target.slice, ast.Slice) else None
    return None


def test_no_list_is_filled_by_another_module() -> None:
    """Hooks stand in the composition root, bridge/_install.py."""
    found = set()
    for source in package_sources():
        imported = {
            (alias.asname or alias.name).partition(".")[0]
            for node in source.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        names = [_fills(node) for node in source.tree.body]
        found |= {f"{source.name}:{n}" for n in names if n and n.partition(".")[0] in imported}

    assert found == FILLED_AT_IMPORT.keys()
