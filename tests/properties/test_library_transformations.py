"""Every public function gives the same at once, in a program and mapped; derivatives too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.properties.library_calls import ALL, Row
from tests.quick_compiles import quick_jit
from tracebridge import tree
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.errors import GradientTypeError, MissingRuleError

STEP = 1e-6
REFUSED: dict[str, tuple[type[Exception], str]] = {
    **dict.fromkeys(
        ["numpy.linalg-eig", "lax.linalg-eig"],
        (UnsupportedArgumentError, "the phases of eigenvectors are free"),
    ),
    **dict.fromkeys(
        ["lax-igamma_grad_a", "lax-random_gamma_grad"],
        (MissingRuleError, "first derivatives, of functions that have no second ones"),
    ),
    **dict.fromkeys(
        ["lax-while_loop", "lax-scatter_apply", "scipy-minimize"],
        (GradientTypeError, "a loop of an unknown number of steps has no reverse mode"),
    ),
}
NO_DIFFERENCES: dict[str, str] = {
    "lax-stop_gradient": "says that it has no derivative",
    "lax-convert_element_type": "rounds to float32",
    **dict.fromkeys(
        ["scipy-dirichlet", "scipy-multinomial"], "a step leaves the support of the distribution"
    ),
    "scipy-cg": "the derivative is that of symmetric matrices, a step makes another one",
    **dict.fromkeys(
        [
            f"random-{name}"
            for name in ("beta", "chisquare", "dirichlet", "f", "gamma", "loggamma", "t")
        ],
        "differentiated by their distribution functions, not along the steps of rejection",
    ),
}
DTYPE_BY_VALUE = {
    "scipy.linalg-funm": "real where imaginary parts vanish, which a program cannot see"
}
NO_SECOND: dict[str, tuple[type[Exception], str]] = {
    **dict.fromkeys(
        [
            *[f"lax-{name}" for name in ("betainc", "igamma", "igammac")],
            *[f"scipy.special-{name}" for name in ("betainc", "gammainc", "gammaincc")],
            *[
                f"random-{name}"
                for name in ("beta", "chisquare", "dirichlet", "f", "gamma", "loggamma", "t")
            ],
        ],
        (MissingRuleError, "slopes in the parameters are sums that have no derivatives"),
    ),
    **dict.fromkeys(
        ["scipy.special-hyp1f1", "scipy.special-hyp2f1"],
        (GradientTypeError, "slopes in the parameters are loops of an unknown number of steps"),
    ),
}
NOT_TWICE: dict[str, str] = {
    "lax-reduce_precision": "tangents are rounded",
    "lax-custom_linear_solve": "says that the matrices are symmetric; the direction is not",
    "scipy-cg": "likewise",
    "scipy-vq": "distances of 0 have corners",
}
# The calls with floating arguments that have second derivatives.
TWICE = [
    name
    for name, (_, args) in ALL.items()
    if any(x.dtype.kind == "f" for x in args) and name not in {*REFUSED, *NOT_TWICE}
]
NOT_LINEAR = {"lax-reduce_precision": "tangents and cotangents are rounded"}


def floats_of(results: Any) -> list[Any]:
    """The floating results, real and imaginary parts apart."""
    found: list[Any] = []
    for x in tree.leaves(results):
        if tnp.issubdtype(x.dtype, tnp.complexfloating):
            found += [tnp.real(x), tnp.imag(x)]
        elif tnp.issubdtype(x.dtype, tnp.floating):
            found.append(x)
    return found


def run_in_a_program(row: Row, arrays: list[Any], name: str) -> Any:
    """The call, the call mapped over two neighbours and the same, and slopes along a direction.

    Slopes are by forward mode, by reverse mode and by differences of the neighbours.
    """
    run, _ = row
    places = [i for i, x in enumerate(arrays) if x.dtype.kind == "f"]
    random = np.random.default_rng(1)
    directions = [tnp.asarray(random.normal(size=arrays[i].shape)) for i in places]

    def with_floats(arrays: Any, inner: Any) -> list[Any]:
        full = list(arrays)
        for i, x in zip(places, inner, strict=True):
            full[i] = x
        return full

    def everything(arrays: Any, directions: Any) -> Any:
        inner = [arrays[i] for i in places]
        ends = [
            with_floats(arrays, [x + h * d for x, d in zip(inner, directions, strict=True)])
            for h in (STEP, -STEP, 0)
        ]
        mapped = tb.vmap(run)(*map(tnp.stack, zip(*ends, strict=True))) if arrays else ()
        plain = run(*arrays)
        if not inner or not floats_of(plain):
            return plain, mapped, None

        ys, forward = tb.linearize(lambda *xs: floats_of(run(*with_floats(arrays, xs))), *inner)
        backward = tb.linear_transpose(forward, *inner)
        weights = [tnp.cos(1.0 + tnp.arange(y.size, dtype=y.dtype)).reshape(y.shape) for y in ys]
        along = sum((w * t).sum() for w, t in zip(weights, forward(*directions), strict=True))
        back = sum((d * g).sum() for d, g in zip(directions, backward(weights), strict=True))
        pairs = zip(weights, floats_of(mapped), strict=True)
        steps = sum((w * (y[0] - y[1])).sum() / (2 * STEP) for w, y in pairs)
        return plain, mapped, (along, back, steps)

    if name in REFUSED:
        with pytest.raises(REFUSED[name][0]):
            quick_jit(everything)(arrays, directions)
        places, directions = [], []
    return quick_jit(everything)(arrays, directions)


@pytest.mark.parametrize("name", ALL)
def test_calls_are_the_same_however_they_run(name: str) -> None:
    """At once, in a program and mapped; both modes of derivatives agree with differences."""
    with tb.enable_x64(True):
        run, args = ALL[name]
        arrays = [tnp.asarray(x) for x in args]
        eager = [tnp.asarray(x) for x in tree.leaves(run(*arrays))]

        plain, mapped, slopes = run_in_a_program(ALL[name], arrays, name)

    for e, x in zip(eager, tree.leaves(plain), strict=True):
        if name not in DTYPE_BY_VALUE:
            assert e.dtype == tnp.asarray(x).dtype
        np.testing.assert_allclose(x, e, 1e-6, 1e-9, err_msg="in a program")
    for e, x in zip(eager if arrays else [], tree.leaves(mapped), strict=True):
        np.testing.assert_allclose(x[2], e, 1e-6, 1e-9, err_msg="mapped")
    if slopes is not None:
        along, back, steps = map(float, slopes)
        if name not in NOT_LINEAR:
            np.testing.assert_allclose(back, along, rtol=1e-6, atol=1e-8, err_msg="both modes")
        if name not in NO_DIFFERENCES and name not in NOT_LINEAR:
            np.testing.assert_allclose(along, steps, rtol=2e-4, atol=1e-5, err_msg="differences")


def weighted(run: Any, arrays: list[Any]) -> tuple[Any, list[Any]]:
    """The floating results as one number, a function of the floating arguments; and these."""
    places = [i for i, x in enumerate(arrays) if x.dtype.kind == "f"]

    def value(*inner: Any) -> Any:
        full = list(arrays)
        for i, x in zip(places, inner, strict=True):
            full[i] = x
        found = floats_of(run(*full))
        parts = [tnp.cos(1.0 + tnp.arange(y.size, dtype=y.dtype)).reshape(y.shape) for y in found]
        return sum(((w * y).sum() for w, y in zip(parts, found, strict=True)), tnp.zeros(()))

    return value, [arrays[i] for i in places]


def second_slopes(run: Any, arrays: list[Any], directions: list[Any]) -> Any:
    """Second derivatives along a direction: both orders of both modes, and by differences."""
    value, inner = weighted(run, arrays)
    every = tuple(range(len(inner)))

    def forward(*xs: Any) -> Any:
        return tb.jvp(value, xs, tuple(directions))[1]

    def backward(*xs: Any) -> Any:
        slopes = tb.grad(value, every)(*xs)
        return sum((d * g).sum() for d, g in zip(directions, slopes, strict=True))

    slopes = tb.grad(forward, every)(*inner)
    outside = sum((d * g).sum() for d, g in zip(directions, slopes, strict=True))
    inside = tb.jvp(backward, tuple(inner), tuple(directions))[1]
    ends = [
        forward(*[x + h * d for x, d in zip(inner, directions, strict=True)]) for h in (STEP, -STEP)
    ]
    return outside, inside, (ends[0] - ends[1]) / (2 * STEP)


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives_are_those_of_differences(name: str) -> None:
    """Reverse mode of forward mode, forward mode of reverse mode, and differences of slopes."""
    with tb.enable_x64(True):
        run, args = ALL[name]
        arrays = [tnp.asarray(x) for x in args]
        random = np.random.default_rng(2)
        directions = [tnp.asarray(random.normal(size=x.shape)) for x in args if x.dtype.kind == "f"]

        program = quick_jit(lambda a, d: second_slopes(run, a, d))
        if name in NO_SECOND:
            with pytest.raises(NO_SECOND[name][0]):
                program(arrays, directions)
            return
        outside, inside, steps = map(float, program(arrays, directions))

    np.testing.assert_allclose(outside, inside, rtol=1e-6, atol=1e-8, err_msg="both orders")
    if name not in NO_DIFFERENCES:
        np.testing.assert_allclose(inside, steps, rtol=1e-3, atol=1e-4, err_msg="differences")


@pytest.mark.parametrize("name", [name for name, (_, args) in ALL.items() if len(args) > 1])
def test_each_argument_may_be_mapped_alone(name: str) -> None:
    """Rows differ in one argument; the others are the same in all of them, and not mapped."""
    with tb.enable_x64(True):
        run, args = ALL[name]
        near = [np.asarray(x * 1.001 if x.dtype.kind in "fc" else x) for x in args]
        arrays = [tnp.asarray(x) for x in args]
        stacks = [tnp.asarray(np.stack(pair)) for pair in zip(args, near, strict=True)]

        def mapped(arrays: list[Any], stacks: list[Any]) -> list[Any]:
            return [
                tb.vmap(lambda x, k=k: run(*arrays[:k], x, *arrays[k + 1 :]))(stack)
                for k, stack in enumerate(stacks)
            ]

        actual = quick_jit(mapped)(arrays, stacks)
        for k, stack in enumerate(stacks):
            rows = [tree.leaves(run(*arrays[:k], x, *arrays[k + 1 :])) for x in stack]
            for a, one, two in zip(tree.leaves(actual[k]), *rows, strict=True):
                expected = np.stack([np.asarray(one), np.asarray(two)])
                np.testing.assert_allclose(a, expected, 1e-6, 1e-9, err_msg=f"argument {k}")
