"""Private training: the gradient of each sample is clipped, noise hides the rest (DP-SGD).

    python examples/private_gradients.py [--smoke] [--out FOLDER]

A softmax regression on handwritten digits. Gradients per sample are one ``vmap(grad(loss))``, and
the clipping, the sum and the noise are compiled with it; ``torch.func`` runs it step by step.
"""

from __future__ import annotations

import support
import torch
from sklearn.datasets import load_digits

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap

BATCH, CLIP, NOISE = 256, 1.0, 0.5


def loss(w, x, label):
    """Cross entropy of one sample."""
    logits = x @ w
    return tnp.log(tnp.exp(logits - logits.max()).sum()) + logits.max() - logits[label]


@wrap
def private_gradient(w, x, labels, noise):
    """Mean of the clipped gradients of the samples, with noise."""
    grads = tb.vmap(tb.grad(loss), in_axes=(None, 0, 0))(w, x, labels)
    norms = tnp.sqrt((grads**2).sum((1, 2), keepdims=True))
    clipped = grads * tnp.minimum(1.0, CLIP / tnp.maximum(norms, 1e-6))
    return (clipped.sum(0) + CLIP * NOISE * noise) / len(labels)


def torch_loss(w, x, label):
    """The same loss in torch, in a form that its ``vmap`` takes."""
    return torch.nn.functional.cross_entropy(x @ w, label)


def torch_gradient(w, x, labels, noise):
    """The same gradient by ``torch.func``."""
    grads = torch.func.vmap(torch.func.grad(torch_loss), in_dims=(None, 0, 0))(w, x, labels)
    norms = grads.flatten(1).norm(dim=1)[:, None, None]
    clipped = grads * (CLIP / norms.clamp_min(1e-6)).clamp_max(1.0)
    return (clipped.sum(0) + CLIP * NOISE * noise) / len(labels)


def main() -> None:
    """Train, compare times, draw."""
    chosen = support.options(__doc__)
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.from_numpy(digits.data / 16.0).float()
    x, labels = torch.cat([x, torch.ones(len(x), 1)], 1), torch.from_numpy(digits.target)
    order = torch.randperm(len(x))
    train, test = order[:1500], order[1500:]
    w, scores = torch.zeros(65, 10), []
    for step in range(60 if chosen.smoke else 600):
        batch = train[torch.randint(len(train), (BATCH,))]
        w = w - 2.0 * private_gradient(w, x[batch], labels[batch], torch.randn_like(w))
        if step % 10 == 9:
            scores.append(((x[test] @ w).argmax(1) == labels[test]).float().mean().item())
    print(f"accuracy on {len(test)} digits that were not trained on: {scores[-1]:.1%}")

    arguments = (w, x[:BATCH], labels[:BATCH], torch.randn_like(w))
    assert torch.allclose(private_gradient(*arguments), torch_gradient(*arguments), atol=1e-6)
    seconds = 0.1 if chosen.smoke else 2.0
    ours = support.best_time(lambda: private_gradient(*arguments), seconds)
    theirs = support.best_time(lambda: torch_gradient(*arguments), seconds)
    rows = [("tracebridge", ours, 1.0), ("torch.func", theirs, theirs / ours)]
    support.table((f"{BATCH} clipped gradients", "us", "times ours"), rows)
    axes = support.canvas("Private training on digits", "step", "accuracy on unseen digits")
    axes.plot(range(10, 10 * len(scores) + 1, 10), scores)
    support.save(axes, chosen.out / "private_gradients.png")


if __name__ == "__main__":
    main()
