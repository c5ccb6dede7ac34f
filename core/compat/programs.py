"""Programs as users build and run them: Jaxprs of variables and equations."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.ir.jaxpr as base
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.ir import debug_info as known_names
from tracebridge.core.ir.atoms import Atom, JaxprEqn, ProgramView, Var
from tracebridge.core.ir.aval import ShapedArray, batched_aval, element_aval
from tracebridge.core.ir.check import check_jaxpr as check_equations
from tracebridge.core.ir.effects import no_effects
from tracebridge.core.ir.jaxpr import ClosedJaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import UserType, element_of_users
from tracebridge.core.ir.values import Literal
from tracebridge.core.symbolic.dims import is_static, is_symbolic_dim
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.primitive import Primitive


ParamDict = dict[str, Any]
Value = Any


@public_path("tracebridge.core")
class AbstractValue(abc.ABC):  # noqa: B024 - it classifies
    """What types of arrays have in common; ``ShapedArray`` is the only kind."""


AbstractValue.register(ShapedArray)


@public_path("tracebridge.extend.core")
class DebugInfo(abc.ABC):  # noqa: B024 - it constructs and classifies
    """What a traced function, its arguments and its results are called.

    Args:
        traced_for: why the function was traced, such as "jit".
        func_src_info: the name of the function, and where it is: "f at model.py:3".
        arg_names: names of the flat arguments; None if they are not known.
        result_paths: names of the flat results, or a function that gives them; None as before.

    >>> import tracebridge as tb
    >>> tb.extend.core.DebugInfo("jit", "f at model.py:3", ("x",), None).func_name
    'f'
    """

    def __new__(
        cls,
        traced_for: str,
        func_src_info: str,
        arg_names: Sequence[str] | None = None,
        result_paths: object = None,
    ) -> known_names.DebugInfo:
        """The names in the form in which the engine keeps them."""
        name, _, where = func_src_info.partition(" at ")
        results: Any = result_paths() if callable(result_paths) else result_paths
        return known_names.DebugInfo(
            name, where, tuple(arg_names or ()), tuple(results or ()), traced_for
        )

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return issubclass(other, known_names.DebugInfo)


@public_path("tracebridge.extend.core")
class Jaxpr(abc.ABC):  # noqa: B024 - it constructs and classifies
    """A program of equations between variables.

    Args:
        constvars: variables of constants; ``ClosedJaxpr(jaxpr, consts)`` gives their values.
        invars: variables of the inputs.
        outvars: variables, or literals, of the results.
        eqns: the equations, in an order in which they can be evaluated.
        effects: accepted; the equations say which effects the program has.
        debug_info: what the traced function and its arguments are called.

    Raises:
        JaxprTypeError: a variable is not defined, or an equation gives other results.

    >>> import tracebridge as tb
    >>> core = tb.extend.core
    >>> aval = tb.core.ShapedArray((), "float32")
    >>> x, y = core.Var(aval), core.Var(aval)
    >>> core.Jaxpr([], [x], [y], [core.new_jaxpr_eqn([x], [y], tb.lax.sin_p, {}, core.no_effects)])
    { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
    """

    def __new__(
        cls,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[JaxprEqn],
        effects: Any = no_effects,
        debug_info: Any = None,
    ) -> base.Jaxpr:
        """The program in the form in which the engine keeps it."""
        del effects
        names = known_names.NO_DEBUG_INFO if debug_info is None else debug_info
        return base.jaxpr_of(ProgramView(constvars, invars, outvars, eqns), {}, names)

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return issubclass(other, base.Jaxpr)


def open_jaxpr(jaxpr: object, call: str) -> base.Jaxpr:
    """The program of a Jaxpr or a closed Jaxpr."""
    if isinstance(jaxpr, ClosedJaxpr):
        return jaxpr.jaxpr
    if isinstance(jaxpr, base.Jaxpr):
        return jaxpr
    msg = f"{call}: got {jaxpr!r} of type {type(jaxpr).__name__}, expected a Jaxpr"
    raise ArgumentTypeError(msg, hint="make_jaxpr(function)(*arguments) gives one")


def eval_jaxpr(
    jaxpr: object, consts: Sequence[object], *args: Any, propagate_source_info: bool = True
) -> list[Any]:
    """Evaluate a Jaxpr.

    Args:
        jaxpr: the program.
        consts: values of its ``constvars``.
        *args: values of its inputs: arrays, numbers, tracers.
        propagate_source_info: accepted; equations keep no hold on where they came from.

    Returns:
        The list of results.

    Raises:
        ShapeMismatchError: not one constant for each of ``constvars``.
        ArgumentValueError: not one argument for each input.

    >>> import tracebridge as tb
    >>> closed = tb.make_jaxpr(lambda x: 3 * x)(1.0)
    >>> print(tb.core.eval_jaxpr(closed.jaxpr, closed.consts, 2.0)[0])
    6.0
    """
    del propagate_source_info
    program = base.with_consts(open_jaxpr(jaxpr, "eval_jaxpr"), consts)
    if len(args) != program.n_in:
        msg = f"eval_jaxpr: got {len(args)} arguments, the program has {program.n_in} inputs"
        raise ArgumentValueError(msg)
    env: list[Any] = [*map(as_value, args), *program.consts]
    process = current_trace().process
    for app, variables in program.equations:
        values = [env[i] for i in variables]
        avals = tuple([v.aval for v in values])
        if avals != app.avals:
            # Other shapes than those of the trace: the equation is applied anew.
            out = app.primitive.bind(*values, **app.params)
        else:
            out = process(app, values)
        if app.multiple:
            env.extend(out)
        else:
            env.append(out)
    return [_result(env[i]) for i in program.outs]


def _result(value: object) -> Any:
    return base.constant(value) if type(value) is Literal else value


def jaxpr_as_fun(closed_jaxpr: object, *args: object) -> Any:
    """A closed Jaxpr as a function of flat arguments that gives the list of results.

    Args:
        closed_jaxpr: what ``make_jaxpr`` gives.
        *args: with arguments the program is evaluated at once.

    >>> import tracebridge as tb
    >>> fun = tb.extend.core.jaxpr_as_fun(tb.make_jaxpr(lambda x: 3 * x)(1.0))
    >>> print(fun(2.0)[0])
    6.0
    """
    program = open_jaxpr(closed_jaxpr, "jaxpr_as_fun")
    closed = ClosedJaxpr(program)
    run = functools.partial(eval_jaxpr, program, closed.consts)
    return run(*args) if args else run


def new_jaxpr_eqn(
    invars: Sequence[Atom],
    outvars: Sequence[Var],
    primitive: Primitive,
    params: Mapping[str, Any],
    effects: object = no_effects,
    source_info: object = None,
    ctx: object = None,
) -> JaxprEqn:
    """An equation ``outvars = primitive[params] invars``.

    Args:
        invars: variables and literals.
        outvars: variables of the types that the primitive gives.
        primitive: the primitive.
        params: its parameters.
        effects: accepted; the primitive says which effects the equation has.
        source_info: where the equation comes from, such as ``eqn.source_info`` of another.
        ctx: accepted.

    >>> import tracebridge as tb
    >>> core = tb.extend.core
    >>> new_var = core.gensym()
    >>> x, y = [new_var(tb.typeof(1.0)) for _ in range(2)]
    >>> core.new_jaxpr_eqn([x], [y], tb.lax.sin_p, {}, core.no_effects).primitive
    sin
    """
    return JaxprEqn(invars, outvars, primitive, params, effects, source_info, ctx)


def gensym(*_: object, **__: object) -> Callable[[ShapedArray], Var]:
    """A function that makes new variables of given types.

    >>> import tracebridge as tb
    >>> new_var = tb.extend.core.gensym()
    >>> new_var(tb.core.ShapedArray((2,), "float32")).aval
    ShapedArray(float32[2])
    """
    return Var


def jaxprs_in_params(params: Mapping[str, Any]) -> Iterator[base.Jaxpr]:
    """The programs among the parameters of an equation, also inside tuples and lists.

    Args:
        params: ``eqn.params`` of an equation.

    >>> import tracebridge as tb
    >>> equation = tb.make_jaxpr(lambda x: tb.jit(tb.lax.sin)(x))(1.0).eqns[0]
    >>> list(tb.extend.core.jaxprs_in_params(equation.params))
    [{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }]
    """
    lists = {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()}
    yield from base.jaxprs_in_params(lists)


def subjaxprs(jaxpr: object) -> Iterator[base.Jaxpr]:
    """The programs in the parameters of the equations of a program.

    Args:
        jaxpr: a Jaxpr, or a closed one.

    >>> import tracebridge as tb
    >>> closed = tb.make_jaxpr(lambda x: tb.jit(tb.lax.sin)(x))(1.0)
    >>> list(tb.extend.core.subjaxprs(closed.jaxpr))
    [{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }]
    """
    for app, _ in open_jaxpr(jaxpr, "subjaxprs").equations:
        yield from jaxprs_in_params(app.params)


def check_jaxpr(jaxpr: object) -> None:
    """Check that a program is well formed, and those in its equations.

    Args:
        jaxpr: a Jaxpr, or a closed one.

    Raises:
        JaxprTypeError: it is not.

    >>> import tracebridge as tb
    >>> tb.extend.core.check_jaxpr(tb.make_jaxpr(tb.lax.sin)(1.0).jaxpr)
    """
    check_equations(open_jaxpr(jaxpr, "check_jaxpr"))


def mapped_aval(size: object, axis: Any, aval: Any) -> Any:
    """The type of one element of a batch: without the axis.

    Args:
        size: the size of the batch.
        axis: the axis of the batch; None if there is none.
        aval: the type of the whole batch.

    Raises:
        ArgumentTypeError: the axis has another size.

    >>> import tracebridge as tb
    >>> tb.extend.core.mapped_aval(3, 0, tb.core.ShapedArray((3, 2), "float32"))
    ShapedArray(float32[2])
    """
    if axis is None:
        return aval
    if isinstance(aval, UserType):
        return element_of_users(aval, size, axis)
    if aval.shape[axis] != size:
        msg = f"mapped_aval: axis {axis} of {aval.str_short()} has not the size {size}"
        raise ArgumentTypeError(msg)
    return element_aval(aval, axis)


def unmapped_aval(size: object, axis: Any, aval: Any, explicit_mesh_axis: object = None) -> Any:
    """The type of a batch of ``size`` elements: with a new axis.

    Args:
        size: the size of the batch.
        axis: where the new axis goes; None for none.
        aval: the type of one element.
        explicit_mesh_axis: accepted, and without effect: types carry no shardings. Programs for
            versions that name the axis call ``unmapped_aval(size, name, axis, aval)``.

    >>> import tracebridge as tb
    >>> tb.extend.core.unmapped_aval(3, 0, tb.core.ShapedArray((2,), "float32"))
    ShapedArray(float32[3,2])
    """
    if isinstance(explicit_mesh_axis, ShapedArray | UserType):
        axis, aval = aval, explicit_mesh_axis  # after the name
    return batched_aval(aval, size, axis)


def is_constant_dim(d: object) -> bool:
    """Whether a dimension is a number; False for expressions.

    Args:
        d: one entry of a shape.

    >>> import tracebridge as tb
    >>> tb.core.is_constant_dim(3), tb.core.is_constant_dim(tb.export.symbolic_shape("b")[0])
    (True, False)
    """
    return not is_symbolic_dim(d)


def is_constant_shape(shape: Sequence[object]) -> bool:
    """Whether all dimensions of a shape are numbers.

    Args:
        shape: a shape.

    >>> import tracebridge as tb
    >>> tb.core.is_constant_shape((2, 3))
    True
    """
    return is_static(shape)


def call_impl(f: Any, *args: Any, **params: object) -> Any:
    """Call a wrapped function of ``tracebridge.extend.linear_util``.

    Args:
        f: what ``wrap_init`` gives.
        *args: its arguments.
        **params: accepted.

    >>> from tracebridge.extend import core, linear_util as lu
    >>> core.call_impl(lu.wrap_init(lambda x: x + 1), 1)
    2
    """
    del params
    return f.call_wrapped(*args)


def array_types() -> set[type]:
    """The types of NumPy that can be operands."""
    return {np.ndarray, *[np.dtype(c).type for c in np.typecodes["AllInteger"] + "?efdFD"]}
