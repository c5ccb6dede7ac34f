"""Inverse kinematics: the joint angles with which a robot's arm reaches a point, for many at once.

    python examples/inverse_kinematics.py [--smoke] [--out FOLDER]

Damped least squares (Levenberg and Marquardt) with the Jacobian of ``jacfwd``, in a ``while_loop``
that stops when the hand has arrived, mapped over all points by ``vmap``: one program, called with
tensors. A solver in torch would pay for each operation of each iteration.
"""

from __future__ import annotations

import numpy as np
import support
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.torch import wrap

LENGTHS = np.array([1.0, 0.8, 0.6, 0.4, 0.3, 0.2], np.float32)
TOLERANCE, DAMPING, ITERATIONS = 1e-4, 0.05, 100


def joints(angles):
    """Positions of the joints, (6, 2), each angle relative to the link before."""
    directions = tnp.cumsum(angles)
    links = LENGTHS[:, None] * tnp.stack([tnp.cos(directions), tnp.sin(directions)], axis=1)
    return tnp.cumsum(links, axis=0)


def hand(angles):
    """Position of the last joint."""
    return joints(angles)[-1]


def reach(start, target):
    """Angles that put the hand at ``target``, and how many iterations that took."""

    def away(state):
        angles, count = state
        return (tnp.sum((target - hand(angles)) ** 2) > TOLERANCE**2) & (count < ITERATIONS)

    def improve(state):
        angles, count = state
        jacobian, missing = tb.jacfwd(hand)(angles), target - hand(angles)
        # The inverse of a symmetric 2x2 matrix, written out.
        a, b, _, c = (jacobian @ jacobian.T + DAMPING**2 * tnp.eye(2)).ravel()
        solved = tnp.array([c * missing[0] - b * missing[1], a * missing[1] - b * missing[0]])
        return angles + jacobian.T @ solved / (a * c - b * b), count + 1

    return lax.while_loop(away, improve, (start, 0))


reach_all = wrap(tb.vmap(reach, in_axes=(None, 0)))
joints_all = wrap(tb.vmap(joints))


def main() -> None:
    """Reach for the points of a flower, report, draw."""
    chosen = support.options(__doc__)
    n = 60 if chosen.smoke else 1000
    turn = torch.linspace(0.0, 2 * torch.pi, n)
    radius = 1.6 + 0.9 * torch.cos(5 * turn)
    targets = torch.stack([radius * torch.cos(turn), radius * torch.sin(turn)], 1)
    start = torch.full((len(LENGTHS),), 0.3)
    angles, counts = reach_all(start, targets)
    arms = joints_all(angles)
    miss = (arms[:, -1] - targets).norm(dim=1)
    arrived = (miss <= TOLERANCE).float().mean().item()
    time = support.best_time(lambda: reach_all(start, targets), 0.1 if chosen.smoke else 2.0)
    rows = [
        ("points reached", f"{arrived:.1%}"),
        ("iterations, mean", counts.double().mean().item()),
        ("iterations, most", counts.max().item()),
        ("largest distance that is left", miss.max().item()),
        ("microseconds per point", time / n),
    ]
    support.table((f"{n} points", ""), rows)
    axes = support.canvas("An arm of six links follows a flower", "x", "y", aspect="equal")
    axes.plot(*targets.T, ".", ms=2, color="gray")
    for arm in torch.cat([torch.zeros(n, 1, 2), arms], 1)[:: max(1, n // 15)]:
        axes.plot(*arm.T, "o-", ms=2, lw=0.8, color="tab:blue")
    support.save(axes, chosen.out / "inverse_kinematics.png")


if __name__ == "__main__":
    main()
