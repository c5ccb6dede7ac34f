"""Errors about mutable array references."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError


class RefError(TracebridgeError, ValueError, TypeError):
    """A mutable array reference was used where, or in a way that, it can't be.

    A mutable reference (`tb.new_ref`) was used where it can't be: after `freeze` or `free_ref`,
    as an array, as a result of a transformed function, twice in one call, or a value was written
    to it that it can't take. A function that `grad`, `jvp` or `vjp` differentiates can't write a
    differentiated value to a reference that was made outside of it, since there is no place for
    the derivative; a function that `vmap` maps can't write a mapped value to a reference without
    the mapped axis.

    Wrong::

        largest = tb.new_ref(0.0)

        def loss(w):
            y = tnp.sin(w)
            largest[...] = tnp.max(y)  # y depends on w, and w is differentiated
            return tnp.sum(y)

        tb.grad(loss)(tnp.arange(3.0))

    Right::

        largest = tb.new_ref(0.0)

        def loss(w):
            y = tnp.sin(w)
            largest[...] = tb.lax.stop_gradient(tnp.max(y))  # statistics have no derivative
            return tnp.sum(y)

        tb.grad(loss)(tnp.arange(3.0))

    A reference that is made inside the differentiated function takes differentiated values. For
    `vmap` make the reference an argument with an axis to map, or make it inside the function.
    """
