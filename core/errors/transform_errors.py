"""Errors about transformations: differentiation, vectorization, named axes, trees, rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError


class GradientTypeError(TracebridgeError, TypeError, ValueError):
    """A function or argument cannot be differentiated as asked (dtype, not a scalar, a loop).

    A function cannot be differentiated as asked: its result is not a scalar, or an argument or
    result is an integer, a boolean, or complex without `holomorphic=True`. Or reverse mode
    reached a `while_loop`: it would have to keep values of an unknown number of steps.

    Wrong::

        tb.grad(lambda x: x * x)(tnp.ones(3))

    Right::

        tb.grad(lambda x: (x * x).sum())(tnp.ones(3))

    Integers: pass `3.0` instead of `3`. All derivatives of a vector function: `tb.jacobian`. A
    loop: `scan`, or `fori_loop` between Python integers, or forward mode (`tb.jvp`, `tb.jacfwd`).
    """


class ArgumentSpecError(TracebridgeError, ValueError, TypeError):
    """An option names arguments that the function or the call does not have (argnums, ...).

    `static_argnums`, `donate_argnums`, `argnums` or the like names an argument that the function,
    or the call, does not have; or one argument is both static and donated.

    Wrong::

        tb.grad(lambda x, y: x * y, argnums=1)(1.0, y=2.0)

    Right::

        tb.grad(lambda x, y: x * y, argnums=1)(1.0, 2.0)
    """


class FormatFieldError(ArgumentSpecError, KeyError, IndexError):
    """A format string names values that are not given.

    The format string of `debug.print` or `debug.log` has a field for which no value was given:
    `{x}` without an argument `x`, or more `{}` than values.

    Wrong::

        tb.debug.print("loss is {loss}", 3.0)

    Right::

        tb.debug.print("loss is {loss}", loss=3.0)
    """


class AxisSpecError(TracebridgeError, ValueError, TypeError):
    """An axis specification (in_axes, out_axes, in_specs, ...) does not fit the arguments.

    `in_axes`, `out_axes` or a similar argument does not fit the arguments: wrong length, wrong
    structure, or an axis that an array does not have.

    Wrong::

        tb.vmap(lambda x, y: x + y, in_axes=(0,))(tnp.ones(3), tnp.ones(3))

    Right::

        tb.vmap(lambda x, y: x + y, in_axes=(0, 0))(tnp.ones(3), tnp.ones(3))
    """


class NoMeshError(AxisSpecError, RuntimeError):
    """A `PartitionSpec` is given where no mesh is in force, whose axes it could name.

    A `PartitionSpec` names axes of the mesh that `set_mesh` puts in force. Without one it says
    nothing about devices.

    Wrong::

        lax.with_sharding_constraint(tnp.ones(4), tb.P("x"))

    Right::

        mesh = tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Auto)
        with tb.set_mesh(mesh):
            lax.with_sharding_constraint(tnp.ones(4), tb.P("x"))
    """


class ShardingTypeError(TracebridgeError, ValueError, TypeError):
    """Operands are split over explicit axes of a mesh in ways that leave the result undecided.

    The types of arrays say how they are split over axes of the type `Explicit`. An operation got
    operands whose splits do not fit each other, or its result could be split in several ways, or
    only after an exchange between devices, which is never done unasked.

    Wrong::

        mesh = tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Explicit)
        with tb.set_mesh(mesh):
            by_rows = tb.device_put(tnp.ones((2, 2)), tb.P("x"))
            by_columns = tb.device_put(tnp.ones((2, 2)), tb.P(None, "x"))
            by_columns @ by_rows

    Right::

        mesh = tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Explicit)
        with tb.set_mesh(mesh):
            by_rows = tb.device_put(tnp.ones((2, 2)), tb.P("x"))
            by_columns = tb.device_put(tnp.ones((2, 2)), tb.P(None, "x"))
            tnp.matmul(by_columns, by_rows, out_sharding=tb.P("x", None))
    """


class ShardingAssertionError(ShardingTypeError, AssertionError):
    """An array is not split as `with_sharding_constraint` says, over explicit axes of a mesh.

    Over axes of the type `Explicit` types say how arrays are split, and `with_sharding_constraint`
    checks that they do. It moves nothing; `reshard` does.

    Wrong::

        mesh = tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Explicit)
        with tb.set_mesh(mesh):
            lax.with_sharding_constraint(tnp.ones(4), tb.P("x"))

    Right::

        mesh = tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Explicit)
        with tb.set_mesh(mesh):
            tb.sharding.reshard(tnp.ones(4), tb.P("x"))
    """


class AxisSizeError(TracebridgeError, ValueError):
    """Axes that are mapped together have different sizes, or no size can be found.

    Axes that are mapped together have different sizes, or no argument has a mapped axis that
    would tell the size.

    Wrong::

        tb.vmap(lambda x, y: x + y)(tnp.ones(3), tnp.ones(4))

    Right::

        tb.vmap(lambda x, y: x + y, in_axes=(0, None))(tnp.ones(3), tnp.ones(4))
    """


class UnboundAxisNameError(TracebridgeError, NameError):
    """A collective names an axis that no surrounding transformation binds.

    A collective operation names an axis, but no transformation around it gives an axis that name.
    The message lists the names that exist there.

    Wrong::

        tb.vmap(lambda x: x - tb.lax.pmean(x, "batch"))(tnp.arange(3.0))

    Right::

        tb.vmap(lambda x: x - tb.lax.pmean(x, "batch"), axis_name="batch")(tnp.arange(3.0))
    """

    def __init__(self, axis_name: Any = "", *, call: str = "", bound: Sequence[Any] = ()) -> None:
        names = ", ".join(map(repr, bound)) if bound else "none"
        super().__init__(
            f"{call + ': ' if call else ''}unbound axis name: {axis_name}; "
            f"axis names bound here: {names}",
            hint="call it inside vmap, pmap or shard_map with that axis_name",
        )


class TreeMismatchError(TracebridgeError, ValueError, TypeError):
    """Two pytrees that must have the same structure do not.

    Two trees of lists, tuples, dicts and registered classes must have the same structure and do
    not. The message names the first place where they differ.

    Wrong::

        tb.lax.scan(lambda carry, x: ((carry, x), x), 0.0, tnp.arange(3.0))

    Right::

        tb.lax.scan(lambda carry, x: (carry + x, x), 0.0, tnp.arange(3.0))
    """


class CustomRuleError(TracebridgeError, TypeError, ValueError):
    """A custom derivative or batching rule returned something of the wrong form.

    The rule of a function with a rule of its own takes or returns something of the wrong form.

    Wrong::

        @tb.custom_vjp
        def f(x):
            return x * 2

        f.defvjp(lambda x: (f(x), None), lambda res, ct: ct * 2)  # must be a tuple
        tb.grad(f)(1.0)

    Right::

        @tb.custom_vjp
        def f(x):
            return x * 2

        f.defvjp(lambda x: (f(x), None), lambda res, ct: (ct * 2,))
        tb.grad(f)(1.0)
    """


class UndefinedRuleError(CustomRuleError, AttributeError):
    """A function that is to have a rule of its own was called before it got one.

    A function was set up to have a rule of its own (`custom_jvp`, `custom_vjp`, `custom_vmap`,
    `custom_dce`, `custom_transpose`) and called before the rule was given.

    Wrong::

        @tb.custom_jvp
        def f(x):
            return x**2

        f(3.0)

    Right::

        @tb.custom_jvp
        def f(x):
            return x**2

        @f.defjvp
        def f_jvp(primals, tangents):
            (x,), (t,) = primals, tangents
            return f(x), 2 * x * t

        f(3.0)
    """


class ClosedOverValueError(CustomRuleError, UnexpectedTracerError):
    """A function with a rule of its own, or the rule, uses a traced value it cannot reach.

    Rules work for arguments: what is differentiated or mapped must be one of them.

    A function with a rule of its own (`custom_jvp`, `custom_vjp`, `custom_vmap`, `custom_dce`),
    or the rule, uses a traced value of the functions around it that it cannot reach: one that is
    differentiated or mapped, one of a trace that has ended when the rule runs, or a traced value
    among the arguments of `nondiff_argnums`. Rules work for arguments: pass the value as one.

    Wrong::

        def scaled(k):
            @tb.custom_jvp
            def f(x):
                return k * x

            f.defjvp(lambda primals, tangents: (f(*primals), k * tangents[0]))
            return f(2.0)

        tb.grad(scaled)(3.0)

    Right::

        @tb.custom_jvp
        def f(k, x):
            return k * x

        @f.defjvp
        def f_jvp(primals, tangents):
            (k, x), (k_dot, x_dot) = primals, tangents
            return f(k, x), k * x_dot + k_dot * x

        tb.grad(f)(3.0, 2.0)
    """

    def __init__(self, message: str = "", **fields: str) -> None:
        TracebridgeError.__init__(self, message, **fields)


class MissingRuleError(TracebridgeError, TypeError, NotImplementedError):
    """A primitive defines no rule for a transformation or platform.

    An operation has no rule for the transformation that reached it: it has no derivative, cannot
    be transposed or batched, or has no lowering for the platform.

    Wrong::

        def draw(high):
            return lax.rng_uniform(0.0, high, (2,))

        tb.vmap(draw)(tnp.ones(3))  # hidden state: no mapped form would equal a loop

    Right::

        tnp.ones(3)[:, None] * lax.rng_uniform(0.0, 1.0, (3, 2))
    """

    def __init__(
        self, primitive: str = "", rule: str = "", *, message: str = "", hint: str = ""
    ) -> None:
        self.primitive = primitive
        self.rule = rule
        super().__init__(
            message or f"{rule[:1].upper()}{rule[1:]} rule for {primitive!r} not implemented",
            hint=hint
            or "define the rule on the primitive, or wrap the computation in "
            "tb.custom_jvp or tb.custom_vjp",
        )


class LinearityError(TracebridgeError, TypeError, NotImplementedError):
    """A function that must be linear in its arguments is not.

    A function must be linear in its arguments (`tb.linear_transpose`, a custom linear solve) and
    is not.

    Wrong::

        tb.linear_transpose(lambda x: x * x, 1.0)(1.0)

    Right::

        tb.linear_transpose(lambda x: 3.0 * x, 1.0)(1.0)

    To linearize first use `tb.vjp`.
    """

    def __init__(self, message: str = "", *, primitive: str = "", **fields: str) -> None:
        self.primitive = primitive
        super().__init__(message, **fields)


class JaxprTypeError(TracebridgeError, TypeError):
    """A Jaxpr is not well formed; found by the checks that `enable_checks` turns on.

    A Jaxpr is not well formed: a variable is used before its definition, or types do not fit.
    Somebody built or changed it by hand, or a rule of a primitive returned something wrong. The
    checks that `enable_checks` turns on find it.

    Wrong::

        def f(x):
            y = tb.lax.sin(x)
            y.aval = tb.typeof(tnp.ones(3))  # the value is still a scalar
            return y

        with tb.enable_checks():
            tb.make_jaxpr(f)(1.0)

    Right::

        def f(x):
            return tb.lax.broadcast(tb.lax.sin(x), (3,))

        with tb.enable_checks():
            tb.make_jaxpr(f)(1.0)
    """


class EffectError(TracebridgeError, ValueError, NotImplementedError):
    """A transformation met a callback, or another effect, that it cannot carry out there.

    A transformation met a callback, or another effect, that it cannot carry out: the derivative
    of a callback, an ordered callback under `vmap`, a callback with side effects in a branch that
    `vmap` runs for all elements or in a checkpoint that is computed again.

    Wrong::

        def cube(x):
            return tb.pure_callback(lambda v: v**3, tb.ShapeDtypeStruct((), "float32"), x)

        tb.grad(cube)(2.0)

    Right::

        @tb.custom_jvp
        def cube(x):
            return tb.pure_callback(lambda v: v**3, tb.ShapeDtypeStruct((), "float32"), x)

        @cube.defjvp
        def cube_jvp(primals, tangents):
            (x,), (t,) = primals, tangents
            return cube(x), 3 * x**2 * t

        tb.grad(cube)(2.0)
    """


class KeyReuseError(TracebridgeError, TypeError):
    """A random key was consumed twice; found by the key reuse checker.

    A random key was used twice: both results would be the same numbers. The option
    `debug_key_reuse` asked for an error.

    Wrong::

        with tb.debug_key_reuse():
            key = tb.random.key(0)
            x = tb.random.normal(key)
            y = tb.random.normal(key)  # equals x

    Right::

        with tb.debug_key_reuse():
            key = tb.random.key(0)
            first, second = tb.random.split(key)
            x = tb.random.normal(first)
            y = tb.random.normal(second)
    """
