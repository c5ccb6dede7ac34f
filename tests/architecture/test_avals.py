"""Result avals come from operand avals, so that what avals know besides shape and dtype stays."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.sources import Source, package_sources

# Where shapes and dtypes are read of things that are no avals, each with what they are.
DESCRIPTIONS = {
    "core/aot/abstract.py:aval_of": "arguments that the user describes",
    "core/control/custom/custom_jvp.py:_checked_tangents": "symbolic zeros, float0 arrays",
    "core/control/custom/custom_vjp_call.py:run_bwd": "NumPy's float0 arrays",
    "core/control/pmap/call.py:leaf_avals": "NumPy arrays",
    "core/control/refs/functions.py:empty_ref": "a type that the user describes",
    "core/compat/attributes.py:ir_constant": "NumPy arrays",
    "core/compat/primitive.py:_aval": "what a rule of the user describes",
    "core/ir/shape_struct.py:to_aval": "the struct of a user",
    "core/ir/values.py:numpy_scalar_value": "NumPy scalars",
    "core/lax/like.py:aval_like": "anything with shape and dtype",
    "core/lowering/embedding.py:_type_of": "NumPy arrays",
    "core/mlir/builders.py:dense": "NumPy arrays",
    "core/runtime/arrays/array.py:_unpickle_extended": "what a file holds",
    "core/runtime/arrays/transfer.py:put_host": "NumPy arrays",
    "core/runtime/arrays/transfer.py:put_made": "NumPy arrays",
    "core/runtime/arrays/transfer.py:put_numpy": "NumPy arrays",
    "core/runtime/processes/messages.py:rows_of_processes": "NumPy arrays",
    "core/transforms/checkify/state.py:lane_aval": "lanes of errors",
    "bridge/_api/custom/custom_transpose.py:_check_types": "types that the user describes",
    "bridge/_api/devices/sharded_arrays.py:_of_local_data": "NumPy arrays",
    "bridge/_api/devices/sharded_arrays.py:make_array_from_callback": "NumPy arrays",
    "bridge/_api/devices/sharded_arrays.py:make_array_from_single_device_arrays": "a dtype of none",
    "bridge/experimental/sparse/_regions.py:dense_type": "sparse arrays",
    "bridge/tf/_foreign/functions.py:_captured": "variables",
    "bridge/tf/_foreign/functions.py:from_host": "NumPy arrays",
    "bridge/tf/_foreign/graphs.py:_first": "tensors",
    "bridge/torch/_crossing/numbers.py:aval_of": "tensors",
    "bridge/torch/_crossing/numbers.py:leaf_avals": "numbers and tensors",
    "bridge/torch/_crossing/symbolic.py:aval": "tensors",
    "bridge/torch/_foreign/results.py:_find": "tensors",
    "interop/dlpack.py:described": "a capsule",
}

# Rules whose results come out of nothing.
WITHOUT_OPERANDS = {
    "core/collectives/axis_index.py:AxisIndex": "the position along an axis",
    "core/lax/shape/iota.py:DimensionSize": "a size that is known at run time",
    "core/lax/shape/iota.py:Iota": "counting numbers",
}

FIELDS = {"shape", "dtype", "weak_type"}
GROWTH = {"append", "extend", "insert"}
SHAPE_RULES = {"abstract_eval", "result_dtype"}


def test_avals_are_derived_from_avals() -> None:
    """No `ShapedArray(...)` takes the shape or dtype of an aval: `update` and its kin do that."""
    wrong = {
        f"{place}: {ast.unparse(call)}"
        for place, call in _places()
        if place.rpartition(":")[0] not in DESCRIPTIONS
    }

    assert set() == wrong


def test_descriptions_are_in_use() -> None:
    """Each exception is needed."""
    assert set(DESCRIPTIONS) == {place.rpartition(":")[0] for place, _ in _places()}


def test_rules_derive_their_results() -> None:
    """Rules of operations call `update` or `result_aval`, but for those without operands."""
    found = {
        f"{source.name}:{kind.name}"
        for source in package_sources()
        for kind in source.nodes
        if isinstance(kind, ast.ClassDef)
        for rule in kind.body
        if isinstance(rule, ast.FunctionDef) and rule.name in SHAPE_RULES
        if any(_calls(rule))
    }

    assert set(WITHOUT_OPERANDS) == found


@pytest.mark.parametrize(
    "text",
    [
        "def f(x): return ShapedArray((), x.dtype)",
        "def f(x):\n  n = x.shape[0]\n  return ShapedArray((n,), 'bool')",
        "def f(x):\n  for n in x.shape: g(aval.ShapedArray(shape=(n,), dtype='bool'))",
        "def f(x):\n  n, _ = x.aval.shape\n  m = n + 1\n  return ShapedArray((m,), 'bool')",
        "def f(x):\n  s = []\n  s.append(x.shape[0])\n  return ShapedArray(s, 'bool')",
        "def f(x): return lambda: ShapedArray(*x.shape)",
    ],
)
def test_ways_to_take_avals_apart(text: str) -> None:
    """The search sees fields through names, loops and lists."""
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)

    (call,) = _calls(function)
    assert _reads_fields(call, function)
    (other,) = ast.parse("def f(n): return ShapedArray((n,), bool)").body
    assert isinstance(other, ast.FunctionDef)
    assert not any([_reads_fields(c, other) for c in _calls(other)])


def _places() -> Iterator[tuple[str, ast.Call]]:
    """`file:function:line` of calls that read fields, and the calls."""
    for source in package_sources():
        if source.name != "core/ir/aval.py":
            yield from _in_file(source)


def _in_file(source: Source) -> Iterator[tuple[str, ast.Call]]:
    for function in source.nodes:
        if isinstance(function, ast.FunctionDef):
            inner = [
                call
                for nested in ast.walk(function)
                if isinstance(nested, ast.FunctionDef) and nested is not function
                for call in _calls(nested)
            ]
            for call in _calls(function):
                if call not in inner and _reads_fields(call, function):
                    yield f"{source.name}:{function.name}:{call.lineno}", call


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            if name == "ShapedArray":
                yield node


def _reads_fields(call: ast.Call, function: ast.FunctionDef) -> bool:
    """Whether an argument is made of fields, also by way of names of the function."""
    names: set[str] = set()
    waiting: list[ast.AST] = [*call.args, *call.keywords]
    sources = list(_assignments(function))
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "np.dtype":
                continue
            if isinstance(node, ast.Attribute) and node.attr in FIELDS:
                return True
            if isinstance(node, ast.Name) and node.id not in names:
                names.add(node.id)
                waiting += [value for name, value in sources if name == node.id]
    return False


def _assignments(function: ast.FunctionDef) -> Iterator[tuple[str, ast.AST]]:
    """Names and what they are made of."""
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        values: list[ast.AST] = []
        if isinstance(node, ast.Assign):
            targets, values = node.targets, [node.value]
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets, values = [node.target], [node.value]
        elif isinstance(node, ast.For | ast.comprehension):
            targets, values = [node.target], [node.iter]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in GROWTH:
            targets, values = [node.func], list(node.args)
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    for value in values:
                        yield name.id, value
