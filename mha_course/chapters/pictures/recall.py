"""Chapter 07: trainings, and heads that answer questions about two records."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from jaxtyping import Float, Int64
from matplotlib.axes import Axes
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab._texts import Labels, literal
from mha_lab.plot._heatmap import head_heatmaps
from mha_lab.plot._page import DASHES, LINES

LOOKS = dict(zip(DASHES, ("solid", "dashed", "dashes and dots", "dotted"), strict=True))


def loss_curves_data(
    curves: Mapping[str, Sequence[Sequence[float]]], mark: tuple[str, float] | None = None
) -> dict[str, str]:
    """Where the curves of each name end, in words that are the same for small differences.

    The end of a curve is its mean over the last tenth of its steps.

    >>> loss_curves_data({"a": [[2.0, 0.7], [2.0, 0.75]], "b": [[2.0, 0.0]]}, ("ln 2", 0.69))
    {'a': 'all end near ln 2', 'b': 'all end near 0'}
    """
    lines = sorted([("0", 0.0), *([mark] if mark else [])], key=lambda line: line[1])
    said = {}
    for name, group in curves.items():
        places: dict[str, int] = {}
        for curve in group:
            last = curve[-max(1, len(curve) // 10) :]
            end = sum(last) / len(last)
            near = [line for line, level in lines if abs(level - end) < 0.15]
            over = [line for line, level in lines if level < end]
            under = [line for line, level in lines if level >= end]
            place = f"near {near[0]}" if near else f"above {over[-1]}"
            if not near and under:
                place = f"between {over[-1]} and {under[0]}"
            places[place] = places.get(place, 0) + 1
        counted = ("all" if count == len(group) else str(count) for count in places.values())
        said[name] = ", ".join(f"{some} end {place}" for some, place in zip(counted, places, strict=True))
    return said


def loss_curves(
    curves: Mapping[str, Sequence[Sequence[float]]],
    title: str | None = None,
    *,
    mark: tuple[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Losses against the training step, with a line for each training run and a look for each name.

    Args:
        curves: for each of up to 4 names, the losses of one or more runs, one number for each step.
        title: what stands above the picture.
        mark: a name and a loss; a dotted line is drawn there.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    >>> loss_curves({"one head": [[2.3, 0.7]], "two heads": [[2.3, 0.0]]}).get_label()[-49:]
    'The mean of all losses is smallest for two heads.'
    """
    if not 1 <= len(curves) <= len(DASHES):
        expect.fail(ValueError, "curves", f"1 to {len(DASHES)} names", len(curves))
    for name, group in curves.items():
        if not len(group) or not all(len(curve) for curve in group):
            expect.fail(ValueError, f"curves[{name!r}]", "at least one run of at least one step", "none")
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
    colours = LINES
    for (name, group), colour, dashes in zip(curves.items(), colours, DASHES, strict=False):
        for number, curve in enumerate(group):
            label = literal(name) if number == 0 else None
            ax.plot(list(curve), color=colour, linestyle=dashes, linewidth=1, label=label)
    if mark:
        ax.axhline(mark[1], color="0.4", linestyle=":", linewidth=1)
        ax.text(0, mark[1] - 0.05, literal(mark[0]), va="top", fontsize="small")
    top = max(max(curve) for group in curves.values() for curve in group)
    ax.set(
        xlabel="step",
        ylabel="loss (nats per answer)",
        title=literal(title),
        ylim=(-0.05, max(1.05 * top, 0.1)),
    )
    ax.legend()
    ends = loss_curves_data(curves, mark)
    each = "; ".join(
        f"{name} ({_count(len(curves[name]), 'run')}, {LOOKS[dashes]}): {end}"
        for (name, end), dashes in zip(ends.items(), DASHES, strict=False)
    )
    mean = {name: np.mean([np.mean(curve) for curve in group]) for name, group in curves.items()}
    least = f" The mean of all losses is smallest for {min(mean, key=mean.get)}." if len(curves) > 1 else ""
    ax.set_label(f"{title or 'Losses'}: loss against training step. {each}.{least}")
    return ax


def asked_heatmaps_data(weights: Float[Tensor, "questions n"], asked: Int64[Tensor, "questions 2"]) -> str:
    """How one head shares its weight between the records asked for first and second, in words.

    Three cases are told apart for each question: two weights that differ by less than 0.2, one of 0.85 or
    more, and what is between these.

    >>> asked_heatmaps_data(torch.tensor([[0.9, 0.1, 0.0]]), torch.tensor([[0, 1]]))
    'in every row, nearly all weight is on the record asked for first'
    """
    said: dict[str, int] = {}
    for row in weights.gather(1, asked).tolist():
        more = "first" if row[0] > row[1] else "second"
        if max(row) >= 0.85:
            told = f"nearly all weight is on the record asked for {more}"
        elif abs(row[0] - row[1]) < 0.2:
            told = "the two records asked for have nearly the same weight"
        else:
            told = f"the record asked for {more} has the larger of two unequal weights"
        said[told] = said.get(told, 0) + 1
    if len(said) == 1:
        return f"in every row, {next(iter(said))}"
    return "; ".join(f"in {_count(count, 'row')}, {told}" for told, count in said.items())


def asked_heatmaps(
    weights: Mapping[str, Float[Tensor, "questions n"]],
    asked: Int64[Tensor, "questions 2"],
    query_labels: Labels | None = None,
    key_labels: Labels | None = None,
) -> np.ndarray:
    """Heads that answer questions about two records, two in a line; the description is about these records.

    Weights after a training differ a little from computer to computer. So the description has no weights, as
    that of ``head_heatmaps`` has, but says how each head shares its weight between the two records.

    Args:
        weights: for each title, the weights of one head, ``(questions, n)``.
        asked: for each question, the column of the record asked for first, and that of the second.
        query_labels, key_labels: as in ``attention_heatmap``.

    Returns:
        A flat array with an ``Axes`` for each head.

    >>> axes = asked_heatmaps({"a head": torch.eye(3)[:2]}, torch.tensor([[0, 1], [0, 1]]))
    >>> axes[0].get_label().split("; ")[1]
    'in 1 row, nearly all weight is on the record asked for second.'
    """
    if not weights:
        expect.fail(ValueError, "weights", "at least one head", "none")
    expect.tensor("asked", asked, "(questions, 2)", min_rank=2, max_rank=2)
    for name, rows in weights.items():
        expect.tensor(f"weights[{name!r}]", rows, "(questions, n)", min_rank=2, max_rank=2)
        if asked.shape != (len(rows), 2):
            expect.fail(ValueError, "asked", f"({len(rows)}, 2)", expect.shape(asked.shape))
    titles = list(weights)
    axes = head_heatmaps(
        torch.stack(list(weights.values())), query_labels, key_labels, titles=titles, columns=2
    )
    for ax, (title, rows) in zip(axes, weights.items(), strict=True):
        ax.set_label(f"{title}: {asked_heatmaps_data(rows, asked)}.")
    return axes


def _count(number: int, what: str) -> str:
    """``1 run``, ``5 runs``."""
    return f"{number} {what}" + "s" * (number != 1)
