"""A neural ordinary differential equation as a module of torch.

    python examples/neural_ode.py [--smoke] [--out FOLDER]

A small network learns the right-hand side of an equation from one noisy trajectory that spirals.
``odeint`` chooses its steps itself and has its adjoint as its derivative; torch sees a module.
"""

from __future__ import annotations

import numpy as np
import support
import torch
from tqdm import tqdm

import tracebridge.numpy as tnp
from tracebridge.experimental.ode import odeint
from tracebridge.torch import Module, wrap

TIMES = torch.linspace(0.0, 12.0, 100)


def spiral(state, _):
    """The truth: a spiral of the cubes of the coordinates."""
    x, y = state**3
    return tnp.stack([-0.1 * x + 2.0 * y, -2.0 * x - 0.1 * y])


def network(params, state, _):
    """The right-hand side that is learnt."""
    hidden = tnp.tanh((state**3) @ params["w1"] + params["b1"])
    return hidden @ params["w2"]


def trajectory(params, start, times):
    """States of the learnt equation at ``times``, from each of the starts."""
    return odeint(lambda y, t: network(params, y, t), start, times, rtol=1e-4, atol=1e-4)


def main() -> None:
    """Fit, report, draw."""
    chosen = support.options(__doc__)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    truth = wrap(lambda start, times: odeint(spiral, start, times))(torch.tensor([1.6, 0.0]), TIMES)
    measured = truth + 0.03 * torch.randn_like(truth)
    shapes = {"w1": (2, 32), "b1": (32,), "w2": (32, 2)}
    weights = {n: (0.3 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}
    model = Module(trajectory, weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    steps = 30 if chosen.smoke else 1500
    window, losses = 6, []  # short pieces of the trajectory: long ones have many valleys
    starts = torch.arange(len(TIMES) - window)
    pieces = torch.stack([measured[starts + i] for i in range(window)])
    for _ in tqdm(range(steps), desc="fitting", unit="step", disable=None):
        optimizer.zero_grad()
        loss = ((model(measured[starts], TIMES[:window]) - pieces) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        learnt = model(truth[0], TIMES)
        fine = model(truth[0], torch.linspace(0.0, 12.0, 1000))
    error = (learnt - truth).square().mean().sqrt().item()
    rows = [("first step", losses[0] ** 0.5), ("last step", losses[-1] ** 0.5)]
    support.table(("root mean square", "of the pieces"), rows)
    print(f"whole trajectory from its start: root mean square error {error:.3f}")
    axes = support.canvas("Trajectory: measured and learnt", "x", "y")
    axes.plot(*measured.T, ".", color="gray", label="measured")
    axes.plot(*fine.T, label="learnt equation, from the start")
    support.save(axes, chosen.out / "neural_ode.png")


if __name__ == "__main__":
    main()
