"""symbolic_args_specs: stand-ins for arguments with symbolic shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import flatten, flatten_with_path


def symbolic_args_specs(
    args: object,
    shapes_specs: Any,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:
    """Stand-ins for a tree of arguments, with symbolic shapes.

    Args:
        args: a tree of arrays, or of objects with shape and dtype.
        shapes_specs: a string as ``symbolic_shape`` takes it, for all leaves, or a tree of such
            strings that is a prefix of ``args``; None keeps the shapes of leaves.
        constraints: what is known of the sizes, such as ``"b >= 4"``; for a new scope.
        scope: where the names belong; by default a new scope.

    Returns:
        A tree like ``args`` of ``ShapeDtypeStruct``.

    Raises:
        ArgumentValueError: a syntax error in a shape, or both a scope and constraints.
        TreeMismatchError: ``shapes_specs`` is no prefix of ``args``.
        ArgumentValueError: a spec is neither a string nor None.

    >>> import tracebridge as tb
    >>> x = tb.lax.full((3, 4), 1.0)
    >>> tb.export.symbolic_args_specs((x, x), ("b, _", "b, c"))[1]
    ShapeDtypeStruct(shape=(b, c), dtype=float32)
    """
    if scope is not None and constraints:
        msg = (
            "symbolic_args_specs: got a scope and constraints; state the constraints where the "
            "scope is made, as in SymbolicScope(constraints)"
        )
        raise ArgumentValueError(msg)
    symbolic_scope = SymbolicScope(constraints) if scope is None else scope
    leaves, tree = flatten(args)
    specs = flatten_axes(
        "symbolic_args_specs",
        tree,
        shapes_specs,
        axes_name="shapes_specs",
        full_name="args",
        of_arguments=True,
    )
    paths = [keystr(path) for path, _ in flatten_with_path(args)[0]]
    return tree.unflatten(
        [
            _struct(leaf, spec, symbolic_scope, f"args{path}")
            for leaf, spec, path in zip(leaves, specs, paths, strict=True)
        ]
    )


def _struct(leaf: Any, spec: object, scope: SymbolicScope, where: str) -> ShapeDtypeStruct:
    if spec is not None and not isinstance(spec, str):
        msg = (
            f"symbolic_args_specs: the polymorphic shape spec should be a string or None, "
            f"got {spec!r} for {where}"
        )
        raise ArgumentValueError(msg)
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        shape, dtype = tuple(leaf.shape), leaf.dtype
    else:
        value = as_value(np.asarray(leaf) if isinstance(leaf, list) else leaf)
        shape, dtype = value.aval.shape, value.aval.dtype
    return ShapeDtypeStruct(symbolic_shape(spec, like=shape, scope=scope), canonicalize(dtype))
