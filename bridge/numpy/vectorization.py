"""Functions of elements as functions of arrays: vectorize, apply_along_axis, fromfunction, ..."""

from __future__ import annotations

__all__ = ["apply_along_axis", "apply_over_axes", "fromfunction", "vectorize"]

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, index_of
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.argument_types import ShapeLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.symbolic.dims import Dim
from tracebridge.numpy._promote import broadcast_shape, members, normalize_axis
from tracebridge.numpy._staging import value_of
from tracebridge.numpy.conversion import asarray
from tracebridge.numpy.creation import arange, canonical_shape
from tracebridge.numpy.manipulation import expand_dims, reshape

_NAME = r"[A-Za-z_]\w*|\d+"
_CORE = rf"\((?:{_NAME})?(?:,(?:{_NAME}))*\)"
_SIDE = rf"{_CORE}(?:,{_CORE})*"
_SIGNATURE = re.compile(rf"^(?P<inputs>{_SIDE})?->(?P<outputs>{_SIDE})$")

Core = tuple[str, ...]


def _parse(signature: Any) -> tuple[list[Core], list[Core]]:
    """The names of core axes of inputs and outputs in ``"(n,m),(m)->(n)"``."""
    match = _SIGNATURE.match(signature.replace(" ", "")) if isinstance(signature, str) else None
    if match is None:
        msg = f"vectorize: {signature!r} is no signature such as '(n,m),(m)->(n)'"
        raise ArgumentValueError(msg)
    sides = [match["inputs"] or "", match["outputs"]]
    inputs, outputs = (
        [tuple(re.findall(_NAME, core)) for core in re.findall(_CORE, side)] for side in sides
    )
    return inputs, outputs


def _bind_sizes(what: str, core: Core, shape: Sequence[Dim], sizes: dict[str, Any]) -> None:
    """Check core axes against the sizes that are known, and remember new ones."""
    if len(shape) < len(core):
        msg = (
            f"vectorize: {what} with shape {tuple(shape)} does not have enough dimensions for the "
            f"core dimensions {core}"
        )
        raise RankError(msg)
    for name, size in zip(core, shape[len(shape) - len(core) :], strict=True):
        wanted = int(name) if name.isdigit() else sizes.setdefault(name, size)
        if wanted != size:
            msg = (
                f"vectorize: inconsistent size for core dimension {name!r}: {what} has {size}, "
                f"expected {wanted}"
            )
            raise ShapeMismatchError(msg)


def _checked(
    function: Callable[..., Any], outputs: list[Core] | None, sizes: dict[str, Any]
) -> Callable[..., Any]:
    """``function`` with its results checked against the signature."""

    def run(*args: Value) -> Any:
        out = function(*args)
        if outputs is None:
            return out
        results = out if isinstance(out, tuple) else (out,)
        if len(results) != len(outputs):
            kind = "" if isinstance(out, tuple) else ", where an output must be a tuple"
            msg = (
                f"vectorize: wrong number of output arguments: got {len(results)}{kind}, expected "
                f"{len(outputs)}"
            )
            raise ArgumentTypeError(msg)
        for i, (result, core) in enumerate(zip(results, outputs, strict=True)):
            shape = value_of(result).aval.shape
            if len(shape) != len(core):
                msg = (
                    f"vectorize: output shape {shape} does not match the core dimensions {core} "
                    f"of result {i}"
                )
                raise RankError(msg)
            _bind_sizes(f"result {i}", core, shape, sizes)
        return out

    return run


def _mapped(function: Callable[..., Any], args: Sequence[object], cores: list[Core]) -> Any:
    """``function`` over all leading axes of ``args``, which are broadcast."""
    values = [asarray(a) if isinstance(a, list) else value_of(a) for a in args]
    loops = [v.aval.shape[: v.aval.ndim - len(c)] for v, c in zip(values, cores, strict=True)]
    loop = broadcast_shape("vectorize", loops)
    # Axes of size 1 are not mapped; they come back in the end.
    mapped = [i for i, d in enumerate(loop) if d != 1]
    has: list[list[int]] = []
    squeezed: list[Any] = []
    for value, shape in zip(values, loops, strict=True):
        lead = len(loop) - len(shape)
        own = [i for i in mapped if i >= lead and shape[i - lead] == loop[i]]
        sizes = [loop[i] for i in own]
        has.append(own)
        squeezed.append(reshape(value, (*sizes, *value.aval.shape[len(shape) :])))
    for i in reversed(mapped):
        function = vmap(function, in_axes=tuple([0 if i in own else None for own in has]))
    out = function(*squeezed)
    count = len(mapped)

    def restore(result: Value) -> Any:
        shape = result.shape
        return reshape(result, (*loop, *shape[count:])) if count != len(loop) else result

    return tuple([restore(r) for r in out]) if isinstance(out, tuple) else restore(out)


def vectorize(
    pyfunc: Callable[..., object],
    *,
    excluded: Collection[int | str] = frozenset(),
    signature: str | None = None,
) -> Callable[..., Any]:
    """A function of elements as a function of arrays, which are broadcast.

    Args:
        pyfunc: function of arrays without axes, or with the core axes of ``signature``.
        excluded: positions and names of arguments that are passed on as they are.
        signature: core axes of arguments and results, such as ``"(n,m),(m)->(n)"``; without one
            there are none.

    Returns:
        A function of arrays whose leading axes are mapped with ``vmap``.

    Raises:
        ValueError: the signature cannot be read.
        ArgumentTypeError: ``excluded`` or the arguments do not fit the signature.
        ArgumentValueError: ``excluded`` has a negative position, or one that no argument has.

    >>> import tracebridge.numpy as tnp
    >>> dot = tnp.vectorize(tnp.dot, signature="(n),(n)->()")
    >>> dot(tnp.ones((4, 3)), tnp.ones(3)).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    if any([not isinstance(cast("object", e), int | str) for e in excluded]):
        msg = f"vectorize: can only exclude positions and names of arguments, got {excluded!r}"
        raise ArgumentTypeError(msg)
    if any([isinstance(e, int) and e < 0 for e in excluded]):
        msg = f"vectorize: {excluded=} contains negative numbers"
        raise ArgumentValueError(msg)
    parsed = None if signature is None else _parse(signature)

    @api_boundary
    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: object) -> Any:
        if any([isinstance(e, int) and e >= len(args) + len(kwargs) for e in excluded]):
            msg = f"vectorize: {excluded=} is invalid for {len(args) + len(kwargs)} argument(s)"
            raise ArgumentValueError(msg)
        fixed = {i: a for i, a in enumerate(args) if i in excluded or a is None}
        moving = [a for i, a in enumerate(args) if i not in fixed]
        names = [k for k in kwargs if k not in excluded]
        kept = {k: v for k, v in kwargs.items() if k in excluded}
        if parsed is not None and names:
            msg = f"vectorize: with a signature, keyword arguments must be excluded: {names}"
            raise ArgumentTypeError(msg)

        def call(*xs: Value) -> Any:
            varying = iter(xs)
            positional = [fixed[i] if i in fixed else next(varying) for i in range(len(args))]
            return pyfunc(*positional, **dict(zip(names, varying, strict=True)), **kept)

        inputs = [*moving, *[kwargs[k] for k in names]]
        sizes: dict[str, Any] = {}
        if parsed is None:
            return _mapped(_checked(call, None, sizes), inputs, [()] * len(inputs))
        cores, outputs = parsed
        if len(cores) != len(inputs):
            msg = (
                f"vectorize: wrong number of positional arguments: got {len(inputs)} arrays, the "
                f"signature names {len(cores)}"
            )
            raise ArgumentTypeError(msg)
        for i, (x, core) in enumerate(zip(inputs, cores, strict=True)):
            _bind_sizes(f"input {i}", core, value_of(x).aval.shape, sizes)
        return _mapped(_checked(call, outputs, sizes), inputs, cores)

    return vectorized


def apply_along_axis(
    func1d: Callable[..., object], axis: int, arr: ArrayLike, *args: ArrayLike, **kwargs: object
) -> Any:
    """A function of vectors applied to all vectors along an axis.

    Args:
        func1d: function of a vector; the axes of its result replace ``axis``.
        axis: axis in ``[-ndim, ndim)``.
        arr: array.
        *args: passed on to the function.
        **kwargs: passed on to the function.

    >>> import tracebridge.numpy as tnp
    >>> tnp.apply_along_axis(tnp.sum, 0, tnp.ones((2, 3))).tolist()
    [2.0, 2.0, 2.0]
    """
    value = value_of(arr)
    ndim = value.aval.ndim
    where = normalize_axis(axis, ndim, "apply_along_axis")

    def call(vector: Value) -> Any:
        return func1d(vector, *args, **kwargs)

    function = call
    # Axes behind stay behind the axes of the result, axes in front stay in front.
    for _ in range(ndim - where - 1):
        function = vmap(function, in_axes=-1, out_axes=-1)
    for _ in range(where):
        function = vmap(function)
    return function(value)


def apply_over_axes(
    func: Callable[[Any, int], Any], a: ArrayLike | Sequence[ArrayLike], axes: Sequence[int]
) -> Array:
    """A reduction applied to axes one after another, which stay with size 1.

    Raises:
        RankError: the function takes away more than one axis.

    >>> import tracebridge.numpy as tnp
    >>> tnp.apply_over_axes(tnp.sum, tnp.ones((2, 3, 4)), (0, 2)).shape
    (1, 3, 1)
    """
    value = value_of(a)
    ndim = value.aval.ndim
    axes_sequence = members(axes)
    for axis in (axes,) if axes_sequence is None else axes_sequence:
        where = normalize_axis(axis, ndim, "apply_over_axes")
        result = func(value, where)
        value = result if result.ndim == ndim else expand_dims(result, where)
        if value.ndim != ndim:
            left = f"{result.ndim} of {ndim} axes"
            msg = f"apply_over_axes: the function left {left}, expected one less"
            raise RankError(msg)
    return value


def fromfunction(
    function: Callable[..., Any], shape: ShapeLike, *, dtype: DTypeLike = float, **kwargs: object
) -> Any:
    """The array whose elements are a function of their positions.

    Args:
        function: function of one number for each axis; it is mapped over the positions.
        shape: shape of the array; axes of the function's results follow.
        dtype: dtype of the positions.
        **kwargs: passed on to the function.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fromfunction(lambda i, j: 10 * i + j, (2, 2), dtype=int).tolist()
    [[0, 1], [10, 11]]
    """
    sizes = canonical_shape(shape, "fromfunction")
    kind = canonicalize_explicit(dtype, "fromfunction")

    def call(*positions: Value) -> Any:
        return function(*positions, **kwargs)

    mapped = call
    for i in reversed(range(len(sizes))):
        mapped = vmap(mapped, in_axes=tuple([0 if i == k else None for k in range(len(sizes))]))
    return mapped(*[arange(index_of(d, "fromfunction", "a size"), dtype=kind) for d in sizes])
