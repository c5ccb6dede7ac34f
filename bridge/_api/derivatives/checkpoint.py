"""checkpoint: trade memory for computation; what a differentiated function would keep."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

from tracebridge._api.args.argnums import check_callable, resolve
from tracebridge._api.args.statics import Splitter
from tracebridge._api.args.wraps import named_like
from tracebridge.core.control.calls.traced_call import Arguments, argument_names, trace_call
from tracebridge.core.control.refs.calls import RefCall
from tracebridge.core.control.refs.cells import is_differentiated, note_custom
from tracebridge.core.control.refs.ref import has_refs, hide_refs
from tracebridge.core.control.remat.checkpoint import checkpoint_call
from tracebridge.core.control.remat.policies import Policy
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import ArgumentSpecError, TreeMismatchError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.float0 import has_float0, is_float0
from tracebridge.core.ir.tracer import known_value
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.prefix import broadcast_prefix

_NO_FUNCTION: Any = object()
_ROLE = "checkpoint / remat"  # of the function, in messages and programs


def checkpoint(
    fun: Callable[..., object] = _NO_FUNCTION,
    *,
    prevent_cse: bool | Sequence[object] = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    concrete: bool = False,
) -> Callable[..., Any]:
    """Make ``fun`` compute its intermediate values again when it is differentiated.

    Reverse mode needs values from the inside of a function, and by default keeps them from the
    forward pass to the backward pass. The function that this gives keeps its arguments instead,
    and what the policy allows; the rest is computed a second time on the way back. Values and
    derivatives are the same. Applied to parts of a function, also one within another, it sets how
    much memory is traded for how much computation. Usable as a decorator, also with options alone.

    Args:
        fun: function of arrays, numbers and trees of them. It is traced: without ``concrete``
            Python control flow cannot depend on the values of arguments that are not static.
            Callbacks inside happen again whenever they are computed again.
        prevent_cse: keep the compiler from merging the second computation with the first one,
            which would keep the values after all. False where nothing can be merged, as in the
            body of a ``scan``. A tree of booleans, a prefix of the tuple of positional arguments,
            says it for each of them.
        policy: one of ``tracebridge.checkpoint_policies``, or a function
            ``(primitive, *avals, **params) -> bool`` of an equation that says whether its results
            may be kept. By default nothing is.
        static_argnums: positions of arguments that are constants of the program, objects of any
            kind; derived from ``static_argnames`` if only that is given. If one of them is not
            hashable ``fun`` is traced at each call.
        static_argnames: names of such arguments, derived likewise.
        concrete: Python control flow may depend on the values of arguments, by ``bool``, ``int``
            and ``item``, where they are known: outside of ``jit`` and loops, also under ``grad``.
            ``fun`` is then traced at each call.

    Returns:
        A function with the arguments and the result of ``fun``.

    Raises:
        ArgumentSpecError: an option is not of the form described.
        TreeMismatchError: ``prevent_cse`` is no prefix of the arguments.

    >>> import tracebridge as tb
    >>> @tb.checkpoint
    ... def g(x):
    ...     return tb.lax.sin(tb.lax.sin(x))
    >>> value, slope = tb.value_and_grad(g)(2.0)
    >>> print(value, slope)
    0.7890723 -0.2556391
    >>> tb.ad_checkpoint.print_saved_residuals(g, 2.0)
    f32[] from the argument x
    """
    _check_options(prevent_cse, policy)
    lasts = _is_lasting(policy)
    if fun is _NO_FUNCTION:
        return functools.partial(
            checkpoint,
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            concrete=concrete,
        )
    check_callable("checkpoint", fun)
    call = f"checkpoint({name_of(fun)})"
    splitter = Splitter(
        "checkpoint",
        fun,
        *resolve("checkpoint", fun, "static", static_argnums, static_argnames),
        any_object=True,
    )

    @named_like(fun)
    @api_boundary
    def checkpointed(*args: object, **kwargs: object) -> Any:
        arguments = splitter.arguments(args, kwargs)
        flags = _flags(call, prevent_cse, splitter, args, len(arguments.leaves))
        flags = _without_hidden(arguments, flags)
        values = leaf_values(call, arguments)
        known = [known_value(v) for v in values] if concrete else None
        if known is not None and any([k is None for k in known]):
            known = None
        avals = tuple([v.aval for v in values])
        traced = trace_call(
            fun, arguments, avals, fun, refs=True, known=known, again=lasts, role=_ROLE
        )
        if traced.refs is not None and traced.refs.custom:
            if is_differentiated():
                return fun(*args, **kwargs)  # so that the custom rules run and find the references
            note_custom(call)
        # Contents of references are arguments and results of the equation.
        refs = RefCall(call, traced.refs, ())
        contents = refs.contents()
        # Values that the function closes over are arguments of the equation.
        closed_over = prevent_cse is True or any(flags)
        every = (*[closed_over] * len(traced.hoisted), *flags, *[closed_over] * len(contents))
        operands = [*traced.hoisted, *values, *contents]
        outs = checkpoint_call(traced.jaxpr, operands, every, policy)
        return traced.out_tree.unflatten(refs.write_back(outs))

    return checkpointed


remat = checkpoint


def _check_options(prevent_cse: Any, policy: Any) -> None:
    if policy is not None:
        if not callable(policy):
            msg = f"checkpoint: policy is {policy!r} of type {type(policy).__name__}"
            raise ArgumentSpecError(msg, expected="a function, as in checkpoint_policies, or None")
        try:
            hash(policy)
        except TypeError:
            msg = f"checkpoint: policy {policy!r} is not hashable, so no trace could be found again"
            raise ArgumentSpecError(msg, hint="give its class a method __hash__") from None
    if not isinstance(prevent_cse, bool | tuple | list):
        msg = f"checkpoint: prevent_cse is {prevent_cse!r} of type {type(prevent_cse).__name__}"
        raise ArgumentSpecError(msg, expected="a boolean, or a tuple of them for the arguments")


def _is_lasting(policy: Any) -> bool:
    """Whether a policy is not made anew for each call: programs remember what they are for it.

    Functions of modules are not. Closures may have the name of another function.
    """
    if policy is None:
        return True
    is_function = isinstance(policy, FunctionType) and policy.__closure__ is None
    return is_function and "<locals>" not in policy.__qualname__


def _without_hidden(arguments: Arguments, flags: list[bool]) -> list[bool]:
    """Hide float0 and references in the structure; the flags of the leaves that are left."""
    if has_float0(arguments.leaves):
        flags = [f for f, x in zip(flags, arguments.leaves, strict=True) if not is_float0(x)]
        arguments.hide_float0()
    if has_refs(arguments.leaves):
        flags = [f for f, x in zip(flags, arguments.leaves, strict=True) if not has_refs([x])]
        arguments.leaves, arguments.tree = hide_refs(arguments.leaves, arguments.tree)
    return flags


def _flags(
    call: str, prevent_cse: Any, splitter: Splitter, args: tuple[object, ...], n_leaves: int
) -> list[bool]:
    """One flag per leaf of the arguments that are not static."""
    if isinstance(prevent_cse, bool):
        return [prevent_cse] * n_leaves
    _, dynamic, _ = splitter.layout(len(args))
    try:
        if len(prevent_cse) != len(args):
            msg = f"{len(prevent_cse)} entries for {len(args)} positional arguments"
            raise ValueError(msg)
        chosen = tuple([prevent_cse[i] for i in dynamic])
        flags = [bool(f) for f in broadcast_prefix(chosen, tuple([args[i] for i in dynamic]))]
    except (ValueError, TypeError) as error:
        msg = f"{call}: prevent_cse is {prevent_cse!r}, which is no prefix of the arguments"
        raise TreeMismatchError(msg, hint="give one boolean per positional argument") from error
    # Arguments given by keyword come last.
    return [*flags, *[any(flags)] * (n_leaves - len(flags))]


def leaf_values(call: str, args: Arguments) -> list[Any]:
    """The leaves as values; the message of a failure names the argument."""
    values: list[Any] = []
    for i, leaf in enumerate(args.leaves):
        try:
            values.append(as_value(leaf))
        except UnsupportedDtypeError as error:
            msg = (
                f"{call}: argument {argument_names(args.tree, args.parameters)[i]} is "
                f"{shown(leaf)} of type {type(leaf).__name__}; expected arrays, numbers, and trees "
                "of them"
            )
            raise UnsupportedDtypeError(
                msg, hint=way_out_of(leaf, "name it in static_argnums if it is a constant")
            ) from error
    return values
