"""Fit a state space model: the likelihood of a Kalman filter, maximised by an optimizer of torch.

    python examples/kalman_fit.py [--smoke] [--out FOLDER]

The flow of the Nile at Aswan, 1871 to 1970 (10^8 m^3 a year), as a level that drifts and is
measured with noise: an example of Durbin and Koopman, Time Series Analysis by State Space Methods.
The filter is one ``scan``, compiled once with its gradient; a loop in torch runs each step alone.
"""

from __future__ import annotations

import numpy as np
import support
import torch

import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.torch import wrap

NILE = """
1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100
1210 1150 1250 1260 1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456 824
702 1120 1100 832 764 821 768 845 864 862 698 845 744 796 1040 759 781 865 845 944 984 897 822 1010
771 676 649 846 812 742 801 1040 860 874 848 890 744 749 838 1050 918 986 797 923 975 815 1020 906
901 1170 912 746 919 718 714 740"""


def kalman(log_variances, flow):
    """Negative log likelihood given the first value, and the level before each later one."""
    noise, drift = tnp.exp(log_variances)

    def step(state, value):
        level, variance = state
        total = variance + noise
        gain, surprise = variance / total, value - level
        state = level + gain * surprise, variance * (1 - gain) + drift
        return state, (0.5 * (tnp.log(2 * tnp.pi * total) + surprise**2 / total), level)

    _, (losses, levels) = lax.scan(step, (flow[0], noise + drift), flow[1:])
    return losses.sum(), levels


def torch_loss(log_variances, flow):
    """The same loss as a loop in torch."""
    noise, drift = log_variances.exp()
    level, variance, loss = flow[0], noise + drift, 0.0
    for value in flow[1:]:
        total = variance + noise
        gain, surprise = variance / total, value - level
        loss = loss + 0.5 * (torch.log(2 * torch.pi * total) + surprise**2 / total)
        level, variance = level + gain * surprise, variance * (1 - gain) + drift
    return loss


def main() -> None:
    """Fit, compare times, draw."""
    chosen = support.options(__doc__)
    flow = torch.tensor([float(v) for v in NILE.split()], dtype=torch.float64)
    filtered = wrap(kalman)
    theta = torch.log(flow.var() * torch.ones(2, dtype=torch.float64)).requires_grad_()
    optimizer = torch.optim.LBFGS([theta], max_iter=50, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss, _ = filtered(theta, flow)
        loss.backward()
        return loss

    optimizer.step(closure)
    loss, levels = filtered(theta.detach(), flow)
    noise, drift = theta.detach().exp().tolist()
    print(f"variance of the noise {noise:.0f}, of the drift {drift:.0f} (published: 15099, 1469)")
    print(f"log likelihood {-loss.item():.2f}")

    seconds = 0.1 if chosen.smoke else 2.0
    torch_theta = theta.detach().clone().requires_grad_()
    ours = support.best_time(closure, seconds)
    theirs = support.best_time(lambda: torch_loss(torch_theta, flow).backward(), seconds)
    support.table(
        ("loss and gradient, 100 steps", "us", "times ours"),
        [("tracebridge", ours, 1.0), ("torch, loop", theirs, theirs / ours)],
    )
    axes = support.canvas("Flow of the Nile at Aswan", "year", "10^8 m^3 a year")
    years = np.arange(1871, 1871 + len(flow))
    axes.plot(years, flow, ".", color="gray", label="measured")
    axes.plot(years[1:], levels, label="level, from the years before")
    support.save(axes, chosen.out / "kalman_fit.png")


if __name__ == "__main__":
    main()
