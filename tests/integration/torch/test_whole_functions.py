"""Functions that torch does not export are translated whole: values and gradients of torch."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional

import tracebridge as tb
from tracebridge.torch import from_module, from_torch, to_torch, train_step

LABELS = torch.tensor([[1, 1, 2, 2], [3, 5, 1, 1], [4, 4, 4, 1]])
INPUTS, TARGETS = torch.tensor([12, 10, 11]), torch.tensor([4, 2, 3])


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, fun: Any) -> None:
        super().__init__()
        self.fun = fun

    def forward(self, *args: Any) -> Any:
        return self.fun(*args)


def check(fun: Any, *args: torch.Tensor) -> None:
    """Every result and the gradients of the first are torch's."""
    model = from_module(Function(fun), args)
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in args]
    expected = fun(*leaves)
    first = expected[0] if isinstance(expected, tuple) else expected
    weights = torch.randn(first.shape, dtype=first.dtype)
    floats = [i for i, x in enumerate(args) if x.is_floating_point()]
    slopes = torch.autograd.grad((first * weights).sum(), [leaves[i] for i in floats])
    arrays = [from_torch(x) for x in args]

    def total(*values: Any) -> Any:
        given = list(arrays)
        for i, x in zip(floats, values, strict=True):
            given[i] = x
        result = model({}, *given)
        result = result[0] if isinstance(result, tuple) else result
        return (result * from_torch(weights)).sum()

    actual = to_torch(model({}, *arrays))
    ours = to_torch(tb.grad(total, tuple(range(len(floats))))(*[arrays[i] for i in floats]))

    torch.testing.assert_close(actual, torch.utils._pytree.tree_map(_detached, expected))
    torch.testing.assert_close(ours, slopes, rtol=1e-9, atol=1e-9)


def _detached(x: torch.Tensor) -> torch.Tensor:
    return x.detach()


def log_probs(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(12, 3, 6, dtype=dtype).log_softmax(-1)


@pytest.mark.parametrize(
    "options",
    [
        {"reduction": "none", "zero_infinity": True},
        {"reduction": "sum"},
        {"blank": 0},
    ],
    ids=str,
)
def test_ctc_loss(options: dict[str, Any]) -> None:
    """Padded labels, an input that is too short for its labels, and no labels at all."""
    short = torch.tensor([2 if options.get("zero_infinity") else 12, 10, 11])

    check(
        lambda x, y, m, n: functional.ctc_loss(x, y, m, n, **options),
        log_probs(), LABELS, short, torch.tensor([4, 0, 3]),
    )  # fmt: skip


def test_ctc_loss_of_other_forms() -> None:
    """Labels one after the other, numbers as lengths, another blank."""
    check(
        lambda x, y: torch.nn.CTCLoss(blank=5)(x, y, (12, 10, 11), (4, 2, 3)),
        log_probs(), LABELS.clamp(0, 4).flatten()[:9],
    )  # fmt: skip


def test_ctc_loss_of_one_sequence() -> None:
    """Without an axis for the batch."""
    check(functional.ctc_loss, log_probs()[:, 0], LABELS[0], INPUTS[0], TARGETS[0])


def test_a_step_of_training_by_ctc_loss() -> None:
    """The loss of ``train_step`` is what torch computes, and goes down."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LogSoftmax(-1))
    x = torch.randn(12, 3, 4)
    loss = partial(functional.ctc_loss, input_lengths=(12, 10, 11), target_lengths=(4, 2, 3))
    expected = float(loss(net(x), LABELS).detach())
    step = train_step(net, loss, torch.optim.SGD(net.parameters(), lr=0.5))

    losses = [float(step(x, LABELS)) for _ in range(3)]

    assert losses[0] == pytest.approx(expected, rel=1e-5)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("driver", [None, "gels", "gelsd"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 5, 3)], ids=str)
def test_least_squares(shape: tuple[int, ...], driver: str | None) -> None:
    """All four results of each driver."""
    a = torch.randn(shape, dtype=torch.float64)
    b = torch.randn((*shape[:-1], 2), dtype=torch.float64)

    check(lambda a, b: tuple(torch.linalg.lstsq(a, b, driver=driver)), a, b)


_lstsq = partial(torch.linalg.lstsq, driver="gelsd")


def test_least_squares_of_lower_rank() -> None:
    """The solution of the smallest norm, and the rank by a bound."""
    # Not the default driver: torch hands LAPACK's gelsy pivots that nobody has set, and with the
    # same numbers the rank is 1 in one call of a hundred.
    numbers = torch.Generator().manual_seed(0)
    a = torch.randn(5, 2, dtype=torch.float64, generator=numbers)
    a = torch.cat([a, a[:, :1]], dim=1)

    check(lambda a, b: tuple(_lstsq(a, b, rcond=1e-8))[::2], a, a[:, :2] + 1)


ROWS = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
COUNTS = torch.tensor([1, 2, 1, 3, 1, 2])
SHARES = torch.linspace(0.2, 1.0, 6, dtype=torch.float64)


@pytest.mark.parametrize(
    "fun",
    [
        torch.cov,
        lambda x: x.cov(correction=0),
        lambda x: torch.cov(x[0]),
        lambda x: torch.cov(x, fweights=COUNTS, correction=2),
        lambda x: torch.cov(x, aweights=SHARES),
        lambda x: torch.cov(x, fweights=COUNTS, aweights=SHARES),
        torch.corrcoef,
        lambda x: x[:2].corrcoef() * x.sum(),
    ],
)
def test_covariances_are_torchs(fun: Any) -> None:
    """Torch does not export covariances; they are translated with weights and corrections."""
    check(fun, ROWS)


def test_a_covariance_of_complex_rows_conjugates_the_second_one() -> None:
    """The matrix is Hermitian, and correlations are bounded in both parts."""
    x = torch.complex(ROWS, ROWS.flip(0))
    for fun in (torch.cov, torch.corrcoef):
        model = from_module(Function(fun), (x,))
        torch.testing.assert_close(to_torch(model({}, from_torch(x))), fun(x))


@pytest.mark.parametrize(("size", "again"), [(2, False), (3, True), (7, False), (0, False)])
def test_combinations_are_those_of_torch(size: int, again: bool) -> None:
    """Their number is known with the size, so that they are an index."""
    check(lambda x: torch.combinations(x[0], size, again) * 2 + x.sum(), ROWS)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_gaussian_likelihood_has_torchs_gradient_below_the_bound(
    full: bool, reduction: str
) -> None:
    """Variances below the bound are the bound, with the gradient of one that is not clamped."""
    var = ROWS.abs()
    var[0, 0] = 0.0
    loss = partial(functional.gaussian_nll_loss, full=full, eps=1e-3, reduction=reduction)
    check(loss, ROWS, ROWS.flip(1), var)
    check(loss, ROWS, ROWS.flip(1), var[:, 0])


def test_a_variance_of_another_shape_is_refused_as_torch_refuses_it() -> None:
    """The complaints that shapes allow stay."""
    model = Function(functional.gaussian_nll_loss)
    with pytest.raises(Exception, match="var is of incorrect size"):
        from_module(model, (ROWS, ROWS, ROWS[:2]))
