"""abstracted_axes of jit and make_jaxpr: one trace for all sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import AxisSizeError, AxisSpecError, TreeMismatchError


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def counting(fun: Any) -> tuple[Any, list[int]]:
    """``fun`` and the list of its runs."""
    runs: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        runs.append(len(runs))
        return fun(*args, **kwargs)

    return counted, runs


def centred(x: Any) -> Any:
    return x - tnp.sum(x) / x.shape[0]


@pytest.mark.parametrize("spec", [("n",), {0: "n"}, {-1: "n"}, ({0: "n"},), [("n",)], (("n",),)])
def test_one_trace_for_all_sizes(spec: Any) -> None:
    """The function runs once; each size gets its program."""
    f, runs = counting(centred)
    g = tb.jit(f, abstracted_axes=spec)

    for n in (2, 5, 2, 7):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_allclose(g(x), x - x.mean(), rtol=1e-6, atol=1e-6)
    assert [0] == runs


def test_no_elements_are_traced_on_their_own() -> None:
    """Variables are sizes of at least 1."""
    f, runs = counting(lambda x: 2 * x)
    g = tb.jit(f, abstracted_axes=("n",))

    assert [(0,), (3,), (0,), (4,)] == [g(ones(n)).shape for n in (0, 3, 0, 4)]
    assert [0, 1] == runs


def test_names_are_shared_between_arguments() -> None:
    """Axes of one name have one size, which shapes of results are made of."""
    f, runs = counting(lambda a, t: (a @ t["w"], tnp.concatenate([a, a]), tnp.arange(a.shape[1])))
    g = tb.jit(f, abstracted_axes=(("n", "m"), {"w": ("m", None)}))

    for n, m in ((2, 3), (4, 1)):
        product, double, count = g(ones(n, m), {"w": ones(m, 2)})
        np.testing.assert_array_equal(product, ones(n, m) @ ones(m, 2))
        assert ((2 * n, m), list(range(m))) == (double.shape, count.tolist())
    assert [0] == runs
    with pytest.raises(
        AxisSizeError, match=r"the name 'm' to axis 1 of argument args\[0\] of size"
    ):
        g(ones(2, 3), {"w": ones(2, 2)})


def test_sizes_as_results() -> None:
    """A size that the function returns is that of the call."""
    g = tb.jit(lambda x: 2 * x.shape[0] + 1, abstracted_axes=("n",))

    assert [7, 11] == [int(g(ones(3))), int(g(ones(5)))]


def test_control_flow_inside() -> None:
    """Programs inside programs are made for the sizes too."""

    def f(x: Any) -> Any:
        total, sums = tb.lax.scan(lambda c, a: (c + a, c), 0.0, x)
        return tb.lax.cond(total > 2, lambda: tnp.sort(-x), lambda: tnp.cumsum(x) + 0 * sums)

    g = tb.jit(f, abstracted_axes=("n",))

    assert [1.0, 2.0] == g(ones(2)).tolist()
    assert [-1.0, -1.0, -1.0] == g(ones(3)).tolist()


def test_under_transformations() -> None:
    """The call is an equation at the sizes of the trace."""
    g = tb.jit(lambda x: tnp.sum(x * x) / x.shape[0], abstracted_axes=("n",))
    x = np.arange(3, dtype=np.float32)

    np.testing.assert_allclose(tb.grad(g)(x), 2 * x / 3, rtol=1e-6)
    np.testing.assert_allclose(tb.vmap(g)(np.stack([x, 2 * x])), [5 / 3, 20 / 3], rtol=1e-6)
    np.testing.assert_allclose(tb.jit(lambda x: g(x) + g(x[1:]))(x), 5 / 3 + 5 / 2, rtol=1e-6)
    assert "tensor<3xf32>" in g.lower(x).as_text()


def test_keyword_arguments_keep_their_sizes() -> None:
    """The specification is about positional arguments."""
    f, runs = counting(lambda x, *, y: x + tnp.sum(y))
    g = tb.jit(f, abstracted_axes=("n",))

    assert [3.0] == g(ones(1), y=ones(2)).tolist()
    assert [3.0, 3.0] == g(ones(2), y=ones(2)).tolist()
    assert [0] == runs


def test_jaxprs_show_the_names() -> None:
    """make_jaxpr takes the same specification."""
    made = tb.make_jaxpr(lambda x, y: x + y, abstracted_axes=({0: "rows"}, None))
    jaxpr = made(ones(4, 2), ones(2))

    assert "f32[rows,2]" in str(jaxpr)
    jaxpr, shape = tb.make_jaxpr(tnp.sin, return_shape=True, abstracted_axes=("n",))(ones(4))
    assert "n" == str(shape.shape[0])


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        (("n",), AxisSpecError, "has 1 entries for argument x, which is f32[2,3]"),
        ({2: "n"}, AxisSpecError, "names axis 2 of argument x, which is f32[2,3]"),
        ("n", AxisSpecError, "abstracted_axes is 'n' for argument x"),
        (({0: "n"}, {0: "n"}), TreeMismatchError, "different lengths"),
        (("n", "n"), AxisSizeError, "axis 0 of argument x of size 2 and to axis 1"),
    ],
)
def test_specifications_must_fit(spec: Any, error: type[Exception], words: str) -> None:
    """The message names the argument and the axis."""
    with pytest.raises(error) as caught:
        tb.jit(lambda x: x, abstracted_axes=spec)(ones(2, 3))

    assert words in str(caught.value)
