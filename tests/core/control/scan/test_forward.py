"""The function scan: arguments, types of the carry, messages."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tracebridge.core.config.option_scopes import disable_jit
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    AxisSizeError,
    TreeMismatchError,
)

scan = tb.lax.scan
THREE = np.arange(3, dtype=np.float32)


def running_sum(c, x):
    return c + x, c


def test_no_steps():
    """A loop of length 0 gives the initial carry and empty ys."""
    carry, ys = scan(running_sum, 1.5, tnp.zeros((0, 2))[:, 0])

    assert float(carry) == 1.5
    assert ys.shape == (0,)
    assert tb.grad(lambda x: scan(running_sum, 1.5, x)[0])(tnp.zeros(0)).shape == (0,)


def test_length_alone():
    """Without xs the length says how often the body runs."""
    carry, ys = scan(lambda c, _: (c * 2, None), 1, length=5)

    assert int(carry) == 32
    assert ys is None


def test_structure_of_results():
    """Carry and ys keep their trees; the body sees the tree of xs without the leading axis."""
    seen = []

    def body(c, x):
        seen.append((c["n"].shape, x[0].shape, x[1]["k"].shape))
        return {"n": c["n"] + x[0]}, [x[1]["k"], (c["n"],)]

    carry, ys = scan(body, {"n": tnp.zeros(2)}, (tnp.ones((3, 2)), {"k": THREE}))

    assert {((2,), (2,), ())} == set(seen)
    assert carry["n"].tolist() == [3.0, 3.0]
    assert [
        ys[0].tolist(),
        (ys[1][0].tolist(),),
    ] == [[0.0, 1.0, 2.0], ([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]],)]


def test_pairs_are_of_the_kind_that_the_body_returns():
    """A list or a named tuple comes back as one, traced or step by step."""

    class Named(NamedTuple):
        carry: Any
        y: Any

    def kinds(pair):
        return type(tb.jit(lambda: scan(lambda c, x: pair((c + x, x)), 0.0, THREE))())

    assert [tuple, list, Named] == [kinds(pair) for pair in (tuple, list, Named._make)]
    with disable_jit():
        assert list is kinds(list)
    values = scan(lambda c, x: [c + x, [x]], 0.0, THREE)
    assert (3.0, [0.0, 1.0, 2.0]) == (float(values[0]), values[1][0].tolist())


def test_python_number_takes_the_dtype_of_the_loop():
    """A weakly typed start is promoted to what the body returns."""
    carry, ys = scan(running_sum, 0, THREE)

    assert (np.float32, np.float32) == (carry.dtype, ys.dtype)
    assert not carry.aval.weak_type


def test_weak_type_stays_if_the_body_keeps_it():
    """Only Python numbers in, only Python numbers combined: the result is weakly typed."""
    carry, ys = scan(lambda c, _: (c * 2, c), 1.0, length=3)

    assert carry.aval.weak_type
    assert ys.aval.weak_type


def test_array_start_is_not_promoted():
    """An int array cannot carry floats: the message shows both types."""
    with pytest.raises(DtypeMismatchError) as caught:
        scan(running_sum, np.int32(0), THREE)

    assert str(caught.value).splitlines()[:3] == [
        "scan: the carry changes its type from one step to the next",
        "             given  returned",
        "    * carry  i32[]  f32[]     the dtypes differ",
    ]


def test_shape_of_the_carry():
    """The message lists all carries side by side and marks those that change."""
    with pytest.raises(ShapeMismatchError) as caught:
        scan(
            lambda c, x: ({"a": c["a"] + x, "b": tnp.zeros(2)}, None),
            {"a": 0.0, "b": tnp.zeros(3)},
            THREE,
        )

    assert str(caught.value).splitlines()[1:4] == [
        "                  given   returned",
        "      carry['a']  f32[]   f32[]",
        "    * carry['b']  f32[3]  f32[2]    the shapes differ",
    ]


def test_structure_of_the_carry():
    """A carry of another structure is refused, with both structures."""
    with pytest.raises(TreeMismatchError, match="the carry changes its structure") as caught:
        scan(lambda c, x: ((c, c), None), 0.0, THREE)

    assert "returned carry PyTreeDef((*, *))" in str(caught.value)
    assert "given carry    PyTreeDef(*)" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "got"),
    [
        (lambda c, x: c, r"an array f32\[\]"),
        (lambda c, x: (c, c, c), "a tuple of 3"),
        (lambda c, x: None, "None"),
    ],
)
def test_body_returns_a_pair(body, got):
    """Anything but a pair is refused."""
    with pytest.raises(ArgumentSpecError, match=f"returned {got}, expected a pair"):
        scan(body, 0.0, THREE)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"xs": (THREE, np.zeros(4))}, r"disagree: xs\[0\] has 3, xs\[1\] has 4"),
        ({"xs": THREE, "length": 4}, "disagree: xs has 3, length is 4"),
        ({"xs": None}, "neither arrays to loop over .* nor a length"),
        ({"xs": {"a": 3.0}}, r"xs\['a'\] is a scalar"),
        ({"length": -1}, "length is -1, expected at least 0"),
    ],
)
def test_number_of_steps(kwargs, message):
    """The number of steps must follow from the arguments, without contradiction."""
    with pytest.raises(AxisSizeError, match=message):
        scan(lambda c, x: (c, None), 0.0, **kwargs)


def test_wrong_arguments():
    """Each wrong argument is named."""
    with pytest.raises(ArgumentSpecError, match="f is 3 of type int, expected a function"):
        scan(3, 0.0, THREE)
    with pytest.raises(ArgumentSpecError, match="unroll is -1, expected"):
        scan(running_sum, 0.0, THREE, unroll=-1)
    with pytest.raises(ConcretizationTypeError, match="scan needs unroll as a number or a bool"):
        tb.jit(lambda n: scan(running_sum, 0.0, THREE, unroll=n))(2)
    with pytest.raises(ArgumentSpecError, match=r"length is 2\.5, expected an integer"):
        scan(running_sum, 0.0, length=2.5)
    with pytest.raises(UnsupportedDtypeError, match=r"init\['a'\] is 'x' of type str"):
        scan(running_sum, {"a": "x"}, THREE)
    with pytest.raises(UnsupportedDtypeError, match="the returned y is 'x' of type str"):
        scan(lambda c, x: (c, "x"), 0.0, THREE)


@pytest.mark.parametrize("length", [2.0, np.float32(2)], ids=repr)
def test_whole_floats_are_lengths(length):
    """As from a quotient of two numbers of steps."""
    carry, ys = scan(lambda c, _: (c + 1, c), 0, length=length)

    assert (2, [0, 1]) == (int(carry), ys.tolist())


def test_length_is_static():
    """A traced length is refused, with the way out."""
    with pytest.raises(ConcretizationTypeError, match="loop with fori_loop or while_loop"):
        tb.jit(lambda n: scan(lambda c, x: (c, None), 0.0, length=n))(3)


def test_body_is_traced_once_per_signature():
    """Repeated eager calls neither trace nor compile again, even with a new closure each time."""
    traced = []

    def body(c, x):
        traced.append(1)
        return c + x, None

    for _ in range(3):
        scan(body, 0.0, THREE)
    programs = set()
    for _ in range(3):
        jaxpr = tb.make_jaxpr(lambda x: scan(lambda c, y: (c * y, None), 0.5, x))(THREE).jaxpr
        programs.add(equations_of(jaxpr, "scan")[0].params["jaxpr"])

    assert len(traced) == 1
    assert len(programs) == 1


def test_python_loop_if_jit_is_disabled():
    """With disable_jit the body runs on numbers."""
    seen = []

    def body(c, x):
        seen.append(float(c))
        return c + x, {"twice": 2 * x}

    with disable_jit():
        carry, ys = scan(body, 0.0, THREE, reverse=True)

    assert seen == [0.0, 2.0, 3.0]
    assert float(carry) == 3.0
    assert ys["twice"].tolist() == [0.0, 2.0, 4.0]
    with disable_jit(), pytest.raises(ArgumentSpecError, match="scan: no step to take"):
        scan(body, 0.0, tnp.zeros(0))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "complex64"])
def test_dtypes(dtype):
    """Carries and ys of any dtype pass through the compiled loop."""
    values = tnp.asarray(np.array([1, 0, 1])).astype(dtype)

    carry, ys = scan(lambda c, x: (x, c), values[0], values, reverse=True)

    assert str(values.dtype) == str(carry.dtype) == str(ys.dtype)
    assert values[0] == carry
    # In reverse: ys[2] is the start, ys[1] the last x, ys[0] the one before.
    np.testing.assert_array_equal(np.asarray(values)[[1, 2, 0]], np.asarray(ys))


def test_loop_with_many_axes():
    """Slices are taken along the leading axis only."""
    x = tnp.asarray(np.random.randn(3, 2, 4, 5).astype(np.float32))

    _, ys = scan(lambda c, s: (c, s.T), 0.0, x)

    np.testing.assert_array_equal(np.asarray(x).transpose(0, 3, 2, 1), np.asarray(ys))
