"""What becomes of the cotangents of a pullback: marks for arguments of ``with_refs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, final

from tracebridge.core.tree.registry import register_pytree_node_class
from tracebridge.core.util.public_path import public_path


class _Mark:
    """An object that says one thing; all of a class are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _EmptyMark(_Mark):
    """A mark in a result: a pytree without leaves, so that it leaves compiled functions."""

    __slots__ = ()

    def tree_flatten(self) -> tuple[tuple[()], None]:
        """No leaves."""
        return (), None

    @classmethod
    def tree_unflatten(cls, structure: None, children: Sequence[object]) -> Self:
        """Another one."""
        del structure, children
        return cls()


@public_path("tracebridge.ad")
@final
class GradValue(_Mark):
    """For ``with_refs`` of a pullback: give the cotangent of this argument as a value.

    >>> import tracebridge as tb
    >>> tb.ad.GradValue() == tb.ad.GradValue()
    True
    """

    __slots__ = ()


@public_path("tracebridge.ad")
@final
class DontWant(_Mark):
    """For ``with_refs`` of a pullback: leave out the cotangent of this argument.

    >>> import tracebridge as tb
    >>> _, pullback = tb.vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> pullback.with_refs(tb.ad.GradValue(), tb.ad.DontWant())(1.0)[1]
    DidntWant()
    """

    __slots__ = ()


@public_path("tracebridge.ad")
@final
class GradRef(_EmptyMark):
    """In a pullback's result: this cotangent has been added to a reference.

    >>> import tracebridge as tb
    >>> _, pullback = tb.vjp(lambda x: x * x, 2.0)
    >>> pullback.with_refs(tb.new_ref(0.0))(1.0)
    (GradRef(),)
    """

    __slots__ = ()


@public_path("tracebridge.ad")
@final
class DidntWant(_EmptyMark):
    """In a pullback's result: nobody wanted this cotangent.

    >>> import tracebridge as tb
    >>> tb.tree.leaves(tb.ad.DidntWant())
    []
    """

    __slots__ = ()


register_pytree_node_class(GradRef)
register_pytree_node_class(DidntWant)
