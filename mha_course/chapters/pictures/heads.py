"""Chapter 05: what each head writes to the output."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab._texts import Labels, texts
from mha_lab.plot._heatmap import _draw_cells, _grid, _name_cells, _one_bar
from mha_lab.plot._page import MAX_ANNOTATED, SIGNED, write_number


def contribution_heatmaps(
    contributions: Float[Tensor, "heads n d_model"],
    token_labels: Labels | None = None,
    feature_labels: Labels | None = None,
    *,
    axes: Sequence[Axes] | np.ndarray | None = None,
) -> np.ndarray:
    """What each head writes to the output, and the sum, on one scale: ochre below 0, teal above.

    The scale ends at the next round number (1, 2 or 5 times a power of 10).

    Args:
        contributions: ``(heads, n, d_model)``, as ``head_h @ w_o[rows of h]``.
        token_labels, feature_labels: the labels of rows and columns; ``None`` means positions.
        axes: where to draw, one for each head and one for the sum; ``None`` means a new figure.

    Returns:
        A flat array of ``heads + 1`` ``Axes``; the last one shows the sum, the layer's output.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits" (attention
    heads are independent and additive).

    >>> import torch
    >>> len(contribution_heatmaps(torch.ones(3, 2, 4)))
    4
    """
    expect.tensor("contributions", contributions, "(heads, n, d_model)", min_rank=3, max_rank=3)
    expect.floating("contributions", contributions)
    heads, n, d_model = contributions.shape
    if min(heads, n, d_model) == 0:
        expect.fail(ValueError, "contributions", "at least one head, token and feature", (heads, n, d_model))
    rows = texts("token_labels", token_labels, n)
    columns = texts("feature_labels", feature_labels, d_model)
    parts = [*contributions.detach().double().cpu().numpy()]
    parts.append(sum(parts))
    written = [
        np.char.mod("%.2f", part.round(2) + 0.0) if part.size <= MAX_ANNOTATED else np.full(part.shape, "")
        for part in parts
    ]
    names = [f"head {h} writes" for h in range(heads)] + ["sum: the output"]
    made_here = axes is None
    axes = _grid(heads + 1, 4, written[0], rows + columns) if made_here else np.asarray(axes).reshape(-1)
    if len(axes) != heads + 1:
        expect.fail(ValueError, "axes", f"{heads + 1}, one for each head and one for the sum", len(axes))
    limit = _round_up(max(np.abs(part).max() for part in parts))
    for ax, part, numbers, name in zip(axes, parts, written, names, strict=True):
        _draw_cells(ax, part, SIGNED, (-limit, limit), lines="white")
        _name_cells(ax, rows, columns)
        for row, column in np.argwhere(numbers != "").tolist():
            ground = SIGNED((part[row, column] / limit + 1) / 2)
            write_number(ax, row, column, numbers[row, column], ground)
        row, column = np.unravel_index(np.abs(part).argmax(), part.shape)
        most = f"largest {part[row, column]:.2f}, for {rows[row]} at {columns[column]}"
        ax.set(xlabel="feature", ylabel="token", title=name, label=f"{name}: {n} by {d_model}, {most}.")
    if made_here:
        axes[0].figure.set_figheight(axes[0].figure.get_figheight() + 0.6)
        _one_bar(axes, "contribution", "bottom")
    return axes


def _round_up(number: float) -> float:
    """The next of 1, 2 and 5 times a power of 10; 1 for 0."""
    power = 10.0 ** math.floor(math.log10(number or 1))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= number)
