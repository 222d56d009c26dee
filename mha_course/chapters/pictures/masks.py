"""Chapter 04: what a change of one token moves."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab.plot._page import WIDEST

MOVED = 1e-6  # a smaller distance comes from rounding
DARKEST = 1.5  # the influence that is drawn in the darkest colour
LEAK = "#d55e00"


def influence_maps(
    influence: Float[Tensor, "functions n n"], titles: Sequence[str]
) -> Sequence[Axes] | np.ndarray:
    """How far each changed token (column) moves each output (row), with a frame where the future leaks.

    Args:
        influence: ``(functions, n, n)``, a map for each function; a cell of at most ``1e-6`` stays empty.
        titles: a text above each map.

    >>> import torch
    >>> influence_maps(torch.tensor([[[1.0, 0.5], [0.0, 1.0]]]), ["leaks"])[0].get_label()[:47]
    'leaks: heatmap of influence, 1 leak. token 0 mo'
    """
    expect.tensor("influence", influence, "(functions, n, n)", min_rank=3, max_rank=3)
    count, n, columns = influence.shape
    if n != columns:
        expect.fail(ValueError, "influence", "as many columns as rows", expect.shape(influence.shape))
    if len(titles) != count:
        expect.fail(ValueError, "titles", f"{count} texts", len(titles))
    size = {"figsize": (WIDEST, 3.2), "layout": "constrained", "squeeze": False}
    axes = plt.subplots(1, count, **size)[1][0]
    for ax, title, numbers in zip(axes, titles, influence.tolist(), strict=True):
        ax.imshow(numbers, cmap=plot.PALETTE, vmin=0, vmax=DARKEST)
        moves = [[(i, numbers[i][j]) for i in range(n) if numbers[i][j] > MOVED] for j in range(n)]
        for j, moved in enumerate(moves):
            for i, number in moved:
                text = f"{number:.2f}" if number >= 0.005 else "<.01"
                ground = plt.get_cmap(plot.PALETTE)(number / DARKEST)
                plot.write_number(ax, i - 0.5, j - 0.5, text, ground)
                if j > i:
                    ax.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, ec=LEAK, lw=2))
        ax.set(xticks=range(n), yticks=range(n), title=title, xlabel="changed token", ylabel="output")
        leaks = sum(j > i for j, moved in enumerate(moves) for i, _ in moved)
        told = "; ".join(
            f"token {j} moves "
            + (
                f"the outputs {', '.join(f'{i} by {number:.2f}' for i, number in moved)}"
                if moved
                else "nothing"
            )
            for j, moved in enumerate(moves)
        )
        ax.set_label(f"{title}: heatmap of influence, {leaks} leak{'s' * (leaks != 1)}. {told}.")
    return axes
