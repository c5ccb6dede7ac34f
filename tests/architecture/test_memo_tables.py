"""Every memo of a module is a registered cache, so that ``clear_caches`` forgets it."""

from __future__ import annotations

import ast

import tracebridge as tb
from tests.architecture.sources import package_sources, report
from tracebridge.core.ir.typeof import converter_of
from tracebridge.core.util.caching import all_caches

# Empty dicts of modules that are no memos of what users pass -> why they stay.
OTHER_TABLES = {
    "bridge/_api/exports/trees.py:_BY_NAME": "registrations",
    "bridge/_api/exports/trees.py:_BY_TYPE": "registrations",
    "bridge/_api/vectorize/vmappable.py:VMAPPABLES": "registrations",
    "bridge/_api/vectorize/vmappable.py:_IOTA": "registrations",
    "bridge/_derived/families.py:_PINNED": "programs that graphs of torch name",
    "bridge/_derived/names.py:_GIVEN": "to forget numbers would repeat names",
    "bridge/_derived/settings.py:_CAPTURED": "options that graphs of torch were made under",
    "bridge/torch/_crossing/dense.py:_DEVICE_KEYS": "one number per device",
    "core/_jaxlib/plugins.py:_loaded": "libraries, which stay loaded",
    "core/_jaxlib/xla.py:_SINGLE": "interned: compared by identity, dropped with the client",
    "core/ir/aval.py:_INTERNED": "interned, weak: compared by identity",
    "core/ir/primitive.py:_ALL": "registrations",
    "core/lowering/context.py:_PLATFORM_RULES": "registrations",
    "core/lowering/context.py:_REWRITES": "registrations",
    "core/mlir/types.py:_ELEMENT_TYPES": "one type per dtype",
    "core/kernels/costs.py:_counts": "two numbers per kernel; XLA keeps machine code by name",
    "core/kernels/waiting.py:_compiled": "addresses of machine code, which stays",
    "core/kernels/waiting.py:_direct": "addresses of machine code, which stays",
    "core/kernels/waiting.py:_entries": "places, which go when the kernel is compiled",
    "core/kernels/waiting.py:_running": "what compiles a kernel, which goes with it",
    "core/kernels/waiting.py:_waiting": "texts, which go when the kernel is compiled",
    "core/runtime/arrays/signature.py:_INTERNED": "interned, weak: compared by identity",
    "core/runtime/backends/clients.py:_BACKENDS": "clients; clear_backends ends them",
    "core/runtime/backends/monitoring.py:_LISTENERS": "registrations",
    "bridge/tf/_native/builder.py:RULES": "registrations",
    "bridge/torch/_aten/builder.py:RULES": "registrations",
    "core/sharding/single_device.py:_INTERNED": "interned: compared by identity",
    "core/transforms/jet/user_rules.py:jet_rules": "registrations",
    "core/transforms/masking/interpreter.py:RULES": "registrations",
    "core/tree/registry.py:DATACLASSES": "registrations",
}
# Memos of functions, kept for ever -> why.
OTHER_FUNCTIONS = {
    "bridge/_api/vectorize/vmappable.py:index": "of one call",
    "bridge/scipy/linalg/_patterns.py:_block_diag_staged": "one per number of matrices, 64 at most",
    "bridge/tf/_xla_call_module.py:_executor": "one fact of the installation",
    "bridge/tf/_xla_call_module.py:_operation": "one fact of the installation",
    "bridge/tf/_xla_call_module.py:stablehlo_target": "one fact of the installation",
    "bridge/tf/_xla_call_module.py:tf_dtype": "one type per dtype",
    "bridge/torch/_translate/programs.py:_named_tuple_of": "one type per result of torch",
    "core/_jaxlib/mlir.py:_register_passes": "done once",
    "core/dtypes/promotion.py:_join": "pairs of a lattice with some twenty points",
    "core/kernels/call.py:_writers": "one fact of the installation",
    "core/kernels/content.py:_hash": "a function of the standard library",
    "core/kernels/machine.py:_load_library": "what all kernels call, compiled once",
    "core/kernels/machine.py:machine": "one fact of the installation",
    "core/kernels/machine.py:target": "one fact of the installation",
    "core/kernels/machine.py:is_there": "one fact of the installation",
    "core/mlir/onednn.py:instructions": "one fact of the installation",
    "core/runtime/backends/cuda_driver.py:_driver": "one fact of the installation",
    "core/runtime/backends/cuda_driver.py:gpu_of": "one per GPU of the machine",
    "core/runtime/programs/compilation_cache.py:_machine": "one fact of the installation",
}


def is_empty_dict(value: ast.expr | None) -> bool:
    """Whether an expression makes an empty dict."""
    if isinstance(value, ast.Call):
        return ast.unparse(value) == "dict()"
    return isinstance(value, ast.Dict) and not value.keys


def test_empty_dicts_of_modules_are_registered_or_listed() -> None:
    """What is no ``register_table(...)`` has its reason above."""
    found: set[str] = set()
    for source in package_sources():
        classes = [c.body for c in source.nodes if isinstance(c, ast.ClassDef)]
        for node in [node for body in (source.tree.body, *classes) for node in body]:
            if isinstance(node, ast.Assign | ast.AnnAssign) and is_empty_dict(node.value):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                found.add(f"{source.name}:{ast.unparse(target)}")

    missing = sorted(found - OTHER_TABLES.keys())
    assert not missing, report("dicts of modules that no cache and no list knows", missing)
    assert not OTHER_TABLES.keys() - found


def test_functions_that_remember_are_listed() -> None:
    """``functools.cache`` is out of the registry's reach."""
    found = {
        f"{source.name}:{node.name}"
        for source in package_sources()
        for node in source.nodes
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).startswith(("functools.cache", "functools.lru_cache"))
        and "property" not in ast.unparse(decorator)
    }

    assert found == OTHER_FUNCTIONS.keys()


def test_clear_caches_forgets_classes_of_users() -> None:
    """A class that was asked for as an operand was kept for ever by the memo of converters."""

    class Thing:
        """Of a user."""

    converter_of(Thing)
    tables = [c for c in all_caches() if c.name == "converters of classes"]
    assert len(tables) == 1
    assert len(tables[0])

    tb.clear_caches()
    assert not len(tables[0])
