"""Chapter 14: a training step by step, and a number for each head."""

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab._texts import literal
from mha_lab.plot._heatmap import attention_heatmap
from mha_lab.plot._page import DASHES


def training_lines(
    steps: Sequence[int], lines: Mapping[str, Sequence[int | float]], *, ax: Axes | None = None
) -> Axes:
    """What was measured during a training, one line for each name, each with marks of its own.

    Args:
        steps: the steps at which it was measured, from small to large.
        lines: for each name, a number for each step; up to four names.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    >>> training_lines([0, 50], {"loss": [4.16, 0.08]}).get_label()
    'Lines over the training steps 0 to 50: loss 4.16 at 0, 0.08 at 50.'
    """
    if not steps or list(steps) != sorted(set(steps)):
        expect.fail(ValueError, "steps", "at least one number, each larger than the last", list(steps))
    if not 1 <= len(lines) <= len(DASHES):
        expect.fail(ValueError, "lines", f"1 to {len(DASHES)} lines", len(lines))
    for name, numbers in lines.items():
        if len(numbers) != len(steps):
            expect.fail(ValueError, f"lines[{name!r}]", f"{len(steps)} numbers, one a step", len(numbers))
    if ax is None:
        _, ax = plt.subplots(figsize=(6.5, 3.0), layout="constrained")
    told = sorted({*range(0, len(steps), math.ceil(len(steps) / 8)), len(steps) - 1})  # a few, and the last
    described = []
    for i, (name, numbers) in enumerate(lines.items()):
        ax.plot(steps, numbers, "os^D"[i], linestyle=DASHES[i], markersize=3, label=literal(name))
        described.append(f"{name} " + ", ".join(f"{numbers[j]:.2f} at {steps[j]}" for j in told))
    ax.set(xlabel="training step", ylim=(min(0.0, *map(min, lines.values())), None))
    ax.legend()
    ax.set_label(f"Lines over the training steps {steps[0]} to {steps[-1]}: {'; '.join(described)}.")
    return ax


def head_scores(scores: Float[Tensor, "layers heads"], title: str, *, ax: Axes | None = None) -> Axes:
    """A number from 0 to 1 for each head of a model: a row for each layer, a column for each head.

    Args:
        scores: ``(layers, heads)``.
        title: what the numbers are.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    >>> import torch
    >>> head_scores(torch.tensor([[0.1, 0.2], [0.9, 0.3]]), "score").get_label()
    'score of 2 layers by 2 heads. Highest in layer 0: 0.20, head 1; in layer 1: 0.90, head 0.'
    """
    expect.tensor("scores", scores, "(layers, heads)", min_rank=2, max_rank=2)
    layers, heads = scores.shape
    names = [f"{kind} {i}" for kind, count in (("layer", layers), ("head", heads)) for i in range(count)]
    ax = attention_heatmap(scores, names[:layers], names[layers:], title=title, ax=ax)
    best = "; ".join(
        f"in {name}: {row.max():.2f}, head {row.argmax()}"
        for name, row in zip(names, scores.detach().float(), strict=False)
    )
    ax.set(xlabel="", ylabel="", label=f"{title} of {layers} layers by {heads} heads. Highest {best}.")
    return ax
