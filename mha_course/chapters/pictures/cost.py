"""Chapter 08: attention block by block, and how time and memory grow."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from torch import Tensor

from mha_course.chapters.cost import growth_exponent
from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab.plot._page import WIDEST


def blocks_of_keys(
    weights: Float[Tensor, "n_q n_k"],
    labels: Sequence[object],
    block: int,
    *,
    mask: Bool[Tensor, "n_q n_k"] | None = None,
) -> Axes:
    """A heatmap of weights in which thick lines divide the keys into blocks.

    Args:
        weights: ``(n_q, n_k)``.
        labels: the names of the tokens.
        block: how many keys are in a block; the last block can have fewer.
        mask: boolean, ``True`` = may attend.

    >>> import torch
    >>> blocks_of_keys(torch.eye(3), "a b c".split(), 2).get_label()[-61:]
    '2 blocks: thick lines divide the keys into blocks of 2 and 1.'
    """
    expect.whole_number("block", block)
    ax = plot.attention_heatmap(weights, labels, mask=mask)
    n_k = weights.shape[1]
    borders = range(block, n_k, block)
    for border in borders:
        ax.axvline(border, color="black", linewidth=3)
    sizes = [min(block, n_k - start) for start in range(0, n_k, block)]
    ax.set_title(f"{len(sizes)} blocks of keys")
    listed = ", ".join(map(str, sizes[:-1])) + " and " * (len(sizes) > 1) + str(sizes[-1])
    ax.set_label(
        f"{ax.get_label()} {len(sizes)} blocks: thick lines divide the keys into blocks of {listed}."
    )
    return ax


def growth_lines(
    lengths: Sequence[int], measured: Mapping[str, Mapping[str, Sequence[int | float]]]
) -> Sequence[Axes] | np.ndarray:
    """Measurements against the length on two logarithmic axes, with the straight line that fits each best.

    Args:
        lengths: numbers of tokens, from small to large.
        measured: for the label of each picture, and each function's name in it, a number for each length.

    >>> growth_lines([1, 2, 4], {"time": {"a": [1, 4, 16]}})[0].get_label()
    'Log-log plot of time for 1 to 4 tokens, with fitted lines. a: 1 to 16, exponent 2.0.'
    """
    if not measured:
        expect.fail(ValueError, "measured", "at least one picture", "none")
    size = {"figsize": (WIDEST, 5), "layout": "constrained", "squeeze": False}
    axes = plt.subplots(1, len(measured), **size)[1][0]
    for ax, (label, table) in zip(axes, measured.items(), strict=True):
        told = []
        for (name, numbers), marker, dashes in zip(
            table.items(), "os^vD", ["-", "--", ":", "-.", "-"], strict=False
        ):
            slope = growth_exponent(lengths, numbers)
            (points,) = ax.loglog(lengths, numbers, marker, label=f"{name}: exponent {slope:.1f}")
            start = np.mean(np.log(numbers)) - slope * np.mean(np.log(lengths))
            ax.loglog(lengths, np.exp(start + slope * np.log(lengths)), dashes, color=points.get_color())
            told.append(f"{name}: {numbers[0]:.3g} to {numbers[-1]:.3g}, exponent {slope:.1f}.")
        ax.minorticks_off()
        ax.set_xticks(lengths, lengths)
        ax.set(xlabel="n (tokens)", ylabel=label)
        ax.legend(title="points measured, lines fitted", loc=9, bbox_to_anchor=(0.5, -0.15))
        span = f"{lengths[0]:,} to {lengths[-1]:,} tokens"
        ax.set_label(f"Log-log plot of {label} for {span}, with fitted lines. {' '.join(told)}")
    return axes
