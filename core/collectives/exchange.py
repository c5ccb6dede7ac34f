"""The halves of an exchange along a named axis: psend, and precv of what it has sent."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, final

from tracebridge.core.collectives.axes import axis_names
from tracebridge.core.collectives.permute import ppermute
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.tree import tree
from tracebridge.core.tree.registry import register_pytree_node

_HINT = "precv takes what psend has given, with the same axis_name and perm"


@final
class Sent:
    """What is on its way after a ``psend``: a pytree, with the values that arrive as its leaves."""

    __slots__ = ("route", "values")

    def __init__(self, values: Any, route: tuple[Any, ...]) -> None:
        self.values = values
        self.route = route

    def __repr__(self) -> str:
        axes, perm = self.route
        return f"<sent over {', '.join(map(repr, axes))} along {list(perm)}>"


register_pytree_node(Sent, lambda s: ((s.values,), s.route), lambda route, v: Sent(v[0], route))


def psend(x: object, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Any:
    """Send the values of some elements of a named axis to others, that take them by ``precv``.

    The exchange is the one of ``ppermute``, on every platform and with its derivatives.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name, or a tuple of them, of which the last runs fastest.
        perm: pairs ``(source, destination)``; no source and no destination appears twice.

    Returns:
        What ``precv`` takes: a pytree, which may go through ``optimization_barrier`` or be carried
        by loops.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
        AxisSpecError: the pairs are out of range or repeat an element.

    >>> import tracebridge as tb
    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> def f(x):
    ...     sent = tb.lax.psend(x, "i", ring)
    ...     return tb.lax.precv(sent, tb.ShapeDtypeStruct((), "int32"), "i", ring)
    >>> tb.vmap(f, axis_name="i")(tb.numpy.array([5, 6, 7])).tolist()
    [7, 5, 6]
    """
    return Sent(ppermute(x, axis_name, perm), _route(axis_name, perm))


def precv(
    token: Any, out_shape: object, axis_name: Hashable, perm: Sequence[tuple[int, int]]
) -> Any:
    """Take what other elements of a named axis have sent.

    Args:
        token: what the ``psend`` that belongs to it has given.
        out_shape: pytree of objects with ``shape`` and ``dtype``: those of what was sent.
        axis_name: as in ``psend``.
        perm: as in ``psend``.

    Returns:
        Pytree like ``out_shape``: what was received, zeros for elements that nothing is sent to.

    Raises:
        ArgumentTypeError: the token is none of ``psend``.
        ArgumentValueError: it was sent along another axis or permutation.
        ShapeMismatchError: something of other shapes or dtypes was sent.

    >>> import tracebridge as tb
    >>> def f(x):
    ...     sent = tb.lax.psend(x, "i", [(0, 1)])
    ...     return tb.lax.precv(sent, x, "i", [(0, 1)])
    >>> tb.vmap(f, axis_name="i")(tb.numpy.array([5, 6])).tolist()
    [0, 5]
    """
    if not isinstance(token, Sent):
        msg = f"precv: the token is of type {type(token).__name__}: nothing was sent with it"
        raise ArgumentTypeError(msg, hint=_HINT)
    route = _route(axis_name, perm)
    if token.route != route:
        raise ArgumentValueError(f"precv: got axis_name and perm {route} for {token!r}", hint=_HINT)
    values, sent_tree = tree.flatten(token.values)
    wanted, wanted_tree = tree.flatten(out_shape)
    got = [f"{v.aval.dtype.name}{list(v.aval.shape)}" for v in values]
    expected = [f"{w.dtype}{list(w.shape)}" for w in wanted]
    if (sent_tree, got) != (wanted_tree, expected):
        msg = f"precv: out_shape is {expected} in {wanted_tree}, but {got} in {sent_tree} was sent"
        raise ShapeMismatchError(msg)
    return token.values


def _route(axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> tuple[Any, ...]:
    return axis_names(axis_name), tuple(sorted([(int(a), int(b)) for a, b in perm]))
