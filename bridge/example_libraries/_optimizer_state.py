"""From the rule for one array to an optimizer of trees of arrays, and its state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, final

from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.core.tree.tree import checked_flatten as flatten
from tracebridge.core.tree.tree import unflatten
from tracebridge.core.util.public_path import public_path

__all__ = [
    "JoinPoint",
    "Optimizer",
    "OptimizerState",
    "optimizer",
    "pack_optimizer_state",
    "unpack_optimizer_state",
]


@public_path("tracebridge.example_libraries.optimizers")
@final
class OptimizerState(NamedTuple):
    """What an optimizer keeps between steps; a tree whose leaves are arrays.

    >>> from tracebridge.example_libraries import optimizers
    >>> len(optimizers.momentum(0.1, 0.9).init_fn(2.0).packed_state)
    2
    """

    packed_state: tuple[Any, ...]
    """The arrays of all parameters, one behind the other."""
    tree_def: Any
    """Structure of the parameters."""
    subtree_defs: tuple[Any, ...]
    """For each parameter the structure of its part of the state."""


register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda structure, children: OptimizerState(children[0], *structure),
)


@public_path("tracebridge.example_libraries.optimizers")
@final
class Optimizer(NamedTuple):
    """Three functions that make an optimizer.

    >>> from tracebridge.example_libraries import optimizers
    >>> optimizers.sgd(0.1)._fields
    ('init_fn', 'update_fn', 'params_fn')
    """

    init_fn: Callable[[Any], OptimizerState]
    """Parameters to the first state."""
    update_fn: Callable[[Any, Any, OptimizerState], OptimizerState]
    """Number of the step, gradients and state to the next state."""
    params_fn: Callable[[OptimizerState], Any]
    """State to parameters."""


Rules = tuple[Callable[[Any], Any], Callable[[Any, Any, Any], Any], Callable[[Any], Any]]


def optimizer(opt_maker: Callable[..., Rules]) -> Callable[..., Optimizer]:
    """Make an optimizer for one array an optimizer for trees of arrays.

    Args:
        opt_maker: a function of any arguments that returns three functions: `init` of an array,
            with the state of that array as its result, a tree; `update` of the number of the
            step, the gradient and the state, with the next state; `get_params` of the state,
            with the array.

    Returns:
        A function of the same arguments that returns an `Optimizer`.

    Raises:
        TreeMismatchError: by *update_fn*: the gradients have another structure than the
            parameters, or *update* changes the structure of the state.

    >>> from tracebridge.example_libraries.optimizers import optimizer
    >>> @optimizer
    ... def signs(size):
    ...     def update(i, g, x):
    ...         return x - size * (1 if g > 0 else -1)
    ...
    ...     return (lambda x: x), update, (lambda x: x)
    >>> begin, step, parameters = signs(0.5)
    >>> parameters(step(0, {"a": 3.0}, begin({"a": 2.0})))
    {'a': 1.5}
    """

    @functools.wraps(opt_maker)
    def tree_maker(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def init_fn(params: Any) -> OptimizerState:
            leaves, tree = flatten(params)
            return _packed([init(leaf) for leaf in leaves], tree)

        def update_fn(i: Any, grads: Any, state: OptimizerState) -> OptimizerState:
            leaves, tree = flatten(grads)
            if tree != state.tree_def:
                msg = (
                    f"{opt_maker.__name__}: the gradients are not structured as the parameters\n"
                    f"    parameters: {state.tree_def}\n    gradients: {tree}"
                )
                raise TreeMismatchError(msg)
            parts = zip(leaves, _parts(state), strict=True)
            new = _packed([update(i, leaf, part) for leaf, part in parts], tree)
            _check_parts(opt_maker.__name__, state, new)
            return new

        def params_fn(state: OptimizerState) -> Any:
            return unflatten(state.tree_def, [get_params(part) for part in _parts(state)])

        return Optimizer(init_fn, update_fn, params_fn)

    return tree_maker


def _packed(parts: Sequence[Any], tree: Any) -> OptimizerState:
    """The state of all parameters from that of each."""
    flat = [flatten(part) for part in parts]
    leaves = tuple(leaf for some, _ in flat for leaf in some)
    return OptimizerState(leaves, tree, tuple(structure for _, structure in flat))


def _parts(state: OptimizerState) -> list[Any]:
    """The state of each parameter."""
    leaves = iter(state.packed_state)
    return [
        unflatten(structure, [next(leaves) for _ in range(structure.num_leaves)])
        for structure in state.subtree_defs
    ]


def _check_parts(call: str, old: OptimizerState, new: OptimizerState) -> None:
    for before, after in zip(old.subtree_defs, new.subtree_defs, strict=True):
        if before != after:
            msg = (
                f"{call}: a step changed the structure of the state\n"
                f"    before: {before}\n    after: {after}"
            )
            raise TreeMismatchError(msg)


@public_path("tracebridge.example_libraries.optimizers")
@final
class JoinPoint:
    """Marks where a tree of states hangs in the tree of parameters; iterating gives the tree.

    Args:
        subtree: any tree.

    >>> from tracebridge.example_libraries.optimizers import JoinPoint
    >>> list(JoinPoint((1, 2)))
    [(1, 2)]
    """

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The state as a tree of plain containers, to be saved.

    Args:
        opt_state: the state of an optimizer.

    Returns:
        The tree of the parameters with a `JoinPoint` for each array, which holds the state of
        that array.

    >>> from tracebridge.example_libraries import optimizers
    >>> begin, _, _ = optimizers.momentum(0.1, 0.9)
    >>> state = optimizers.unpack_optimizer_state(begin({"w": 2.0}))
    >>> [float(part) for part in state["w"].subtree]
    [2.0, 0.0]
    """
    return unflatten(opt_state.tree_def, [JoinPoint(part) for part in _parts(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The state of an optimizer from what `unpack_optimizer_state` made of it.

    Args:
        marked_pytree: a tree whose leaves are all a `JoinPoint`.

    Returns:
        The state.

    Raises:
        ArgumentTypeError: a leaf is something else.

    >>> from tracebridge.example_libraries import optimizers
    >>> state = optimizers.momentum(0.1, 0.9).init_fn({"w": 2.0})
    >>> plain = optimizers.unpack_optimizer_state(state)
    >>> optimizers.pack_optimizer_state(plain) == state
    True
    """
    points, tree = flatten(marked_pytree)
    for point in points:
        if not isinstance(point, JoinPoint):
            msg = f"pack_optimizer_state: a leaf is {type(point).__name__}, not a JoinPoint"
            raise ArgumentTypeError(msg)
    return _packed([point.subtree for point in points], tree)
