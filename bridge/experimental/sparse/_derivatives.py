"""Derivatives with respect to sparse arrays: to their elements, at their coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.numpy as tnp
from tracebridge._api.args.argnums import derivative_argnums
from tracebridge._api.args.wraps import named_like
from tracebridge._api.derivatives import grad as dense_grad
from tracebridge._api.derivatives import jacobian as dense_jacobian
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.tree import tree
from tracebridge.experimental.sparse._base import JAXSparse, with_elements
from tracebridge.experimental.sparse._bcoo.array import BCOO


def _is_sparse(x: object) -> bool:
    return isinstance(x, JAXSparse)


def _elements(x: Any) -> Any:
    """The elements of a sparse array, other leaves as they are."""
    return x.tree_flatten()[0][0] if isinstance(x, JAXSparse) else x


def _with_leaf(x: Any, data: Any) -> Any:
    """A sparse array with other elements; other leaves are replaced."""
    return with_elements(x, data) if isinstance(x, JAXSparse) else data


class _Split:
    """The arguments of a call, and those to differentiate without their coordinates."""

    def __init__(self, call: str, fun: Callable[..., Any], argnums: Any) -> None:
        self.fun = fun
        self.nums = derivative_argnums(call, argnums)

    def places(self, args: Sequence[Any]) -> list[int]:
        return [i % len(args) for i in self.nums if -len(args) <= i < len(args)]

    def elements(self, args: Sequence[Any]) -> list[Any]:
        """The arguments with the elements in place of sparse arrays, where differentiated."""
        out = list(args)
        for i in self.places(args):
            out[i] = tree.map(_elements, args[i], is_leaf=_is_sparse)
        return out

    def of_elements(self, args: Sequence[Any]) -> Callable[..., Any]:
        """The function of such arguments."""

        @named_like(self.fun)
        def fun(*changed: Any, **kwargs: Any) -> Any:
            full = list(changed)
            for i in self.places(args):
                full[i] = tree.map(_with_leaf, args[i], changed[i], is_leaf=_is_sparse)
            return self.fun(*full, **kwargs)

        return fun

    def gradient(self, args: Sequence[Any], found: Any, single: bool) -> Any:
        """Gradients of elements as sparse arrays."""
        places = self.places(args)
        parts = [found] if single else found
        out = [
            tree.map(_with_leaf, args[i], g, is_leaf=_is_sparse)
            for i, g in zip(places, parts, strict=True)
        ]
        return out[0] if single else tuple(out)


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """A function that computes the gradient of ``fun``, also with respect to sparse arrays.

    Args:
        fun: function of arrays, sparse arrays and trees of them; as in ``tracebridge.grad``.
        argnums: as in ``tracebridge.grad``.
        has_aux: as in ``tracebridge.grad``.
        **kwargs: further arguments of ``tracebridge.grad``.

    Returns:
        A function with the arguments of ``fun``. The gradient by a sparse array is one with the
        same coordinates: other elements are no variables.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> x = tnp.array([1.0, 2.0])
    >>> g = sparse.grad(lambda m: (m @ x).sum())(sparse.eye(2))
    >>> print(g.todense())
    [[1. 0.]
     [0. 2.]]
    """
    split = _Split("grad", fun, argnums)
    single = hasattr(argnums, "__index__")

    @named_like(fun)
    def grad_f(*args: Any, **kws: Any) -> Any:
        inner = dense_grad.grad(split.of_elements(args), argnums, has_aux, **kwargs)
        found = inner(*split.elements(args), **kws)
        if has_aux:
            return split.gradient(args, found[0], single), found[1]
        return split.gradient(args, found, single)

    return api_boundary(grad_f)


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., tuple[Any, Any]]:
    """A function that computes the value of ``fun`` and its gradient; arguments as in ``grad``.

    >>> from tracebridge.experimental import sparse
    >>> value, g = sparse.value_and_grad(lambda m: (m * 3.0).sum())(sparse.eye(2))
    >>> print(value, g.data)
    6.0 [3. 3.]
    """
    split = _Split("value_and_grad", fun, argnums)
    single = hasattr(argnums, "__index__")

    @named_like(fun)
    def value_and_grad_f(*args: Any, **kws: Any) -> tuple[Any, Any]:
        inner = dense_grad.value_and_grad(split.of_elements(args), argnums, has_aux, **kwargs)
        value, found = inner(*split.elements(args), **kws)
        return value, split.gradient(args, found, single)

    return api_boundary(value_and_grad_f)


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """A function that computes the Jacobian of ``fun`` in forward mode.

    Args:
        fun: function of arrays, sparse arrays and trees of them; its results are dense.
        argnums: as in ``tracebridge.jacfwd``.
        has_aux: as in ``tracebridge.jacfwd``.
        **kwargs: further arguments of ``tracebridge.jacfwd``.

    Returns:
        A function with the arguments of ``fun``. The Jacobian by a BCOO array is a BCOO array,
        whose first axes of batches are those of the result; all batches share coordinates.

    Raises:
        UnsupportedArgumentError: at a call: ``fun`` returns a sparse array, or an argument to
            differentiate is a sparse array of another format.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> x = tnp.array([1.0, 2.0])
    >>> sparse.jacfwd(lambda m: m @ x)(sparse.eye(2))
    BCOO(float32[2, 2, 2], nse=2, n_batch=1)
    """
    return _jacobian(dense_jacobian.jacfwd, "jacfwd", fun, argnums, has_aux, kwargs)


def jacrev(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """A function that computes the Jacobian of ``fun`` in reverse mode; else as ``jacfwd``.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> x = tnp.array([1.0, 2.0])
    >>> print(sparse.jacrev(lambda m: m @ x)(sparse.eye(2)).data)
    [[1. 0.]
     [0. 2.]]
    """
    return _jacobian(dense_jacobian.jacrev, "jacrev", fun, argnums, has_aux, kwargs)


jacobian = jacrev


def _jacobian(
    mode: Callable[..., Any],
    call: str,
    fun: Callable[..., Any],
    argnums: Any,
    has_aux: bool,
    kwargs: dict[str, Any],
) -> Callable[..., Any]:
    split = _Split(call, fun, argnums)
    single = hasattr(argnums, "__index__")

    @named_like(fun)
    def jacobian_f(*args: Any, **kws: Any) -> Any:
        inner = split.of_elements(args)
        structure: list[Any] = []

        @named_like(fun)
        def noted(*xs: Any, **ys: Any) -> Any:
            out = inner(*xs, **ys)
            leaves, form = tree.flatten(out[0] if has_aux else out, _is_sparse)
            if any([_is_sparse(leaf) for leaf in leaves]):
                msg = f"{call}({name_of(fun)}): the function returns a sparse array"
                raise UnsupportedArgumentError(msg, hint="return x.todense(), or x.data")
            structure[:] = [form]
            return out

        found = mode(noted, argnums, has_aux, **kwargs)(*split.elements(args), **kws)
        found, aux = found if has_aux else (found, None)
        places = split.places(args)
        outs: list[Any] = []
        for part in structure[0].flatten_up_to(found):
            parts = [part] if single else part
            arrays = [
                tree.map(lambda x, d: _jacobian_array(call, x, d), args[i], g, is_leaf=_is_sparse)
                for i, g in zip(places, parts, strict=True)
            ]
            outs.append(arrays[0] if single else tuple(arrays))
        result = structure[0].unflatten(outs)
        return (result, aux) if has_aux else result

    return api_boundary(jacobian_f)


def _jacobian_array(call: str, x: Any, data: Any) -> Any:
    """The Jacobian of the elements as a sparse array with the axes of the result in front."""
    if not isinstance(x, JAXSparse):
        return data
    if not isinstance(x, BCOO):
        msg = f"{call}: an argument is a {type(x).__name__} array"
        raise UnsupportedArgumentError(msg, expected="BCOO arrays, or dense ones")
    n = data.ndim - x.data.ndim
    shape = (*data.shape[:n], *x.shape)
    indices = tnp.broadcast_to(x.indices, (*data.shape[:n], *x.indices.shape))
    return BCOO(
        (data, indices),
        shape=shape,
        indices_sorted=x.indices_sorted,
        unique_indices=x.unique_indices,
    )
