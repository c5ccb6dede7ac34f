"""Sizes that vary: results of padded calls are those of calls without padding; warnings; limits."""

from __future__ import annotations

import warnings

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentSpecError, MissingRuleError, ShapeMismatchError
from tracebridge.torch import wrap
from tracebridge.torch._graphs import call_family

pytestmark = pytest.mark.torch


def features(w, x, factor):
    """Sums, maxima and the size itself along the axis that varies; infinite on zeros."""
    hidden = tnp.log(x) @ w
    return {
        "mean": tnp.mean(hidden),
        "most": tnp.max(hidden, axis=0),
        "rows": tb.nn.softmax(hidden, axis=0),
        "size": x.shape[0] * factor,
    }


def test_results_and_gradients_are_those_without_padding():
    """One trace, one program for each bucket; also where padding by zeros would be infinite."""
    padded = wrap(features, dynamic_shapes=(None, "n, _", None))
    w = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for n in (1, 3, 4, 5, 7):
        x = (torch.rand(n, 3, generator=torch.Generator().manual_seed(n)) + 0.1).requires_grad_()
        out = padded(w, x, 2)
        hidden = x.log() @ w
        expected = {
            "mean": hidden.mean(),
            "most": hidden.amax(0),
            "rows": hidden.softmax(0),
            "size": torch.tensor(2 * n, dtype=torch.int32),
        }
        torch.testing.assert_close(out, expected)
        ours = out["mean"] + (out["rows"] ** 2).sum() + out["most"].sum()
        theirs = hidden.mean() + (hidden.softmax(0) ** 2).sum() + hidden.amax(0).sum()
        torch.testing.assert_close(
            torch.autograd.grad(ours, (w, x)), torch.autograd.grad(theirs, (w, x))
        )
    assert padded.traces == 1
    known = padded.sized.programs
    ((_, program),) = map(known.get, known.keys())
    assert program.traces == 3  # buckets 1, 4, 8


def test_transformations_and_corner_cases():
    """torch.func, second order, trees, sizes by axis, no elements, two names, compiled code."""
    cube = wrap(lambda x: tnp.sum(x**3), dynamic_shapes=("n",))
    assert torch.func.grad(cube)(torch.ones(3)).tolist() == [3.0] * 3
    assert torch.func.vmap(cube)(torch.ones(2, 3)).tolist() == [3.0, 3.0]
    assert float(cube(torch.ones(0))) == 0.0
    x = torch.rand(3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradgradcheck(cube, x.requires_grad_())
    outer = wrap(
        lambda d, k: tnp.outer(d["a"], d["b"]) * k, dynamic_shapes=[{"a": {0: "m"}, "b": "n"}, None]
    )
    a, b = torch.arange(1.0, 4.0), torch.arange(1.0, 6.0)
    assert torch.equal(outer({"a": a, "b": b}, 2.0), torch.outer(a, b) * 2)
    torch._dynamo.reset()
    compiled = torch.compile(cube, fullgraph=True, backend="aot_eager", dynamic=True)
    assert float(compiled(torch.ones(5))) == 5.0


def test_functions_that_look_after_the_padding():
    """They get the sizes; results are cut to them. Sizes beyond the buckets are multiples."""

    def mean(x, sizes):
        seen.append(x.shape)
        inside = tnp.arange(x.shape[0]) < sizes["n"]
        return tnp.sum(tnp.where(inside, x, 0.0)) / sizes["n"], x * 2

    seen = []
    own = wrap(mean, dynamic_shapes=["n"], buckets={"n": (4, 8)}, sizes_argname="sizes")
    for n in (3, 5, 8, 17):
        x = torch.arange(float(n))
        average, doubled = own(x)
        torch.testing.assert_close(average, x.mean())
        assert torch.equal(doubled, x * 2)
    assert [s for s in seen if isinstance(s[0], int)] == [(4,), (8,), (24,)]


def test_what_is_refused():
    """Options that do not fit, sizes that differ, operations without a mask."""
    x, identity = torch.ones(3), lambda *xs: xs
    cases = [
        (lambda: wrap(identity, dynamic_shapes="n"), ArgumentSpecError, "dynamic_shapes is 'n'"),
        (lambda: wrap(identity, buckets={}), ArgumentSpecError, "which is None"),
        (
            lambda: wrap(identity, dynamic_shapes=("n",), buckets={"n": [0]}),
            ArgumentSpecError,
            "for 'n'",
        ),
        (lambda: wrap(identity, dynamic_shapes=("n,m",))(x), ArgumentSpecError, "1 axes"),
        (lambda: wrap(identity, dynamic_shapes=({1: "n"},))(x), ArgumentSpecError, "1 axes"),
        (lambda: wrap(identity, dynamic_shapes=("n",))(x, x), ArgumentSpecError, "1 entries"),
        (
            lambda: wrap(identity, dynamic_shapes=("n", "n"))(x, torch.ones(2)),
            ShapeMismatchError,
            "'n' is 3 and 2",
        ),
        (
            lambda: wrap(tnp.linalg.inv, dynamic_shapes=("n, n",))(torch.eye(3)),
            MissingRuleError,
            "sizes_argname",
        ),
    ]
    for call, error, text in cases:
        with pytest.raises(error, match=text):
            call()


def test_many_sizes_warn_once(monkeypatch):
    """The warning names the axis and its sizes; padded functions do not come that far."""
    monkeypatch.setattr(call_family, "WARN_AFTER", 3)
    many = wrap(lambda x, y: tnp.sum(x) + tnp.sum(y))
    y = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        many(torch.ones(1), y)
        many(torch.ones(2), y)
        many(torch.ones(2, dtype=torch.float64), y)
    with pytest.warns(UserWarning, match="axis 0 of x was 1, 2, 3. wrap") as caught:
        many(torch.ones(3), y)
    assert caught[0].filename == __file__
    many(torch.ones(4), y)


def test_programs_not_used_for_long_are_dropped(monkeypatch):
    """Those in use stay."""
    many = wrap(lambda x: x * 2)
    many(torch.ones(1))
    (family,) = many.families.values()
    family.runs.maxsize, family.runs._half = 4, 2
    monkeypatch.setattr(call_family, "MAX_RUNS", 4)
    (kept,) = map(family.runs.get, family.runs.keys())
    for n in range(2, 9):
        many(torch.ones(n))
        many(torch.ones(1))
    assert len(family.runs) <= 4
    assert len(many.calls) <= 4
    assert kept in map(family.runs.get, family.runs.keys())
