"""Shapes of tensors as shapes of avals: which sizes are symbolic, and their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError, ShapeMismatchError
from tracebridge.core.lowering.symbolic import renaming
from tracebridge.core.symbolic.dims import is_static, single_factor
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape
from tracebridge.core.symbolic.solve import solve_dim_variables
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import PyTreeDef
from tracebridge.core.util.public_path import public_path

BATCH = "batch"
"""The symbol that all unknown sizes of axis 0 share in saved models and layers."""

TensorShape = tuple[int | None, ...] | None
"""Sizes, None where unknown; None as a whole where even the rank is unknown."""


@public_path("tracebridge.tf")
@final
class PolyShape(tuple[Any, ...]):
    """A specification of sizes for ``polymorphic_shapes``: ``PolyShape("b", None, ...)``.

    The same as the string ``"b, _, ..."``: strings and integers are sizes; None and an ellipsis at
    the end take sizes from the tensor. A tree of arguments may hold it as it holds strings.

    >>> import tensorflow as tf
    >>> import tracebridge as tb
    >>> f = tb.tf.to_tf(lambda x: x * 2, polymorphic_shapes=tb.tf.PolyShape("b", None))
    >>> f(tf.ones((2, 3))).shape
    TensorShape([2, 3])
    """

    __slots__ = ()

    def __new__(cls, *sizes: Any) -> PolyShape:
        """A specification of these sizes."""
        return super().__new__(cls, sizes)

    def __getnewargs__(self) -> tuple[Any, ...]:
        # The sizes one by one: a tuple would name itself as the only one.
        return tuple(self)

    def __str__(self) -> str:
        names = {None: "_", Ellipsis: "..."}
        return ", ".join([names[n] if n in names else str(n) for n in self])

    def __repr__(self) -> str:
        return f"PolyShape({', '.join(map(repr, self))})"


def spread_specs(call: str, polymorphic_shapes: Any, tree: PyTreeDef) -> list[str | None]:
    """One specification for each leaf of the positional arguments."""
    if polymorphic_shapes is None:
        return [None] * tree.num_leaves
    if _is_spec(polymorphic_shapes):
        return [str(polymorphic_shapes)] * tree.num_leaves
    specs = flatten_axes(
        call,
        tree,
        polymorphic_shapes,
        is_leaf=_is_spec,
        axes_name="polymorphic_shapes",
        of_arguments=True,
    )
    specs = [str(spec) if _is_spec(spec) else spec for spec in specs]
    for spec in specs:
        if spec is not None and not isinstance(spec, str):
            msg = (
                f"{call}: polymorphic_shapes contains {spec!r} of type {type(spec).__name__}, "
                'expected strings such as "b, _, ...", PolyShape or None'
            )
            raise ArgumentTypeError(msg)
    return specs


def _is_spec(x: object) -> bool:
    return isinstance(x, str | PolyShape)


def is_dynamic(shapes: Sequence[TensorShape], specs: Sequence[str | None]) -> bool:
    """Whether some size is unknown, or may be named by a specification."""
    return any(s is not None for s in specs) or any(
        [shape is None or None in shape for shape in shapes]
    )


def symbolic_shapes(
    call: str,
    shapes: Sequence[TensorShape],
    specs: Sequence[str | None],
    names: Sequence[str],
    constraints: Sequence[str],
    least: int = 0,
    note: str = "",
) -> list[tuple[Any, ...]]:
    """The shapes of the avals, all symbols in one new scope, where they are at least ``least``.

    Unknown sizes without a specification get a symbol of their own, named by argument and axis.
    ``note`` is what the message about a smaller size ends with.

    Raises:
        ValueError: a specification does not fit, or a rank is unknown.
    """
    scope = SymbolicScope(constraints, least=least)
    scope.note = note
    used = _names_in([s for s in specs if s is not None])
    _check_constraints(call, constraints, shapes, names, used)
    symbolic: list[tuple[Any, ...]] = []
    for shape, spec, name in zip(shapes, specs, names, strict=True):
        if spec is not None:
            symbolic.append(_specified(call, shape, spec, name, scope))
            continue
        if shape is None:
            raise InconclusiveDimensionError(
                f"{call}: {name} is a tensor of unknown rank",
                hint="give it a rank with tf.ensure_shape or in the input signature",
            )
        symbolic.append(
            tuple(
                [
                    scope.variable(new_symbol(name, axis, used)) if size is None else size
                    for axis, size in enumerate(shape)
                ]
            )
        )
    return symbolic


def _names_in(texts: Sequence[str]) -> set[str]:
    return set(re.findall(r"[^\W\d]\w*", " ".join(texts)))


def _check_constraints(
    call: str,
    constraints: Sequence[str],
    shapes: Sequence[TensorShape],
    names: Sequence[str],
    used: set[str],
) -> None:
    """Raise where a constraint speaks of what is no size: it would say nothing.

    The name that a size gets by itself is known also while the size is.
    """
    spoken = _names_in(list(constraints)) - used - {"floordiv", "mod", "max", "min"}
    if not spoken:
        return
    own = [
        new_symbol(name, axis, set())
        for name, shape in zip(names, shapes, strict=True)
        for axis in range(len(shape or ()))
    ]
    unknown = sorted([s for s in spoken if s.rstrip("_") not in own and s not in own])
    if unknown:
        known = sorted({*used, *own} - {"_", "floordiv", "mod", "max", "min"})
        raise ArgumentValueError(
            f"{call}: polymorphic_constraints speaks of {', '.join(unknown)}, which is the name of "
            "no size",
            expected=f"names of sizes: {', '.join(known)}",
        )


def _specified(
    call: str, shape: TensorShape, spec: str, name: str, scope: SymbolicScope
) -> tuple[Any, ...]:
    try:
        return symbolic_shape(spec, scope=scope, like=shape)
    except ValueError as error:
        msg = (
            f"{call}: polymorphic_shapes of {name} does not fit a tensor of shape {shape}: {error}"
        )
        raise ArgumentValueError(msg) from error


def new_symbol(argument: str, axis: int, used: set[str]) -> str:
    """A name for the size of an argument along an axis that is not among ``used``; adds it."""
    base = re.sub(r"\W+", "_", argument).strip("_")
    name = f"{base if base and not base[0].isdigit() else 'x' + base}_{axis}"
    while name in used:
        name += "_"
    used.add(name)
    return name


def check_sizes(
    call: str,
    expected: Sequence[tuple[object, ...]],
    shapes: Sequence[TensorShape],
    names: Sequence[str],
) -> None:
    """Raise where sizes that are known do not fit; the program checks the others when it runs.

    Raises:
        ShapeMismatchError: names the argument.
    """
    for wanted, shape, name in zip(expected, shapes, names, strict=True):
        if shape is None:
            continue
        fits = len(wanted) == len(shape) and all(
            [type(w) is not int or s is None or w == s for w, s in zip(wanted, shape, strict=True)]
        )
        if not fits:
            raise ShapeMismatchError(
                f"{call}: {name} has shape {shape}, expected ({', '.join(map(str, wanted))})"
            )
    sizes: list[Any] = [shape for shape in shapes if shape is not None and None not in shape]
    if len(sizes) == len(shapes):
        try:
            solve_dim_variables(expected).evaluate(sizes)
        except ShapeMismatchError as error:
            text = renaming(names)(str(error.args[0]).splitlines()[0])
            raise ShapeMismatchError(f"{call}: {text}") from None


def undecided(
    call: str, error: Exception, shapes: Sequence[tuple[object, ...]], names: Sequence[str]
) -> InconclusiveDimensionError:
    """The error where a program cannot be traced for all sizes, with what to pass."""
    seen: dict[str, str] = {}
    for shape, name in zip(shapes, names, strict=True):
        for axis, dim in enumerate(shape):
            if type(dim) is not int:
                seen.setdefault(str(dim), f"{name}.shape[{axis}]")
    where = ", ".join([f"{dim} = {place}" for dim, place in seen.items()])
    asked = re.search(r'constraints=\["(.*?)"\]', str(error))
    constraint = asked[1] if asked else "b >= 2"
    return InconclusiveDimensionError(
        f"{call}: the program cannot be traced for all values of the unknown sizes: "
        f"{reason_of(error)}",
        where=where,
        hint="say which sizes are equal with polymorphic_shapes, one string for each argument, "
        'as in polymorphic_shapes=["b, _", "b, ..."]; state what else is known of them with '
        f'polymorphic_constraints=["{constraint}"]; or give the sizes in the input signature',
    )


def reason_of(error: Exception) -> str:
    """The first line of an error."""
    return str(error.args[0]).splitlines()[0] if error.args else type(error).__name__


def refuses_zero(shapes: Sequence[tuple[Any, ...]]) -> Exception | None:
    """Why a program that was traced for these shapes does not take empty tensors, if so."""
    scopes: dict[int, Any] = {
        id(d.scope): d.scope for s in shapes for d in s if not is_static((d,))
    }
    for scope in scopes.values():
        for difference, needed in scope.assumed.items():
            least = {n: scope.bounds(scope.variable(n))[0] for n in difference.variables()}
            if dims_evaluate(difference, least) < 0:
                return InconclusiveDimensionError(
                    f"the program needs {needed}, which is not so for all sizes"
                )
    return None


def includes_zero(constraints: Sequence[str]) -> bool:
    """Whether a constraint says no more of a size than that it may be 0, as in ``b >= 0``."""
    conditions = SymbolicScope(constraints, least=0).conditions
    return any([not c.is_equality and single_factor(c.difference) is not None for c in conditions])


def is_too_small(expected: Sequence[tuple[object, ...]], sizes: Sequence[TensorShape]) -> bool:
    """Whether all sizes are known, and a program for shapes of larger symbols does not fit."""
    known: list[Any] = [size for size in sizes if size is not None and None not in size]
    if len(known) < len(sizes) or all(map(is_static, expected)):
        return False
    try:
        solve_dim_variables(expected).evaluate(known)
    except ShapeMismatchError:
        return True
    return False


def batch_specs(shapes: Sequence[Any], names: Sequence[str]) -> list[str | None]:
    """The rule for inputs without specifications: unknown sizes of axis 0 are one size."""
    used = {BATCH}
    specs: list[str | None] = []
    for shape, name in zip(shapes, names, strict=True):
        if not shape or shape[0] is not None:
            specs.append(None)
            continue
        rest = [
            new_symbol(name, axis, used) if size is None else "_"
            for axis, size in enumerate(shape[1:], 1)
        ]
        specs.append(", ".join([BATCH, *rest]))
    return specs
