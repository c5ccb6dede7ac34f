"""Einstein summation: sums of products of arrays, described by labels of axes."""

from __future__ import annotations

__all__ = ["einsum", "einsum_path"]

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import is_bool
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    index_of,
    kind_of,
)
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.aval import Shape
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.contract.dot import dot_general
from tracebridge.core.lax.contract.precision import PrecisionLike
from tracebridge.core.lax.sharding_constraint import split_result
from tracebridge.core.runtime.arrays.argument_types import DType, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import check_no_out, promote_dtypes
from tracebridge.numpy._staging import shape_of, static_precision, value_of
from tracebridge.numpy.conversion import asarray

_INT32 = np.dtype(np.int32)
ELLIPSIS = "..."
_NO_LABELS = frozenset(".->\t\n\r")
# What a symbolic size counts as when an order of contraction is chosen.
_TYPICAL_SIZE = 256

# The labels of an operand's axes: characters, integers, or ELLIPSIS; later ("...", -k) for the k-th
# last of the axes that an ellipsis stands for.
Labels = tuple[Any, ...]
Form = tuple[tuple[Labels, ...], Labels | None]
# (one operand and its labels, the other, labels needed later) -> their product and its labels.
Product = Callable[..., tuple[Any, Labels]]


# reading the subscripts --------------------------------------------------------------------------


def _parse(text: str) -> Form:
    """The labels in a string such as ``"ij,jk->ik"``."""
    inputs, arrow, output = text.replace(" ", "").partition("->")
    if "->" in output:
        msg = f"einsum: more than one '->' in {text!r}"
        raise ArgumentValueError(msg)
    operands = tuple([_labels(part, text) for part in inputs.split(",")])
    return operands, _labels(output, text) if arrow else None


def _labels(part: str, text: str) -> Labels:
    head, dots, tail = part.partition(ELLIPSIS)
    if bad := _NO_LABELS.intersection(head + tail):
        msg = f"einsum: {min(bad)!r} in {text!r} is no label; labels are single characters"
        raise ArgumentValueError(msg, hint="label axes with letters")
    return (*head, ELLIPSIS, *tail) if dots else tuple(head)


def _interleaved(arguments: Sequence[object]) -> tuple[Form, list[Any]]:
    """Labels and operands of the form ``einsum(x, [0, 1], y, [1, 2], [0, 2])``."""
    count = len(arguments) // 2
    operands = list(arguments[0 : 2 * count : 2])
    given = [*arguments[1 : 2 * count : 2], *arguments[2 * count :]]
    lists = _named([_listed(labels) for labels in given])
    return (tuple(lists[:count]), lists[count] if len(arguments) % 2 else None), operands


def _listed(labels: Any) -> tuple[Any, ...]:
    if isinstance(labels, str) or not isinstance(labels, Sequence | np.ndarray):
        msg = f"einsum: the labels of an operand are {kind_of(labels)}, expected a list of integers"
        raise ArgumentTypeError(msg, hint="or give a string such as 'ij,jk->ik' first")
    return tuple(labels)


def _named(lists: Sequence[tuple[Any, ...]]) -> list[Labels]:
    """The labels as strings and integers; others become integers in the same order."""
    every = [label for labels in lists for label in labels if label is not Ellipsis]
    try:
        distinct = sorted(set(every))
    except TypeError:
        msg = f"einsum: the labels {every} cannot be compared with each other"
        hint = "label axes with integers, or with strings"
        raise ArgumentTypeError(msg, hint=hint) from None
    plain = all([isinstance(label, int | str) and label != ELLIPSIS for label in distinct])
    names = {label: label if plain else i for i, label in enumerate(distinct)}
    return [tuple([ELLIPSIS if i is Ellipsis else names[i] for i in labels]) for labels in lists]


def _expand(form: Form, shapes: Sequence[Any]) -> tuple[list[Labels], Labels]:
    """The labels with ellipses replaced by what they stand for; the implicit output found."""
    inputs, output = form
    if len(inputs) != len(shapes):
        msg = f"einsum: the subscripts name {len(inputs)} operands, got {len(shapes)}"
        raise ArgumentValueError(msg)
    expanded: list[Labels] = []
    longest = 0
    for position, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        named = len([label for label in labels if label != ELLIPSIS])
        n_broadcast = len(shape) - named
        if n_broadcast < 0 or (n_broadcast and ELLIPSIS not in labels):
            msg = f"einsum: operand {position} has {len(shape)} axes, the subscripts name {named}"
            raise RankError(msg)
        longest = max(longest, n_broadcast)
        expanded.append(_replace_ellipsis(labels, n_broadcast))
    if output is None:
        counts = Counter([label for labels in expanded for label in labels])
        single = [n for n, c in counts.items() if c == 1 and not isinstance(n, tuple)]
        output = (*[(ELLIPSIS, -k) for k in range(longest, 0, -1)], *sorted(single))
    else:
        output = _replace_ellipsis(output, longest)
    known = {label for labels in expanded for label in labels}
    unknown = [label for label in output if label not in known]
    if unknown or len(set(output)) != len(output):
        what = f"{unknown[0]!r} is in no operand" if unknown else "labels are repeated"
        msg = f"einsum: in the output {''.join(map(str, output))!r} {what}"
        raise ArgumentValueError(msg)
    return expanded, output


def _replace_ellipsis(labels: Labels, count: int) -> Labels:
    if ELLIPSIS not in labels:
        return labels
    at = labels.index(ELLIPSIS)
    stands_for = [(ELLIPSIS, -k) for k in range(count, 0, -1)]
    return (*labels[:at], *stands_for, *labels[at + 1 :])


# contracting -------------------------------------------------------------------------------------


def _sizes(inputs: Sequence[Labels], shapes: Sequence[Any]) -> dict[Any, Any]:
    """The size of each label; sizes of 1 go along with any other."""
    sizes: dict[Any, Any] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                name = label if isinstance(label, str | int) else ELLIPSIS
                msg = f"einsum: label {name!r} has sizes {known} and {size}"
                raise ShapeMismatchError(msg)
    return sizes


def _sum(x: Value, axes: Sequence[int]) -> Any:
    if not axes:
        return x
    reduce = lax.reduce_or if is_bool(x.aval.dtype) else lax.reduce_sum
    return reduce(x, tuple(axes))


def _diagonal(x: Value, labels: Labels) -> tuple[Any, Labels]:
    """``x`` where axes of equal labels have equal positions: one axis for each label."""
    while len(set(labels)) < len(labels):
        second = next(i for i, label in enumerate(labels) if label in labels[:i])
        first = labels.index(labels[second])
        rows = lax.broadcasted_iota(_INT32, x.aval.shape, first)
        columns = lax.broadcasted_iota(_INT32, x.aval.shape, second)
        on = lax.eq(rows, columns)
        x = _sum(lax.select_n(on, zeros_of(x.aval), x), [second])
        labels = (*labels[:second], *labels[second + 1 :])
    return x, labels


def _prepare(x: Value, labels: Labels, sizes: dict[Any, Any], needed: set[Any]) -> Any:
    """``x`` with distinct labels, without repeated axes of size 1, without labels not needed."""
    ones = [i for i, n in enumerate(labels) if x.aval.shape[i] == 1 and sizes[n] != 1]
    if ones:
        kept = [i for i in range(x.aval.ndim) if i not in ones]
        x = lax.reshape(x, tuple([x.aval.shape[i] for i in kept]))
        labels = tuple([labels[i] for i in kept])
    x, labels = _diagonal(x, labels)
    lonely = [i for i, label in enumerate(labels) if label not in needed]
    return _sum(x, lonely), tuple([n for n in labels if n in needed])


def _pair(
    a: tuple[Value, Labels],
    b: tuple[Value, Labels],
    needed: set[Any],
    *,
    dot: Callable[..., Any],
    precision: Any,
    preferred: DType | None,
    swapped: bool = False,
) -> tuple[Any, Labels]:
    """The product of two operands, summed over the labels that are not needed any more.

    ``swapped``: the operands are those of the user in the other order.
    """
    if swapped and isinstance(precision, tuple | list):
        precision = tuple(precision[::-1])  # each operand keeps its own
    (x, left), (y, right) = a, b
    shared = [n for n in left if n in right]
    batch = [n for n in shared if n in needed]
    summed = [n for n in shared if n not in needed]
    out = (*batch, *[n for n in left if n not in shared], *[n for n in right if n not in shared])
    if not summed and dot is lax.dot_general:
        return _multiply(x, left, y, right, out, preferred), out
    numbers = (
        (tuple([left.index(n) for n in summed]), tuple([right.index(n) for n in summed])),
        (tuple([left.index(n) for n in batch]), tuple([right.index(n) for n in batch])),
    )
    return dot(x, y, numbers, precision, preferred_element_type=preferred), out


def _multiply(
    x: Value, left: Labels, y: Value, right: Labels, out: Labels, preferred: DType | None
) -> Any:
    if preferred is not None:
        x, y = lax.convert_dtype(x, preferred), lax.convert_dtype(y, preferred)
    sizes = dict(zip((*left, *right), (*x.aval.shape, *y.aval.shape), strict=True))
    shape = tuple([sizes[n] for n in out])
    x, y = (_spread(v, labels, out, shape) for v, labels in ((x, left), (y, right)))
    return lax.bitwise_and(x, y) if is_bool(x.aval.dtype) else lax.mul(x, y)


def _spread(x: Value, labels: Labels, out: Labels, shape: Shape) -> Any:
    """``x`` with its axes in the order of ``out``, repeated along the others."""
    if not labels or labels == out:
        return x
    x = _ordered(x, labels, tuple([n for n in out if n in labels]))
    return lax.broadcast_in_dim(x, shape, tuple([i for i, n in enumerate(out) if n in labels]))


def _ordered(x: Value, labels: Labels, wanted: Labels) -> Any:
    if labels == wanted:
        return x
    return lax.transpose(x, tuple([labels.index(n) for n in wanted]))


def _einsum(*args: Value) -> Any:
    """Staged: everything but the operands is static. Products are those of ``lax``."""
    return _contract_all(*args, lax.dot_general)


def _contract_all(*args: Any) -> Any:
    *xs, form, optimize, precision, preferred, dot = args
    shapes = [x.aval.shape for x in xs]
    inputs, output = _expand(_parse(form) if isinstance(form, str) else form, shapes)
    sizes = _sizes(inputs, shapes)
    xs = promote_dtypes(*xs)
    dtype, weak = xs[0].aval.dtype, xs[0].aval.weak_type
    product_dtype = preferred or (None if dot is lax.dot_general else dtype)
    product = partial(_pair, dot=dot, precision=precision, preferred=product_dtype)
    work = list(zip(xs, inputs, strict=True))
    for positions in _path(inputs, output, sizes, optimize):
        chosen = [work[i] for i in positions]
        work = [w for i, w in enumerate(work) if i not in positions]
        work.append(_contract(chosen, work, output, sizes, product))
    while len(work) > 1 or work[0][1] != output:
        chosen, work = work[:2], work[2:]
        work.append(_contract(chosen, work, output, sizes, product))
        if len(work) == 1:
            last, labels = work[0]
            work = [(_ordered(last, labels, output), output)]
    result = work[0][0]
    return lax.convert_dtype(result, preferred or dtype, weak and preferred is None)


def _contract(
    chosen: Sequence[tuple[Any, Labels]],
    others: Sequence[tuple[Any, Labels]],
    output: Labels,
    sizes: dict[Any, Any],
    product: Product,
) -> tuple[Any, Labels]:
    """One or more operands contracted to one, from left to right."""
    after = {n for _, labels in others for n in labels} | set(output)
    contracted = chosen[0]
    for k in range(max(len(chosen) - 1, 1)):
        labels_needed = {n for _, labels in chosen[k + 2 :] for n in labels} | after
        if len(chosen) == 1:
            return _prepare(*contracted, sizes, after)
        other = chosen[k + 1]
        left = _prepare(*contracted, sizes, labels_needed | set(other[1]))
        right = _prepare(*other, sizes, labels_needed | set(left[1]))
        # What only a repeated axis of size 1 shared is alone now.
        left = _prepare(*left, sizes, labels_needed | set(right[1]))
        if _has_order(right[1], left[1], output):  # so that it is not transposed afterwards
            contracted = product(right, left, labels_needed, swapped=True)
        else:
            contracted = product(left, right, labels_needed)
    return contracted


def _has_order(left: Labels, right: Labels, output: Labels) -> bool:
    """Whether a product of two operands has its axes in the order of ``output``.

    And not the same product with its operands swapped.
    """
    batch = [n for n in right if n in left and n in output]
    ends = [[n for n in ls if n not in other] for ls, other in ((left, right), (right, left))]
    return (*batch, *ends[0], *ends[1]) == output and bool(ends[0]) and bool(ends[1])


def _path(
    inputs: Sequence[Labels], output: Labels, sizes: dict[Any, Any], optimize: Any
) -> list[tuple[int, ...]]:
    """Which operands to contract at each step; results go to the end of the list."""
    if not isinstance(optimize, str | bool):
        return [tuple(step) for step in optimize]
    if len(inputs) < 3 or optimize is False:
        return []
    import opt_einsum  # noqa: PLC0415 (needed by few programs)

    symbols = {n: opt_einsum.get_symbol(i) for i, n in enumerate(sizes)}
    text = ",".join(["".join([symbols[n] for n in labels]) for labels in inputs])
    text += "->" + "".join([symbols[n] for n in output])
    known = [
        tuple([sizes[n] if type(sizes[n]) is int else _TYPICAL_SIZE for n in labels])
        for labels in inputs
    ]
    how: Any = "optimal" if optimize is True else optimize
    path, _ = opt_einsum.contract_path(text, *known, shapes=True, optimize=how)
    return [tuple(step) for step in path]


_einsum_staged = StagedFunction(_einsum, "einsum")


def _optimize_static(optimize: object, call: str = "einsum") -> Any:
    if isinstance(optimize, str | bool):
        return optimize
    if not isinstance(optimize, Sequence):
        msg = f"{call}: optimize is {kind_of(optimize)}, expected a name, a bool or a path"
        raise ArgumentTypeError(msg)
    steps = [s for s in optimize if s != "einsum_path"]
    return tuple([tuple([index_of(i, call, "an entry of optimize") for i in s]) for s in steps])


def einsum(
    subscripts: object,
    /,
    *operands: object,
    out: None = None,
    optimize: object = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = dot_general,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Sum of products of arrays, by labels of their axes.

    Args:
        subscripts: labels such as ``"ij,jk->ik"``. Labels that are not in the output are summed;
            without ``->`` the output has the labels that occur once, in alphabetical order.
            ``...`` stands for any axes, which are broadcast. A label repeated in one operand
            takes its diagonal. The form ``einsum(x, [0, 1], y, [1, 2], [0, 2])`` works too, with
            labels of any type that can be sorted.
        *operands: the arrays, promoted to one dtype.
        out: not supported.
        optimize: how to choose the order for three or more operands: ``"auto"``, ``"greedy"``,
            ``"optimal"``, ``False`` (from left to right), or a path from ``einsum_path``.
        precision: precision of the products, see ``tracebridge.lax.Precision``.
        preferred_element_type: dtype of the sums and of the result.
        _dot_general: a function that multiplies pairs of operands in place of
            ``tracebridge.lax.dot_general`` (with rounding of its own, say), which is called as
            ``f(x, y, dimension_numbers, precision, preferred_element_type=...)``.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ShapeMismatchError: axes of one label have different sizes.
        RankError: an operand has another number of axes than labels.

    >>> import tracebridge.numpy as tnp
    >>> tnp.einsum("ij,jk->ik", tnp.ones((2, 3)), tnp.ones((3, 4))).shape
    (2, 4)
    >>> float(tnp.einsum("ii", tnp.eye(3)))
    3.0
    """
    if out_sharding is not None:
        return split_result(
            "einsum",
            out_sharding,
            einsum,
            subscripts,
            *operands,
            out=out,
            optimize=optimize,
            precision=precision,
            preferred_element_type=preferred_element_type,
            _dot_general=_dot_general,
        )
    try:
        check_no_out("einsum", out)
        form: Any = subscripts
        xs: Sequence[Any] = operands
        if not isinstance(subscripts, str):
            form, xs = _interleaved((subscripts, *operands))
        preferred = preferred_element_type
        if preferred is not None:
            preferred = canonicalize_explicit(preferred, "einsum")
        order = _optimize_static(optimize)
        # The public function wraps that of the engine once; users wrap the public one.
        if getattr(_dot_general, "__wrapped__", _dot_general) is not dot_general:
            values = [value_of(x) for x in xs]
            return _contract_all(*values, form, order, precision, preferred, _dot_general)
        precision = static_precision("einsum", precision)
        return _einsum_staged(xs, (form, order, precision, preferred))
    except Exception as error:
        hide_internal_frames(error)
        raise


def einsum_path(
    subscripts: object, /, *operands: object, optimize: object = "auto"
) -> tuple[list[tuple[int, ...]], Any]:
    """The order in which ``einsum`` contracts, and a description of its cost.

    Args:
        subscripts: as of ``einsum``.
        *operands: as of ``einsum``; only their shapes matter.
        optimize: as of ``einsum``.

    Returns:
        A list of positions to contract, step by step, and an object that prints the costs.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.ones((8, 8))
    >>> path, info = tnp.einsum_path("ij,jk,k->i", x, x, x[0])
    >>> path
    [(1, 2), (0, 1)]
    """
    import opt_einsum  # noqa: PLC0415 (needed by few programs)

    form: Any = subscripts
    xs: Sequence[Any] = operands
    if isinstance(subscripts, str):
        form = _parse(subscripts)
    else:
        form, xs = _interleaved((subscripts, *operands))
    shapes = [shape_of(asarray(x) if isinstance(x, list | tuple) else value_of(x)) for x in xs]
    inputs, output = _expand(form, shapes)
    sizes = _sizes(inputs, shapes)
    # Letters are shown as they were given; words, numbers, and axes of an ellipsis are none.
    letters = all([isinstance(n, str) and len(n) == 1 for n in sizes])
    symbols = {n: n if letters else opt_einsum.get_symbol(i) for i, n in enumerate(sizes)}
    text = ",".join(["".join([symbols[n] for n in labels]) for labels in inputs])
    text += "->" + "".join([symbols[n] for n in output])
    order = _optimize_static(optimize, "einsum_path")
    how: Any = "optimal" if order is True else order
    path, info = opt_einsum.contract_path(text, *shapes, shapes=True, optimize=how)
    return [tuple(step) for step in path], info
