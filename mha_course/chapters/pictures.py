"""Pictures of chapters 04, 08 and 09. Each describes itself, for ``plot.show``, from the numbers it draws."""

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from mha_course.chapters.cost import growth_exponent
from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab.masks import causal_mask

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
    size = {"figsize": (plot.WIDEST, 3.2), "layout": "constrained", "squeeze": False}
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
    size = {"figsize": (plot.WIDEST, 5), "layout": "constrained", "squeeze": False}
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
    size = {"figsize": (plot.WIDEST, 3.1), "layout": "constrained", "squeeze": False}
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
