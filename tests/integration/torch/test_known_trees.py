"""Calls with keywords, trees and static arguments that are known by structure and shapes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap

pytestmark = pytest.mark.torch
X, Y = torch.arange(3.0), torch.arange(3.0) + 1


def test_structures_do_not_mix():
    """The same tensors in other containers, under other keys, as keywords or not."""
    f = wrap(
        lambda *args, **kwargs: tnp.asarray(len(args) * 10 + len(kwargs)) + sum_of(args, kwargs)
    )

    def sum_of(args, kwargs):
        leaves = tb.tree.leaves((args, kwargs))
        return sum((i + 1) * leaf for i, leaf in enumerate(leaves))

    for _ in range(3):
        assert f(X, Y).tolist() == (20 + X + 2 * Y).tolist()
        assert f(X, b=Y).tolist() == (11 + X + 2 * Y).tolist()
        assert f(b=X, a=Y).tolist() == (2 + Y + 2 * X).tolist()
        assert f({"b": X, "a": Y}).tolist() == (10 + Y + 2 * X).tolist()
        assert f([X, Y]).tolist() == f((X, Y)).tolist() == (10 + X + 2 * Y).tolist()
        assert f([X, [Y]]).tolist() == (10 + X + 2 * Y).tolist()
        assert f([X.double(), None, Y]).dtype == torch.float64
        assert f([X, 2.0]).tolist() == (10 + X + 4).tolist()
        assert f([X, np.float32(2)]).tolist() == (10 + X + 4).tolist()


def test_statics_are_part_of_the_structure():
    """Each value has its own program; unhashable ones get the error that they had."""
    f = wrap(lambda x, n: x * n, static_argnums=1)

    for _ in range(3):
        assert f(X, 2).tolist() == (2 * X).tolist()
        assert f(X, 3).tolist() == (3 * X).tolist()
        assert f(X, True).tolist() == X.tolist()
        assert f(X, n=3).tolist() == (3 * X).tolist()
        with pytest.raises(tb.errors.NonHashableStaticArgumentError):
            f(X, [2])


def test_gradients_shapes_and_options():
    """Known calls have gradients; other sizes and options are other calls."""
    f = wrap(lambda d: (d["x"] * tnp.arange(d["x"].shape[0]).astype(float)).sum())

    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        (gradient,) = torch.autograd.grad(f({"x": x}), x)
        assert gradient.tolist() == [0, 1, 2]
        assert f({"x": torch.ones(2)}) == 1
        assert f({"x": torch.ones(4, 2)[:, 0]}) == 6  # not dense
        with tb.enable_x64(True):
            assert f({"x": X}).dtype == torch.float64
        assert f({"x": X}).dtype == torch.float32
    tb.clear_caches()
    assert f({"x": torch.ones(3)}) == 3


def test_many_structures():
    """Tables are given up when there are too many; results stay right."""
    f = wrap(lambda d: tnp.stack(list(d.values())).sum(0))

    for i in [*range(300), 0]:
        assert f({f"k{i}": X, "z": Y}).tolist() == (X + Y).tolist()
    assert len(f.tree_calls.tables) <= 256
