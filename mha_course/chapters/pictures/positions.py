"""Chapters 09 and 13: positions, and scores that depend on the distance."""

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab._texts import literal
from mha_lab.masks import causal_mask
from mha_lab.plot._page import INK, WIDEST
from mha_lab.positions import mean_rotary_score


def position_tables(table: Float[Tensor, "n d_model"]) -> Sequence[Axes] | np.ndarray:
    """A table of positions, and beside it the dot products of all pairs of its rows.

    Args:
        table: ``(n, d_model)``, a row for each position.

    >>> import torch
    >>> position_tables(torch.eye(2))[1].get_label()
    'P @ P.mT, 2 by 2 positions: equal along each diagonal to within 0.00. By distance: 0 1.00, 1 0.00.'
    """
    expect.tensor("table", table, "(n, d_model)", min_rank=2, max_rank=2)
    products = table @ table.mT
    axes = plt.subplots(1, 2, figsize=(7.6, 3.5), layout="constrained")[1]
    axes[0].set(title="P", xlabel="column", ylabel="position")
    axes[1].set(title="P @ P.mT", xlabel="position", ylabel="position")
    for ax, numbers in zip(axes, (table.tolist(), products.tolist()), strict=True):
        ax.figure.colorbar(ax.imshow(numbers, cmap="cividis", aspect="auto"), ax=ax, label="entry")
    n, d_model = table.shape
    changes = (table[1:].sign() * table[:-1].sign() < 0).sum(dim=0).tolist()
    axes[0].set_label(
        f"P, {n} positions by {d_model} columns: from {table.min():.2f} to {table.max():.2f}. In its "
        f"columns, the sign changes {', '.join(map(str, changes))} times."
    )
    diagonals = [products.diagonal(distance) for distance in range(n)]
    apart = max((line.max() - line.min()).item() for line in diagonals)
    shown = sorted({0, *(distance for distance in (1, 2, 5, 10, n - 1) if distance < n)})
    told = ", ".join(f"{distance} {diagonals[distance].mean():.2f}" for distance in shown)
    axes[1].set_label(
        f"P @ P.mT, {n} by {n} positions: equal along each diagonal to within {apart:.2f}. "
        f"By distance: {told}."
    )
    return axes


def turned_arrows(
    query: Sequence[float], key: Sequence[float], theta: float, places: Sequence[tuple[int, int]]
) -> Sequence[Axes] | np.ndarray:
    """A query and a key of two numbers before they are turned (dotted), and after (arrows).

    Args:
        query, key: two numbers each.
        theta: the angle for one position, in radians.
        places: for each picture, the positions of query and key.

    >>> turned_arrows((1.0, 0.0), (1.0, 0.0), math.pi / 2, [(1, 0)])[0].get_label()
    'i = 1, j = 0: query turned to (0.00, 1.00), key turned to (1.00, 0.00). Dot product: 0.00.'
    """
    size = {"figsize": (7.6, 3), "layout": "constrained", "sharey": True, "squeeze": False}
    axes = plt.subplots(1, len(places), **size)[1][0]
    reach = 1.2 * max(math.hypot(*pair) for pair in (query, key)) + 1.0
    for ax, (i, j) in zip(axes, places, strict=True):
        turned = []
        for pair, at, name in ((query, i, "query"), (key, j, "key")):
            colour, sign = plot.ROLES[name]
            cos, sin = math.cos(at * theta), math.sin(at * theta)
            right, top = pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos
            ax.plot([0, pair[0]], [0, pair[1]], ":", color=colour)
            ax.quiver(0, 0, right, top, color=colour, angles="xy", scale_units="xy", scale=1)
            ax.text(right, top + 0.3, f"{sign} {name} at {at}", color=colour, ha="center")
            turned.append((right, top))
        (a, b), (c, d) = turned
        told = [
            f"{name} turned to ({_shown(x)}, {_shown(y)})"
            for name, (x, y) in zip(("query", "key"), turned, strict=True)
        ]
        ax.set(title=f"i = {i}, j = {j}", xlim=(-reach, reach), ylim=(-0.5 * reach, reach), aspect="equal")
        ax.set_xlabel("first number of the pair")
        ax.set_label(f"i = {i}, j = {j}: {', '.join(told)}. Dot product: {_shown(a * c + b * d)}.")
    axes[0].set_ylabel("second number of the pair")
    return axes


def last_rows(weights: Mapping[str, Float[Tensor, "n n"]]) -> Sequence[Axes] | np.ndarray:
    """Weights under a causal mask, side by side; the description tells how they fade in each last row.

    Args:
        weights: for each title, ``(n, n)``; what a causal mask hides must be 0.

    >>> import torch
    >>> last_rows({"equal": torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]})[0].get_label()
    'equal: heatmap of weights under a causal mask, 4 by 4. In the last row: distance 0 0.25, 1 0.25, 3 0.25.'
    """
    if not weights:
        expect.fail(ValueError, "weights", "at least one heatmap", "none")
    size = {"figsize": (WIDEST, 3.1), "layout": "constrained", "squeeze": False}
    axes = plt.subplots(1, len(weights), **size)[1][0]
    for ax, (title, numbers) in zip(axes, weights.items(), strict=True):
        n = len(numbers)
        names = [i if i % 4 == 3 else "" for i in range(n)]
        look = {"mask": causal_mask(n), "annotate": False, "cbar": False}
        plot.attention_heatmap(numbers, names, title=title, ax=ax, **look)
        last = numbers[-1].flip(0).tolist()
        shown = sorted({distance for distance in (0, 1, 4, 8, 16, n - 1) if distance < n})
        told = ", ".join(f"{distance} {last[distance]:.2f}" for distance in shown)
        ax.set_label(
            f"{title}: heatmap of weights under a causal mask, {n} by {n}. In the last row: distance {told}."
        )
    return axes


def _shown(number: float) -> str:
    """Two decimals, and no minus in front of 0."""
    return f"{round(number, 2) + 0.0:.2f}"


def rotary_scores(
    frequencies: dict[str, Float[Tensor, " _"]],
    trained: int,
    *,
    n: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How the score depends on the distance, for several rules: ``positions.mean_rotary_score`` as lines.

    Args:
        frequencies: the frequencies of each rule, ``(pairs,)``, by its name.
        trained: the length of the texts in training; a vertical line marks it.
        n: how many distances, counted from 0; ``None`` means ``4 * trained``.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    Source: the layout of Su et al. 2021, figure 2 (there an upper bound).

    >>> import torch
    >>> rotary_scores({"plain": torch.ones(1)}, 2).get_label()[-61:]
    '. plain: 1.00 at 0, -0.42 at 2, 0.75 at 7; lowest -0.99 at 3.'
    """
    expect.whole_number("trained", trained)
    n = 4 * trained if n is None else expect.whole_number("n", n, at_least=trained + 1)
    if not frequencies:
        expect.fail(ValueError, "frequencies", "at least one rule", frequencies)
    scores = {name: mean_rotary_score(theta, n).detach().cpu() for name, theta in frequencies.items()}
    if ax is None:
        _, ax = plt.subplots(figsize=(7.0, 3.6), layout="constrained")
    described = []
    for i, (name, line) in enumerate(scores.items()):
        style = ("-", "--", "-.", ":", (0, (7, 2, 1, 2, 1, 2)))[i % 5]
        ax.plot(line.numpy(), linestyle=style, label=literal(name))
        shown = ", ".join(f"{line[m]:.2f} at {m}" for m in (0, trained, n - 1))
        described.append(f"{name}: {shown}; lowest {line.min():.2f} at {line.argmin()}.")
    ax.axvline(trained, color=INK, linewidth=1)
    where = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    ax.annotate(f"trained length {trained}", (trained, 0), (4, 4), **where)
    ax.set(xlabel="distance from query to key", ylabel="mean rotary score")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=5, frameon=False)
    start = f"Lines of the mean rotary score for distances 0 to {n - 1}; the trained length is {trained}."
    ax.set_label(" ".join([start, *described]))
    return ax
