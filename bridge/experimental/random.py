"""Generators with a state: each draw takes a new key of them by itself."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge import numpy as tnp
from tracebridge.core.control.refs.functions import addupdate, get, new_ref
from tracebridge.core.control.refs.ref import Ref
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.random.keys import fold_in, key, split
from tracebridge.random.uniform import normal as _normal
from tracebridge.random.uniform import randint
from tracebridge.random.uniform import uniform as _uniform

__all__ = ["StatefulPRNG", "stateful_rng"]

_SEEDS = 2**63
Size = int | Sequence[int] | None


@final
class StatefulPRNG:
    """A generator of random numbers that remembers how many keys it gave. See ``stateful_rng``.

    >>> from tracebridge.experimental.random import stateful_rng
    >>> rng = stateful_rng(0)
    >>> rng.integers(10, size=3).shape
    (3,)
    """

    __slots__ = ("_base_key", "_counter")

    def __init__(self, base_key: Array, counter: Ref) -> None:
        self._base_key = base_key
        self._counter = counter

    def __repr__(self) -> str:
        return f"StatefulPRNG(_base_key={self._base_key!r}, _counter={self._counter!r})"

    def key(self, shape: int | Sequence[int] = ()) -> Array:
        """A new key, or an array of new keys.

        Args:
            shape: the shape of the array; an integer for a vector.

        Raises:
            ArgumentValueError: the generator came from ``split``, and is not inside of ``vmap``.

        >>> import tracebridge as tb
        >>> from tracebridge.experimental.random import stateful_rng
        >>> rng = stateful_rng(0)
        >>> bool((rng.key() == tb.random.fold_in(tb.random.key(0), 0)).all())
        True
        >>> rng.key(3).shape
        (3,)
        """
        if self._base_key.shape:
            raise ArgumentValueError(
                call="StatefulPRNG.key",
                got=f"generators of shape {self._base_key.shape}",
                expected="a single one",
                hint="pass them through tracebridge.vmap, or make a list of them by spawn",
            )
        new = fold_in(self._base_key, get(self._counter))
        addupdate(self._counter, ..., 1)
        sizes = _shape(shape)
        return split(new, sizes) if sizes else new

    def random(self, size: Size = None, dtype: DTypeLike = float) -> Array:
        """Floats from 0 to below 1.

        Args:
            size: shape of the result; ``None`` for one number.
            dtype: a floating dtype.

        >>> from tracebridge.experimental.random import stateful_rng
        >>> stateful_rng(0).random((2, 3)).shape
        (2, 3)
        """
        return _uniform(self.key(), _shape(size), dtype)

    def uniform(
        self,
        low: ArrayLike = 0,
        high: ArrayLike = 1,
        size: Size = None,
        *,
        dtype: DTypeLike = float,
    ) -> Array:
        """Floats from ``low`` to below ``high``.

        Args:
            low: lower bounds.
            high: upper bounds.
            size: shape of the result; ``None`` for that of the bounds.
            dtype: a floating dtype.

        >>> from tracebridge.experimental.random import stateful_rng
        >>> bool((abs(stateful_rng(0).uniform(-2, 2, 100)) <= 2).all())
        True
        """
        return _uniform(self.key(), _shape(size, low, high), dtype, minval=low, maxval=high)

    def normal(
        self,
        loc: ArrayLike = 0,
        scale: ArrayLike = 1,
        size: Size = None,
        *,
        dtype: DTypeLike = float,
    ) -> Array:
        """Normally distributed numbers.

        Args:
            loc: means.
            scale: standard deviations.
            size: shape of the result; ``None`` for that of ``loc`` and ``scale``.
            dtype: a floating dtype.

        >>> from tracebridge.experimental.random import stateful_rng
        >>> stateful_rng(0).normal([0.0, 10.0], 0.1).round(-1).tolist()
        [0.0, 10.0]
        """
        numbers = _normal(self.key(), _shape(size, loc, scale), dtype)
        return (tnp.array(loc) + tnp.array(scale) * numbers).astype(dtype)

    def integers(
        self,
        low: ArrayLike,
        high: ArrayLike | None = None,
        size: Size = None,
        *,
        dtype: DTypeLike = int,
    ) -> Array:
        """Integers from ``low`` to below ``high``; from 0 to below ``low`` if given alone.

        Args:
            low: the least integers, or the bounds.
            high: the bounds.
            size: shape of the result; ``None`` for that of the bounds.
            dtype: an integer dtype.

        >>> from tracebridge.experimental.random import stateful_rng
        >>> stateful_rng(0).integers(5, 6, 3).tolist()
        [5, 5, 5]
        """
        if high is None:
            low, high = 0, low
        return randint(self.key(), _shape(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """Independent generators as one object, for ``vmap`` to map over.

        Args:
            num: how many, or their shape.

        >>> import tracebridge as tb
        >>> from tracebridge.experimental.random import stateful_rng
        >>> tb.vmap(lambda rng: rng.uniform())(stateful_rng(0).split(3)).shape
        (3,)
        """
        return StatefulPRNG(self.key(num), new_ref(tnp.zeros(_shape(num), int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """A list of independent generators.

        Args:
            n_children: how many.

        >>> from tracebridge.experimental.random import stateful_rng
        >>> len(stateful_rng(0).spawn(2))
        2
        """
        return [StatefulPRNG(one, new_ref(0)) for one in self.key(n_children)]


_state_of = operator.attrgetter("_base_key", "_counter")


def _children(rng: StatefulPRNG) -> tuple[tuple[Any, ...], None]:
    return _state_of(rng), None


def _generator(aux: None, children: Sequence[Any]) -> StatefulPRNG:
    del aux
    return StatefulPRNG(*children)


register_pytree_node(StatefulPRNG, _children, _generator)


def _shape(size: Size, *parameters: ArrayLike) -> tuple[int, ...]:
    """The shape of a draw: as asked for, else that of its parameters."""
    if size is None:
        return np.broadcast_shapes(*[np.shape(p) for p in parameters])
    if isinstance(size, int | np.number):
        return (operator.index(size),)
    return tuple([operator.index(d) for d in size])


def stateful_rng(seed: ArrayLike | None = None, *, impl: Any = None) -> StatefulPRNG:
    """A generator of random numbers with a state, as ``numpy.random.default_rng`` makes one.

    It counts its draws in a reference, so that each takes a key of its own, in compiled functions
    too: these may close over a generator or take it as an argument, but not return it. Where
    references are refused, as in ``checkpoint``, pass a key: ``rng.key()``.

    Args:
        seed: an integer. It may be left out outside of traced functions: then the operating
            system chooses.
        impl: the generator of the keys, as in ``tracebridge.random.key``.

    Raises:
        ArgumentTypeError: there is no seed in a traced function.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.random import stateful_rng
    >>> rng = stateful_rng(42)
    >>> draw = tb.jit(rng.normal)
    >>> bool(draw() == draw())
    False
    """
    if seed is None:
        if not is_eager():
            msg = "stateful_rng: a traced function needs a seed: it runs many times, traced once"
            raise ArgumentTypeError(msg)
        seed = np.random.default_rng().integers(_SEEDS)
    return StatefulPRNG(key(seed, impl=impl), new_ref(0))


_shield(globals(), __name__)
