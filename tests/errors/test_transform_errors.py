"""Whole messages of the errors of transformations: what, where, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors

A = np.ones((2, 3), np.float32)


def loss(w: Any, x: Any) -> Any:
    """A scalar."""
    return tnp.sum(w * x)


def step(params: Any, n: Any) -> Any:
    """A function with something to be static."""
    del n
    return params


def branch(flag: Any) -> Any:
    """Python control flow."""
    return 1 if flag else 2


CASES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: tb.grad(loss)({"k": 1}, 2.0),
        errors.GradientTypeError,
        """\
grad(loss): argument w['k'] is i32[]
    expected: a real or complex dtype
    way out: convert it to a float dtype, or pass allow_int=True, or use vjp
    see https://tracebridge.readthedocs.io/en/latest/errors/GradientTypeError.html""",
    ),
    (
        lambda: tb.value_and_grad(tnp.sin)(A),
        errors.GradientTypeError,
        """\
Gradient only defined for scalar-output functions. value_and_grad(sin): the function returned an \
array f32[2,3]
    way out: reduce the result (sum, mean), or use jacrev or vjp
    see https://tracebridge.readthedocs.io/en/latest/errors/GradientTypeError.html""",
    ),
    (
        lambda: tb.grad(loss, argnums=1)(1.0),
        errors.ArgumentSpecError,
        """\
grad(loss): argnums=1 needs at least 2 positional arguments, got 1
    way out: give the arguments to differentiate by position, not by keyword
    see https://tracebridge.readthedocs.io/en/latest/errors/ArgumentSpecError.html""",
    ),
    (
        lambda: tb.jvp(loss, (1.0, 2), (1.0, 2)),
        errors.DtypeMismatchError,
        """\
jvp(loss): tangents[1] has dtype int32, but primals[1] has dtype int32, whose tangents have \
dtype float0
    way out: numpy.zeros(shape, tracebridge.float0) is the tangent of integers and booleans
    see https://tracebridge.readthedocs.io/en/latest/errors/DtypeMismatchError.html""",
    ),
    (
        lambda: tb.vjp(tnp.sin, A)[1](A[0]),
        errors.ShapeMismatchError,
        """\
the pullback of sin: cotangent has shape (3,), but result has shape (2, 3)
    way out: give the cotangent the shapes of the result
    see https://tracebridge.readthedocs.io/en/latest/errors/ShapeMismatchError.html""",
    ),
    (
        lambda: tb.vjp(lambda x: {"a": x}, 1.0)[1]({"b": 1.0}),
        errors.TreeMismatchError,
        """\
the pullback of <lambda>: the structure of cotangent does not fit result: Dict key mismatch: \
cotangent is a dict with keys ['b'], result is a dict with keys ['a']
    way out: give cotangent the containers and keys of result
    see https://tracebridge.readthedocs.io/en/latest/errors/TreeMismatchError.html""",
    ),
    (
        lambda: tb.linear_transpose(tnp.sin, 1.0)(1.0),
        errors.LinearityError,
        """\
linear_transpose(sin): the function is not linear in its arguments, because of sin
    way out: use vjp, which linearizes the function first
    see https://tracebridge.readthedocs.io/en/latest/errors/LinearityError.html""",
    ),
    (
        lambda: tb.vmap(loss)(A, A.T),
        errors.AxisSizeError,
        """\
vmap got inconsistent sizes for array axes to be mapped: those of vmap(loss)
      argument w has size 2 at axis 0 of f32[2,3]
      argument x has size 3 at axis 0 of f32[3,2]
    way out: map axes of one size, or give in_axes=None for arguments that are not mapped
    see https://tracebridge.readthedocs.io/en/latest/errors/AxisSizeError.html""",
    ),
    (
        lambda: tb.vmap(loss, in_axes=(0, 5))(A, A),
        errors.AxisSpecError,
        """\
vmap(loss): axis 5 of argument x is to be mapped, but it is f32[2,3]
    expected: an axis from -2 to 1
    way out: give in_axes=None for arguments that are not mapped
    see https://tracebridge.readthedocs.io/en/latest/errors/AxisSpecError.html""",
    ),
    (
        lambda: tb.jit(step, static_argnums=1)(1.0, [3]),
        errors.NonHashableStaticArgumentError,
        """\
jit(step): argument 1 ('n') is static, so it must be hashable; got a value of type list
    way out: pass a tuple instead of a list, a frozen dataclass instead of a dict, or do not \
make the argument static
    see https://tracebridge.readthedocs.io/en/latest/errors/NonHashableStaticArgumentError.html""",
    ),
    (
        lambda: tb.jit(step)({"a": "text"}, 1),
        errors.UnsupportedDtypeError,
        """\
jit(step): argument params['a'] is 'text' of type str; expected arrays, numbers, and trees of them
    way out: mark it static (static_argnums, static_argnames) if it is a constant
    see https://tracebridge.readthedocs.io/en/latest/errors/UnsupportedDtypeError.html""",
    ),
    (
        lambda: tb.jit(branch)(True),
        errors.TracerBoolConversionError,
        """\
Abstract tracer value where a concrete value is needed: got a traced value of type bool[]. \
Attempted boolean conversion, as in `if x:` or `x and y`.
    where: it depends on the value of the argument flag of branch
    way out: use tb.numpy.where, tb.lax.cond, tb.lax.while_loop or tb.numpy.logical_and, or make \
the argument static (static_argnums)
    see https://tracebridge.readthedocs.io/en/latest/errors/TracerBoolConversionError.html""",
    ),
    (
        lambda: tb.jit(step).lower(A, 1).compile()(A[0], 1),
        errors.ArgumentMismatchError,
        """\
the compiled program step: argument params is f32[3], but the program was compiled for f32[2,3]
    way out: compile it for these arguments too, or call the jitted function
    see https://tracebridge.readthedocs.io/en/latest/errors/ArgumentMismatchError.html""",
    ),
    (
        lambda: tb.jit(step, donate_argnums=0)(*[tnp.ones(2)] * 2),
        errors.DonationError,
        """\
step: argument 0 is donated and is also argument 1
    way out: pass a copy: x.copy()
    see https://tracebridge.readthedocs.io/en/latest/errors/DonationError.html""",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), CASES)
def test_message(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    """The whole text is the recorded one."""
    with pytest.raises(error) as caught:
        call()

    assert type(caught.value) is error
    assert text == str(caught.value)
