"""Second derivatives in an optimizer of torch: Newton's method beside LBFGS and Adam.

    python examples/newton_optimizer.py [--smoke] [--out FOLDER]

A logistic regression on the breast cancer data of scikit-learn (569 patients, 30 measurements).
``hessian`` and ``grad`` of the loss are one compiled function of tensors; Newton's method needs a
handful of them where methods of first order need hundreds of gradients.
"""

from __future__ import annotations

import support
import torch
from sklearn.datasets import load_breast_cancer

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap

CALLS = {"Newton": 12, "LBFGS": 120, "Adam": 400}


def loss(w, x, y):
    """Mean logistic loss with a small penalty; ``y`` is 1 or -1."""
    return tnp.logaddexp(0.0, -y * (x @ w)).mean() + 1e-3 * (w @ w)


loss_of = wrap(loss)
gradient_and_hessian = wrap(lambda w, x, y: (tb.grad(loss)(w, x, y), tb.hessian(loss)(w, x, y)))


class Newton(torch.optim.Optimizer):
    """Full steps along the solution of ``hessian @ step = gradient``."""

    def __init__(self, params, derivatives):
        super().__init__(params, {})
        self.derivatives = derivatives

    @torch.no_grad()
    def step(self, closure):
        value = closure()
        (w,) = self.param_groups[0]["params"]
        gradient, hessian = self.derivatives(w.detach())
        w -= torch.linalg.solve(hessian, gradient)
        return value


def main() -> None:
    """Minimise in three ways, compare, draw."""
    chosen = support.options(__doc__)
    data = load_breast_cancer()
    x = torch.from_numpy(data.data)
    x = torch.cat([(x - x.mean(0)) / x.std(0), torch.ones(len(x), 1)], 1)
    y = torch.from_numpy(data.target * 2.0 - 1.0)
    makers = {
        "Newton": lambda w: Newton([w], lambda w: gradient_and_hessian(w, x, y)),
        "LBFGS": lambda w: torch.optim.LBFGS([w], line_search_fn="strong_wolfe", max_iter=4),
        "Adam": lambda w: torch.optim.Adam([w], lr=0.05),
    }
    curves: dict[str, list[float]] = {}
    for name, make in makers.items():
        w = torch.zeros(x.shape[1], dtype=x.dtype, requires_grad=True)
        optimizer, values = make(w), []

        def closure(w=w, optimizer=optimizer, values=values):
            with torch.enable_grad():
                optimizer.zero_grad()
                value = loss_of(w, x, y)
                value.backward()
            values.append(value.item())
            return value

        while len(values) < CALLS[name]:
            optimizer.step(closure)
        curves[name] = values
    best = min(curves["Newton"])
    print(
        f"least loss {best:.12f}, the right class for {((x @ w).sign() == y).double().mean():.1%}"
    )
    rows = [(n, float(len(v)), min(v) - best) for n, v in curves.items()]
    support.table(("method", "evaluations", "loss above the least"), rows)
    axes = support.canvas(
        "Logistic regression", "evaluations", "loss above the least", yscale="log"
    )
    for name, values in curves.items():
        axes.plot([max(v - best, 1e-16) for v in values], label=name)
    support.save(axes, chosen.out / "newton_optimizer.png")

    again = torch.func.hessian(lambda w: torch.logaddexp(0 * y, -y * (x @ w)).mean() + 1e-3 * w @ w)
    w = w.detach()
    assert torch.allclose(again(w), gradient_and_hessian(w, x, y)[1])
    seconds = 0.1 if chosen.smoke else 2.0
    ours = support.best_time(lambda: gradient_and_hessian(w, x, y), seconds)
    theirs = support.best_time(lambda: again(w), seconds)
    rows = [("tracebridge, gradient too", ours, 1.0), ("torch.func.hessian", theirs, theirs / ours)]
    support.table(("Hessian of 31 variables", "us", "times ours"), rows)


if __name__ == "__main__":
    main()
