"""with_layout_constraint: the order in memory of values inside programs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.experimental.layout import Format, Layout, with_layout_constraint
from tracebridge.testing import assert_allclose

X = np.arange(24, dtype="f4").reshape(2, 3, 4)
ORDER = Layout((2, 0, 1))


def constrained(x: Any) -> Any:
    """Twice ``x``, in another order."""
    return with_layout_constraint(2 * x, ORDER)


def orders(f: Any, *args: Any) -> list[str]:
    """Orders from minor to major in the lowered program."""
    text = tb.jit(f).lower(*args).as_text()
    return re.findall(r"@LayoutConstraint.*result_layouts = \[dense<\[(.*?)\]>", text)


def test_values_are_the_same() -> None:
    """At once and compiled; results are row-major."""
    for f in (constrained, tb.jit(constrained)):
        assert_allclose(f(X), 2 * X)
        assert (0, 1, 2) == f(X).format.layout.major_to_minor
    assert ["1, 0, 2"] == orders(constrained, X)


def test_trees() -> None:
    """Layouts are a prefix of the arguments; None is no constraint."""
    out = with_layout_constraint({"a": X, "b": X[0]}, {"a": ORDER, "b": None})

    assert_allclose(out["a"], X)
    assert 1 == len(orders(lambda x: with_layout_constraint((x, x), (ORDER, None)), X))
    assert 2 == len(orders(lambda x: with_layout_constraint((x, x + 1), ORDER), X))


def test_under_transformations() -> None:
    """Tangents and cotangents have the constraint; the axis of a batch is the slowest."""
    assert_allclose(tb.grad(lambda x: (constrained(x) ** 2).sum())(X), 8 * X)
    assert_allclose(tb.jvp(constrained, (X,), (X,))[1], 2 * X)
    assert 2 == len(orders(tb.grad(lambda x: (constrained(x) ** 2).sum()), X))
    batch = np.stack([X, X + 1], 1)
    f = tb.vmap(constrained, 1, 1)
    assert_allclose(f(batch), 2 * batch)
    # The batch axis 1 is the slowest; then come the axes 3, 0 and 2.
    assert ["2, 0, 3, 1"] == orders(f, batch)
    scan = tb.jit(lambda x: lax.scan(lambda c, _: (constrained(c), None), x, None, length=3)[0])
    assert_allclose(scan(X), 8 * X)


@pytest.mark.parametrize(
    ("error", "message", "layouts"),
    [
        (ArgumentTypeError, "with_layout_constraint: got 3 of type int", 3),
        (ArgumentValueError, r"major_to_minor=\(1, 0\) for an array of shape", Layout((1, 0))),
        (ArgumentValueError, "each of the axes 0 to 2 once", Layout((0, 0, 1))),
        (TreeMismatchError, "layouts", (ORDER, ORDER)),
    ],
)
def test_bad_layouts(error: Any, message: str, layouts: Any) -> None:
    """Something else, or for arrays with other axes."""
    with pytest.raises(error, match=message):
        with_layout_constraint(X, layouts)


PLACE = tb.sharding.SingleDeviceSharding(tb.devices()[0])


def in_format(x: Any) -> Any:
    """Twice ``x``, at a place and in another order."""
    return lax.with_sharding_constraint(2 * x, Format(ORDER, PLACE))


def test_formats_constrain_both() -> None:
    """A format is a sharding and a layout: with_sharding_constraint takes it as it takes both."""
    for f in (in_format, tb.jit(in_format)):
        assert_allclose(f(X), 2 * X)
    assert ["1, 0, 2"] == orders(in_format, X)
    assert_allclose(tb.grad(lambda x: (in_format(x) ** 2).sum())(X), 8 * X)
    assert ["2, 1, 3, 0"] == orders(tb.vmap(in_format), X[None])
    for loose in (Format(), Format(None, PLACE), Format(Layout.AUTO, PLACE)):
        assert [] == orders(lambda x, loose=loose: lax.with_sharding_constraint(x, loose), X)


def test_formats_of_arrays_with_other_axes() -> None:
    """The error is that of the layout."""
    with pytest.raises(ArgumentValueError, match=r"major_to_minor=\(2, 0, 1\) for an array"):
        lax.with_sharding_constraint(X[0], Format(ORDER, PLACE))
