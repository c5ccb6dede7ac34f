"""Errors about tracers: a concrete value was needed, or a tracer outlived its trace.

A tracer is an opaque object here. Its description uses two optional attributes: `aval` (text of
its type) and `describe_origin()` (text that says which argument or line made it).
"""

from __future__ import annotations

from typing import Any

from tracebridge.core.errors.base import TracebridgeError


def describe_tracer(tracer: object) -> str:
    """Return e.g. "a traced value of type f32[3]" for a message."""
    aval = getattr(tracer, "aval", None)
    return "a traced value" if aval is None else f"a traced value of type {aval.str_short()}"


def describe_origin(tracer: object) -> str:
    """Return where the tracer comes from, or "" if it does not know."""
    describe = getattr(tracer, "describe_origin", None)
    return "" if describe is None else str(describe())


def describe_need(tracer: object) -> str:
    """Return what the value of the tracer depends on, or "" if it does not know."""
    describe = getattr(tracer, "describe_need", None)
    return describe_origin(tracer) if describe is None else str(describe())


def _or_static(tracer: object, how: str) -> str:
    """A further way out, where the value comes from an argument, or may come from one."""
    needs_arguments = getattr(tracer, "needs_arguments", None)
    if needs_arguments is not None and not needs_arguments():
        return ""
    return f", or make the argument static{how}"


def describe_trace(tracer: object) -> str:
    """Return what was traced when the tracer was made, e.g. "grad(loss)", or ""."""
    label = getattr(getattr(tracer, "_trace", None), "label", "")
    if label:
        return str(label)
    # The values inside belong to the transformations around.
    for name in ("primal", "tangent", "value"):
        inner = getattr(tracer, name, None)
        found = "" if inner is None else describe_trace(inner)
        if found:
            return found
    return ""


class UnexpectedTracerError(TracebridgeError, TypeError):
    """A tracer was used after the function that made it had finished being traced.

    `function` names the traced function, `used_by` what used the tracer afterwards. A bare message
    is accepted too.

    A value that existed only while a function was being traced was stored somewhere (a global, an
    attribute, a list, a closure) and used after the tracing ended. It stands for no number any
    more.

    Wrong::

        seen = []

        @tb.jit
        def f(x):
            seen.append(x)  # keeps the traced value
            return x + 1

        f(1.0)
        tnp.sin(seen[0])

    Right::

        @tb.jit
        def f(x):
            return x + 1, x  # hand it out as a result

        y, seen = f(1.0)
        tnp.sin(seen)

    `with tb.checking_leaks():` reports the leak at the end of the tracing, close to its cause.
    """

    def __init__(
        self, message: str = "", *, tracer: Any = None, function: str = "", used_by: str = ""
    ) -> None:
        what = "a traced value" if tracer is None else describe_tracer(tracer)
        function = function or describe_trace(tracer)
        during = f" while {function} was traced" if function else ""
        by = f" by {used_by}" if used_by else ""
        super().__init__(
            message
            or f"Encountered an unexpected tracer: {what} was made{during}, and is used{by} after "
            "that tracing ended: it has leaked",
            where="" if tracer is None else describe_origin(tracer),
            hint="return the value from the traced function instead of storing it in a global, "
            "an attribute, a list or a closure",
        )


class ConcretizationTypeError(TracebridgeError, TypeError):
    """A concrete value was needed where only a tracer (shape and dtype) is known.

    `context` says what needed it.

    Something needs the value of an argument while the function is traced, when only its shape and
    dtype are known: a conversion with `float()` or `int()`, a size, an option.

    Wrong::

        @tb.jit
        def f(x):
            return float(x) + 1

        f(1.0)

    Right::

        @tb.jit
        def f(x):
            return x.astype(float) + 1

        f(1.0)

    If the value decides the structure of the program, make the argument static: `tb.jit(f,
    static_argnums=0)`. It is then compiled once for each value.
    """

    def __init__(self, tracer: Any, context: str = "", *, hint: str = "") -> None:
        needed = f" {context}" if context else ""
        super().__init__(
            "Abstract tracer value where a concrete value is needed: got "
            f"{describe_tracer(tracer)}.{needed}",
            where=describe_need(tracer),
            hint=hint
            or "use operations that work on traced values"
            + _or_static(tracer, " (static_argnums, static_argnames)"),
        )


class TracerBoolConversionError(ConcretizationTypeError):
    """Python asked for the truth of a tracer: `if`, `while`, `and`, `or`, `not`, `assert`.

    Python needs to know whether a traced value is true: `if x`, `while x`, `x and y`, `not x`,
    `assert x`, `max(x, y)`. While a function is traced the value is not known.

    Wrong::

        @tb.jit
        def relu(x):
            if x > 0:
                return x
            return 0.0

        relu(1.0)

    Right::

        @tb.jit
        def relu(x):
            return tnp.where(x > 0, x, 0.0)

        relu(1.0)

    For larger branches use `tb.lax.cond`, for loops `tb.lax.while_loop`. Replace `a < x < b` by
    `(a < x) & (x < b)`.
    """

    def __init__(self, tracer: Any) -> None:
        super().__init__(
            tracer,
            "Attempted boolean conversion, as in `if x:` or `x and y`.",
            hint="use tb.numpy.where, tb.lax.cond, tb.lax.while_loop or tb.numpy.logical_and"
            + _or_static(tracer, " (static_argnums)"),
        )


_BY_TENSORFLOW = "call it by tracebridge.tf.call_tf(function)(x); or "
_BY_LIBRARY = {"TensorFlow": _BY_TENSORFLOW, "Keras": _BY_TENSORFLOW}


class TracerArrayConversionError(TracebridgeError, TypeError):
    """NumPy asked for the values of a tracer.

    A NumPy function got a traced value. NumPy computes on numbers at once, but a traced value has
    none yet.

    Wrong::

        import numpy as np

        @tb.jit
        def f(x):
            return np.sin(x)

        f(1.0)

    Right::

        @tb.jit
        def f(x):
            return tnp.sin(x)

        f(1.0)

    NumPy code without a counterpart runs through `tb.pure_callback`.
    """

    def __init__(
        self, tracer: Any, function: str = "", *, library: str = "", hint: str = ""
    ) -> None:
        conversion = "The numpy.ndarray conversion __array__() was called on"
        called = f"{function} got" if function else conversion
        library = library or ("PyTorch" if function else "NumPy")
        super().__init__(
            f"{called} {describe_tracer(tracer)}: {library} works on concrete values only",
            where=describe_need(tracer),
            hint=hint
            or _BY_LIBRARY.get(library, "")
            + "call the function of the same name in tracebridge.numpy, pass tensors that the "
            "function uses as arguments, or run other code outside the traced program by "
            "tb.pure_callback",
        )


class TracerIntegerConversionError(ConcretizationTypeError):
    """Python asked for the integer value of a tracer, e.g. to index a list or for `range`.

    A traced value was used where Python needs an integer: to index a list, in `range`, as a size.

    Wrong::

        table = [1.0, 2.0, 3.0]

        @tb.jit
        def f(i):
            return table[i]

        f(1)

    Right::

        table = tnp.array([1.0, 2.0, 3.0])

        @tb.jit
        def f(i):
            return table[i]

        f(1)

    For sizes and `range` make the argument static (`static_argnums`), or loop with
    `tb.lax.fori_loop`.
    """

    def __init__(self, tracer: Any) -> None:
        TracebridgeError.__init__(
            self,
            f"__index__() was called on {describe_tracer(tracer)}: a Python integer is needed, "
            "as in range(x), a_list[x] or a shape",
            where=describe_need(tracer),
            hint="make the argument static (static_argnums), index an array instead of a list, "
            "or loop with tb.lax.fori_loop",
        )


class NonConcreteBooleanIndexError(TracebridgeError, IndexError):
    """A traced boolean mask was used as an index: the shape of the result would depend on it.

    A traced array was indexed with a traced mask. The number of selected elements, and so the
    shape of the result, would depend on values that are not known.

    Wrong::

        @tb.jit
        def positive_sum(x):
            return x[x > 0].sum()

        positive_sum(tnp.ones(3))

    Right::

        @tb.jit
        def positive_sum(x):
            return tnp.where(x > 0, x, 0).sum()

        positive_sum(tnp.ones(3))

    `tnp.nonzero(x, size=n)` gives the indices when you know how many there are at most.
    """

    def __init__(self, tracer: Any) -> None:
        super().__init__(
            f"a boolean index must be concrete, got {describe_tracer(tracer)}: the number of "
            "selected elements, and with it the shape of the result, is not known",
            where=describe_need(tracer),
            hint="use tb.numpy.where(mask, x, other), or pass where=mask to the reduction",
        )


class NonHashableStaticArgumentError(TracebridgeError, ValueError):
    """A static argument is not hashable, so that it can't be part of a cache key.

    An argument is static (`static_argnums`, `static_argnames`), so its value is part of the key
    under which the compiled program is kept. Lists, dicts and arrays cannot be hashed.

    Wrong::

        f = tb.jit(lambda shape, x: x.reshape(shape), static_argnums=0)
        f([2, 3], tnp.arange(6))

    Right::

        f = tb.jit(lambda shape, x: x.reshape(shape), static_argnums=0)
        f((2, 3), tnp.arange(6))
    """

    def __init__(self, value: Any = None, *, argument: str = "", call: str = "") -> None:
        at = f"argument {argument}" if argument else "a static argument"
        super().__init__(
            f"{call or 'jit'}: {at} is static, so it must be hashable; "
            f"got a value of type {type(value).__name__}",
            hint="pass a tuple instead of a list, a frozen dataclass instead of a dict, "
            "or do not make the argument static",
        )
