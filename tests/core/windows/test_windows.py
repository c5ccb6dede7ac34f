"""Reductions by computations and over windows agree with loops in NumPy, and all rules agree."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.config.scopes import scope
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import EffectError, TreeMismatchError
from tracebridge.core.windows.geometry import checked_windows
from tracebridge.testing import check_rules

Host = np.ndarray[Any, Any]
CASES: dict[str, tuple[Any, ...]] = {
    "pooling": ((1, 2, 2), (1, 2, 2), "VALID", None, None),
    "overlapping": ((1, 3, 3), (1, 2, 1), "SAME", None, None),
    "same_lower": ((2, 2, 1), (1, 1, 3), "SAME_LOWER", None, None),
    "dilated": ((2, 2, 3), None, [(0, 1), (0, 1), (1, 1)], (1, 2, 1), (1, 1, 2)),
    "cut": ((1, 2, 2), None, [(0, 0), (-1, 1), (1, -2)], None, None),
}
COMPUTATIONS: dict[str, tuple[Any, float, Any]] = {
    "sum": (lax.add, 0.0, np.sum),
    "max": (lax.max, -np.inf, np.max),
    "min": (lax.min, np.inf, np.min),
    "prod": (lax.mul, 1.0, np.prod),
    "logaddexp": (tnp.logaddexp, -np.inf, np.logaddexp.reduce),
}


def sample(*shape: int, seed: int = 0) -> Host:
    """Distinct numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def by_loop(x: Host, init: float, reduced: Any, case: tuple[Any, ...]) -> Host:
    """The reduction of each window, the elements of which are looked up one by one."""
    windows = checked_windows("test", x.shape, *case)
    dims, strides, pads, base, gaps = windows
    counts = lax.reduce_window_shape_tuple(x.shape, *case)
    out = np.empty(counts, np.float64)
    for start in np.ndindex(*counts):
        found = [init]
        for place in itertools.product(*map(range, dims)):
            at = [
                i * s + k * g - low
                for i, s, k, g, (low, _) in zip(start, strides, place, gaps, pads, strict=True)
            ]
            if all(
                a % b == 0 and 0 <= a // b < n for a, b, n in zip(at, base, x.shape, strict=True)
            ):
                found.append(float(x[tuple([a // b for a, b in zip(at, base, strict=True)])]))
        out[start] = reduced(np.array(found))
    return out


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", COMPUTATIONS)
def test_windows_agree_with_a_loop(name: str, case: str) -> None:
    """Value, derivatives to second order and batching, for every kind of window."""
    fun, init, reduced = COMPUTATIONS[name]

    check_rules(
        lambda x: lax.reduce_window(x, init, fun, *CASES[case]),
        sample(2, 4, 5),
        reference=lambda x: by_loop(x, init, reduced, CASES[case]),
        order=2 if case == "pooling" or name == "sum" else 1,
        atol=1e-5,
    )


@pytest.mark.parametrize("case", ["overlapping", "dilated", "cut"])
def test_the_operations_give_the_same_derivatives(case: str) -> None:
    """What other platforms use, and the CPU for large windows."""
    fun, init, _ = COMPUTATIONS["max"]

    # A shape that no other test has: programs are remembered.
    shape = (2, 4, 6)
    with scope("platform_rules", False):
        check_rules(
            lambda x: lax.reduce_window(x, init, fun, *CASES[case]), sample(*shape), order=1
        )


@pytest.mark.parametrize("rules", [True, False])
@pytest.mark.parametrize("large", [False, True])
def test_the_gradient_goes_to_the_first_of_equal_elements(rules: bool, large: bool) -> None:
    """Ties, windows of minus infinity beside padding, and NaN: one element gets all."""
    inf, nan = np.inf, np.nan
    x = np.array([-inf, 3.0, 3.0, nan, 2.0, nan, nan, -inf, -inf], np.float32)
    if large:  # every window sees all

        def total(x: Any) -> Any:
            return lax.reduce_window(x, -inf, lax.max, (70,), (1,), [(69, 69)])[65:72].sum()

        expected = [0, 0, 0, 7, 0, 0, 0, 0, 0]
    else:

        def total(x: Any) -> Any:
            return lax.reduce_window(x, -inf, lax.max, (2,), (2,), [(1, 0)]).sum()

        expected = [1, 1, 0, 1, 0, 1, 0, 1, 0]

    with scope("platform_rules", rules):
        gradient = tb.grad(total)(x)

    assert expected == np.asarray(gradient).tolist()


def test_windows_of_integers_and_booleans() -> None:
    """They keep their dtype; bitwise computations have windows too."""
    x = np.array([3, 5, 6, 1])

    assert [8, 11, 7] == lax.reduce_window(x, 0, lax.add, (2,)).tolist()
    assert [5, 6, 6] == lax.reduce_window(x, -9, lax.max, (2,)).tolist()
    assert [1, 4, 0] == lax.reduce_window(x, -1, lax.bitwise_and, (2,)).tolist()
    assert [7, 7, 7] == lax.reduce_window(x, 0, lax.bitwise_or, (2,)).tolist()
    assert [6, 3, 7] == lax.reduce_window(x, 0, lax.bitwise_xor, (2,)).tolist()
    flags = np.array([True, False, False])
    assert [True, False] == lax.reduce_window(flags, False, lax.bitwise_or, (2,)).tolist()


def test_no_axes_and_no_elements() -> None:
    """A scalar is its own window; windows that do not fit give nothing."""
    empty = np.zeros((0, 3), np.float32)

    assert lax.reduce_window(3.0, -np.inf, lax.max, ()) == 3
    assert tb.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, ()))(3.0) == 1
    assert lax.reduce_window(empty, 0.0, lax.add, (2, 2), padding="SAME").shape == (0, 3)
    assert lax.reduce_window(np.zeros((3, 3)), 0.0, lax.add, (4, 2)).shape == (0, 2)
    padded = lax.reduce_window(empty, 5.0, lax.add, (2, 1), padding=[(1, 1), (0, 0)])
    assert padded.tolist() == [[5.0, 5.0, 5.0]]
    gradient = tb.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (4, 2)).sum())(
        np.ones((3, 3), np.float32)
    )
    assert np.zeros((3, 3)).tolist() == np.asarray(gradient).tolist()


def test_several_operands_and_initial_values() -> None:
    """Trees are reduced together; initial values may be differentiated and mapped."""

    def both(a: Any, b: Any) -> Any:
        return {"s": a["s"] + b["s"], "p": a["p"] * b["p"]}

    def of_axes(x: Any, y: Any) -> Any:
        return list(lax.reduce({"s": x, "p": y}, {"s": 0.0, "p": 1.0}, both, (0,)).values())

    def of_windows(x: Any, y: Any, i: Any) -> Any:
        out = lax.reduce_window({"s": x, "p": y}, {"s": i, "p": 1.0}, both, (2, 2), padding="SAME")
        return list(out.values())

    x, y = sample(3, 4), sample(3, 4, seed=1)

    check_rules(of_axes, x, y, reference=lambda x, y: [y.prod(0), x.sum(0)], order=1, atol=1e-5)
    check_rules(of_windows, x, y, np.float32(0.5), order=1)


REDUCTIONS: dict[str, tuple[Any, Any, Any]] = {
    "sum": (lax.add, 0.0, np.sum),
    "prod": (lax.mul, 1.0, np.prod),
    "max": (lax.max, -np.inf, np.max),
    "min": (lambda a, b: lax.min(b, a), np.inf, np.min),
    "sum_from_2": (lax.add, 2.0, lambda x, axis: np.sum(x, axis) + 2),
    "max_from_0": (lax.max, 0.0, lambda x, axis: np.max(x, axis, initial=0)),
    "logaddexp": (tnp.logaddexp, -np.inf, np.logaddexp.reduce),
}


@pytest.mark.parametrize("axes", [(1,), (0, 2), ()], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduce_agrees_with_numpy(name: str, axes: tuple[int, ...]) -> None:
    """Known computations and others, from any initial value."""
    fun, init, reduced = REDUCTIONS[name]
    known = name != "logaddexp" or len(axes) == 1

    check_rules(
        lambda x: lax.reduce(x, init, fun, axes),
        sample(2, 3, 5),
        reference=(lambda x: reduced(x, axis=axes[0] if len(axes) == 1 else axes))
        if known and (axes or name in ("sum", "prod", "max", "min"))
        else None,
        order=1,
        atol=1e-5,
    )


def test_computations_may_close_over_values() -> None:
    """They are differentiated and mapped like any other."""

    def weighted(x: Any, w: Any) -> Any:
        return lax.reduce(x, 0.0, lambda a, b: a + b + 0 * w, (0,))

    check_rules(weighted, sample(5), sample())
    check_rules(
        lambda x, w: lax.reduce_window(x, -np.inf, lambda a, b: tnp.logaddexp(w + a, w + b) - w,
                                       (3,), padding="SAME"),
        sample(5), sample(), order=1,
    )  # fmt: skip


def test_known_computations_become_known_operations() -> None:
    """The order of the arguments and a name of NumPy do not matter."""
    for fun in (lax.add, tnp.add, lambda a, b: b + a):
        text = str(tb.make_jaxpr(lambda x, fun=fun: lax.reduce(x, 0.0, fun, (0,)))(tnp.ones(3)))
        assert "reduce_sum" in text
        text = str(tb.make_jaxpr(lambda x, fun=fun: lax.reduce_window(x, 0.0, fun, (2,)))(
            tnp.ones(3)
        ))  # fmt: skip
        assert "reduce_window_sum" in text


def test_float64_and_narrow_floats() -> None:
    """64 bits keep their digits; 16 bits are added up in float32."""
    with enable_x64():
        x = sample(50).astype(np.float64)
        total = lax.reduce_window(x, 0.0, lax.add, (50,))
        np.testing.assert_allclose(np.asarray(total), [x.sum()], rtol=1e-14)
    ones = tnp.ones(5000, "bfloat16")
    assert float(lax.reduce_window(ones, 0.0, lax.add, (5000,))[0]) == 4992
    assert lax.reduce_window(ones, 0.0, lax.add, (2,)).dtype == ones.dtype


@pytest.mark.parametrize("op", [lax.add, lax.mul, lambda a, b: a * b])
def test_reductions_are_weak_if_all_operands_are(op: Any) -> None:
    """A strong initial value makes the result strong, and so does a strong operand."""
    weak, strong = lax.broadcast(2, (3,)), tnp.full(3, 2, "int32")
    assert weak.weak_type
    assert not strong.weak_type

    results = [lax.reduce(x, start, op, (0,)) for x in (weak, strong) for start in (1, np.int32(1))]

    assert [r.weak_type for r in results] == [True, False, False, False]
    assert len({r.item() for r in results}) == 1


def test_errors_say_what_is_wrong() -> None:
    """Each mistake has its class, and the message names the function."""
    x = sample(3, 4)
    wrong: list[tuple[Any, Any]] = [
        (RankError, lambda: lax.reduce_window(x, 0.0, lax.add, (2,))),
        (RankError, lambda: lax.reduce_window(x, 0.0, lax.add, (2, 2), padding=[(0, 0)])),
        (ShapeMismatchError, lambda: lax.reduce_window(x, 0.0, lax.add, (2, 2), (0, 1))),
        (ShapeMismatchError, lambda: lax.reduce_window(x, 0.0, lax.add, (2, 0))),
        (ArgumentValueError, lambda: lax.reduce_window(x, 0.0, lax.add, (2, 2), padding="FULL")),
        (DtypeMismatchError, lambda: lax.reduce_window(x, np.int32(0), lax.add, (2, 2))),
        (TreeMismatchError, lambda: lax.reduce((x, x), (0.0, 0.0), lambda a, b: a[0], (0,))),
        (TreeMismatchError, lambda: lax.reduce((x, x), 0.0, lax.add, (0,))),
        (ShapeMismatchError, lambda: lax.reduce((x, x[0]), (0.0, 0.0), lambda a, b: a, (0,))),
        (DtypeMismatchError, lambda: lax.reduce(x, 0.0, lambda a, b: a > b, (0,))),
        (EffectError, lambda: lax.reduce(x, 0.0, _printing, (0,))),
    ]  # fmt: skip
    for kind, call in wrong:
        with pytest.raises(kind, match="reduce"):
            call()
    windows = checked_windows("test", (3,), (2,))
    numbers = tnp.ones(3, "complex64")
    with pytest.raises(UnsupportedDtypeError, match="real numbers"):
        lax.reduce_window_max_p.bind(numbers, **windows._asdict())


def _printing(a: Any, b: Any) -> Any:
    tb.debug.print("{}", a)
    return a + b


def test_select_and_scatter() -> None:
    """The primitive with computations: numbers are combined where the window selects."""
    from tracebridge.core.interpreters.staging import stage
    from tracebridge.core.ir.aval import ShapedArray

    scalar = ShapedArray((), np.dtype(np.float32))
    ge, add = [stage(lambda a, b, f=f: [f(a, b)], [scalar, scalar]) for f in (lax.ge, lax.add)]
    params = {
        "select_jaxpr": ge, "scatter_jaxpr": add,
        "window_dimensions": (2,), "window_strides": (2,), "padding": ((0, 0),),
    }  # fmt: skip

    def run(x: Any, source: Any, init: Any) -> Any:
        return lax.select_and_scatter_p.bind(x, source, init, **params)

    x, source = tnp.array([1.0, 2.0, 4.0, 3.0]), tnp.array([5.0, 7.0])

    assert [0.5, 5.5, 7.5, 0.5] == run(x, source, tnp.float32(0.5)).tolist()
    check_rules(run, sample(4), sample(2, seed=1), np.float32(1.0), order=0)


@pytest.mark.parametrize("rules", [True, False])
@pytest.mark.parametrize("base", [1, 2])
def test_padding_that_only_cuts_windows_of_one_element(rules: bool, base: int) -> None:
    """XLA ended the process over these."""
    x = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)

    def reduced(x, init, fun, pads):
        return lax.reduce_window(x, np.float32(init), fun, (1, 1), (1, 1), pads, (base, 1))

    pads = [(0, -1), (-1, 0)]
    expected = x[:1, 1:] if base == 1 else np.array([[2.0, 3.0], [0.0, 0.0]])
    with scope("platform_rules", rules):
        assert np.array_equal(tb.jit(lambda x: reduced(x, 0, lax.add, pads))(x), expected)
        # One axis cut, one widened; a computation that has no operation of its own.
        out = tb.jit(lambda x: reduced(x, 1, lambda a, b: a * b, [(0, 0), (-2, 1)]))(x)
        assert out.shape == (2 * base - base + 1, 2)
        assert out[0].tolist() == [3.0, 1.0]
        largest = tb.jit(
            tb.grad(lambda x: reduced(x, -np.inf, lax.max, [(0, -base), (0, 0)]).sum())
        )
        assert largest(x).tolist() == [[1, 1, 1], [0, 0, 0]]


def test_derivative_of_sums_side_by_side_for_all_sizes() -> None:
    """What the last window leaves over may be nothing or something."""

    def value(x: Any) -> Any:
        return (lax.reduce_window(x, 0.0, lax.add, (2, 3), (2, 3), "VALID") ** 2).sum()

    spec = tb.export.symbolic_args_specs((np.zeros((4, 6), "f4"),), ("h, w",))
    program = tb.export.export(tb.jit(tb.grad(value)))(*spec)
    for shape in ((4, 6), (5, 8)):
        x = np.random.default_rng(0).standard_normal(shape).astype("f4")
        np.testing.assert_allclose(program.call(x), tb.grad(value)(x), rtol=1e-5)


def test_whole_floats_start_reductions_of_integers() -> None:
    """``0.0`` starts a sum of any dtype; a number that is no integer starts none of integers."""
    x = tnp.arange(4)

    total = lax.reduce(x, 0.0, lax.add, (0,))
    windows = lax.reduce_window(x, 0.0, lax.add, (2,), (1,), "VALID")

    assert (6, "int32") == (int(total), str(total.dtype))
    assert [1, 3, 5] == windows.tolist()
    with pytest.raises(DtypeMismatchError):
        lax.reduce(x, 0.5, lax.add, (0,))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int8"])
def test_infinities_start_extremes_of_integers(dtype: str) -> None:
    """``-inf`` starts a maximum of any dtype, ``inf`` a minimum; sums of integers none."""
    x = tnp.array([3, 1, 4, 1], dtype)

    high = lax.reduce_window(x, -tnp.inf, lax.max, (2,), (1,), "SAME")
    low = lax.reduce(x, tnp.inf, lax.min, (0,))

    assert ([3, 4, 4, 1], dtype) == (high.tolist(), str(high.dtype))
    assert (1, dtype) == (int(low), str(low.dtype))
    with pytest.raises(DtypeMismatchError):
        lax.reduce_window(x, -tnp.inf, lax.add, (2,), (1,), "SAME")


@pytest.mark.parametrize("zero", [np.int32(0), np.float16(0), tnp.zeros((), "int8")])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_neutral_start_may_have_any_dtype(zero: Any, dtype: str) -> None:
    """0 of sums and 1 of products are converted, other numbers are refused."""
    x = np.arange(1, 4).astype(dtype)

    total = lax.reduce(x, zero, lax.add, (0,))
    product = lax.reduce(x, zero + np.ones_like(zero), lax.mul, (0,))
    assert (6, dtype, False) == (int(total), total.dtype.name, total.weak_type)
    assert (6, dtype) == (int(product), product.dtype.name)
    with pytest.raises(DtypeMismatchError):
        lax.reduce(x, np.int8(2), lax.add, (0,))
    with pytest.raises(DtypeMismatchError):
        lax.reduce(x, np.int8(0), lax.max, (0,))
