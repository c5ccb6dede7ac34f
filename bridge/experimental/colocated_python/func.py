"""Python functions that run on the hosts of devices: here the host that calls them."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

import tracebridge.core.tree.tree as trees
from tracebridge._api.devices.transfer import device_put
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.ir.typeof import typeof
from tracebridge.core.runtime.arrays.array import Array


@final
class _Colocated:
    """A function of arrays that runs in Python, and gives arrays."""

    def __init__(
        self,
        fun: Callable[..., Any],
        in_specs: object = None,
        out_specs_fn: Callable[..., Any] | None = None,
        devices: Sequence[Any] | None = None,
    ) -> None:
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._in_specs = in_specs
        self._out_specs_fn = out_specs_fn
        self._devices = devices

    def specialize(
        self,
        in_specs: object = None,
        out_specs_fn: Callable[..., Any] | None = None,
        devices: Sequence[Any] | None = None,
    ) -> _Colocated:
        """The same function with more said about it; what is None stays as it was.

        Args:
            in_specs: types of the arguments, ``(args, kwargs)`` as ``ShapeDtypeStruct``.
            out_specs_fn: from the types of the arguments to those of the results.
            devices: where it runs if no argument says so.
        """
        return _Colocated(
            self._fun,
            self._in_specs if in_specs is None else in_specs,
            out_specs_fn or self._out_specs_fn,
            devices or self._devices,
        )

    def __get__(self, owner: object, cls: type | None = None) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        call = f"colocated_python({getattr(self, '__name__', self._fun)})"
        leaves = trees.leaves((args, kwargs))
        placed = [leaf for leaf in leaves if isinstance(leaf, Array)]
        if not placed and self._devices is None:
            msg = f"{call}: no array among the arguments says where to run; specialize(devices=...)"
            raise ArgumentValueError(msg)
        _check(call, "arguments", (args, kwargs), self._in_specs)
        device = self._devices[0] if self._devices else None
        results = trees.map(lambda x: _as_array(call, x, device), self._fun(*args, **kwargs))
        if self._out_specs_fn is not None:
            specs_args, specs_kwargs = trees.map(_spec_of, (args, kwargs))
            specs = self._out_specs_fn(*specs_args, **specs_kwargs)
            got, expected = trees.structure(results), trees.structure(specs)
            if got != expected:
                msg = f"{call}: results are a tree {got}, and are said to be {expected}"
                raise ArgumentValueError(msg)
            _check(call, "results", results, specs)
            results = trees.map(
                lambda x, spec: device_put(x, spec.sharding) if spec.sharding else x, results, specs
            )
        return results


def _spec_of(x: object) -> ShapeDtypeStruct:
    """The type and the place of an argument."""
    aval = typeof(x)
    return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=getattr(x, "sharding", None))


def _as_array(call: str, x: object, device: object) -> Any:
    if isinstance(x, Array):
        return x
    if not isinstance(x, np.ndarray | np.generic | int | float | complex):
        msg = f"{call}: a result of type {type(x).__name__}; they are arrays and numbers"
        raise ArgumentTypeError(msg)
    return device_put(x, device)


def _check(call: str, what: str, values: object, specs: object) -> None:
    """Raise ArgumentValueError unless values have the types that were said."""
    if specs is None:
        return
    got = [(typeof(x).shape, typeof(x).dtype) for x in trees.leaves(values)]
    expected = [(tuple(s.shape), np.dtype(s.dtype)) for s in trees.leaves(specs)]
    if got != expected:
        msg = f"{call}: {what} are {got}, and are said to be {expected}"
        raise ArgumentValueError(msg)


def colocated_python(fun: Callable[..., Any]) -> Any:
    """A function that runs on the hosts of its arguments' devices, in Python.

    All devices that a process sees belong to its host: the function is called here, with arrays.

    Args:
        fun: function of trees of arrays to a tree of arrays or numbers.

    Returns:
        The callable, with a method ``specialize``.

    Raises:
        ArgumentValueError: when called: no argument is an array and no devices are given, or types
            are not those that were said.
        ArgumentTypeError: when called: a result is neither array nor number.

    >>> import numpy as np, tracebridge.numpy as tnp
    >>> from tracebridge.experimental.colocated_python import colocated_python
    >>> print(colocated_python(lambda x: np.asarray(x) + 1)(tnp.arange(3)))
    [1 2 3]
    """
    return _Colocated(fun)


def colocated_python_class(cls: type) -> type:
    """A class whose objects live on the hosts of devices, which is this one.

    The object is made at the first call of a method.

    Args:
        cls: the class; its public methods take and give arrays, as in ``colocated_python``.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental.colocated_python import colocated_python_class
    >>> @colocated_python_class
    ... class Sum:
    ...     def __init__(self, start):
    ...         self.total = start
    ...     def add(self, x):
    ...         self.total += float(x)
    ...         return self.total
    >>> total = Sum(1.0)
    >>> _ = total.add(tnp.float32(2.0))
    >>> print(total.add(tnp.float32(3.0)))
    6.0
    """

    def begin(self: Any, *args: object, **kwargs: object) -> None:
        lock, made = threading.Lock(), []

        def make() -> Any:
            with lock:  # one object, whichever threads call first
                if not made:
                    made.append(cls(*args, **kwargs))
            return made[0]

        self._make = make

    def method(name: str, fun: Callable[..., Any]) -> Any:
        @functools.wraps(fun)
        def call(self: Any, *args: object, **kwargs: object) -> Any:
            return _Colocated(getattr(self._make(), name))(*args, **kwargs)

        return call

    methods = {
        name: method(name, fun)
        for name, fun in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }
    names = {"__doc__": cls.__doc__, "__module__": cls.__module__}
    return type(cls.__name__, (), {**names, "__init__": begin, **methods})
