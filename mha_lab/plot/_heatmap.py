"""Weights as heatmaps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection, QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab._texts import Labels, every, literal, short, texts
from mha_lab.plot._page import HIDDEN_COLOUR, MAX_ANNOTATED, NAN_COLOUR, PALETTE, WIDEST, write_number

MAX_DESCRIBED = 16  # a longer heatmap is described by its first rows
MAX_FRAMED = 100  # a heatmap with more rows or columns has no lines between its cells
BAR = 0.8  # inches of a picture's width, for a colour bar

# A heatmap in words; of two forms, the first is for one, and the second for several.
HEATMAP = "Heatmap of weights, {queries} by {keys}. {rows}."
HEATMAP_TITLED = "{title}: heatmap of weights, {queries} by {keys}. {rows}."
HEATMAP_HIDDEN = "{heatmap} {hidden} of {cells} cells hidden."
QUERIES = "{} query", "{} queries"
KEYS = "{} key", "{} keys"
MORE_QUERIES = "{} more queries"
ROW = "{query}: {weights}"
ROW_HIDDEN = "{query}: all hidden"
ROW_NAN = "{query}: NaN"
ROW_EVEN = "{query}: {weight:.2f} everywhere"


@dataclass(frozen=True)
class HeatmapData:
    """The content of a heatmap, before it is drawn.

    ``values`` is ``(n_q, n_k)``; ``hidden`` says which cells the mask hides; ``annotations`` is the
    text in each cell, empty if there is none.
    """

    values: np.ndarray
    hidden: np.ndarray
    annotations: np.ndarray
    query_labels: list[str]
    key_labels: list[str]


def heatmap_data(
    weights: Float[Tensor, "n_q n_k"],
    query_labels: Labels | None = None,
    key_labels: Labels | None = None,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    annotate: bool | None = None,
) -> HeatmapData:
    """The data that ``attention_heatmap`` draws; see there for the arguments and errors."""
    expect.tensor("weights", weights, "(n_q, n_k); weights[0, 0] is one head", min_rank=2, max_rank=2)
    expect.floating("weights", weights)
    expect.sequence("weights", weights)
    expect.sequence("weights", weights, axis=-1)
    hidden = torch.zeros(weights.shape, dtype=torch.bool)
    if mask is not None:
        expect.mask_for(mask, weights.shape, weights.device)
        hidden = ~mask.expand(weights.shape).cpu()
    values = weights.detach().double().cpu().numpy()
    if key_labels is None and query_labels is not None and values.shape[0] == values.shape[1]:
        key_labels = query_labels
    if annotate is None:
        annotate = values.size <= MAX_ANNOTATED
    written = np.full(values.shape, annotate) & ~hidden.numpy()
    text = np.where(np.isnan(values), "NaN", np.char.mod("%.2f", values)) if written.any() else ""
    return HeatmapData(
        values=values,
        hidden=hidden.numpy(),
        annotations=np.where(written, text, ""),
        query_labels=texts("query_labels", query_labels, values.shape[0]),
        key_labels=texts("key_labels", key_labels, values.shape[1]),
    )


def describe(data: HeatmapData, title: str | None = None) -> str:
    """A heatmap in words: for each query the keys with the largest weights, and how many cells are hidden.

    >>> describe(heatmap_data(torch.tensor([[0.9, 0.1]]), ["dog"], ["a", "cat"]))
    'Heatmap of weights, 1 query by 2 keys. dog: a 0.90.'
    """
    n_q, n_k = data.values.shape
    queries = enumerate(data.query_labels[:MAX_DESCRIBED])
    rows = [_describe_row(label, data.values[i], data.hidden[i], data.key_labels) for i, label in queries]
    rows += [MORE_QUERIES.format(n_q - MAX_DESCRIBED)] if n_q > MAX_DESCRIBED else []
    sizes = {"queries": QUERIES[n_q != 1].format(n_q), "keys": KEYS[n_k != 1].format(n_k)}
    heatmap = (HEATMAP_TITLED if title else HEATMAP).format(title=title, rows="; ".join(rows), **sizes)
    if not data.hidden.any():
        return heatmap
    return HEATMAP_HIDDEN.format(heatmap=heatmap, hidden=data.hidden.sum(), cells=data.hidden.size)


def _describe_row(query: str, weights: np.ndarray, hidden: np.ndarray, labels: list[str]) -> str:
    visible = np.flatnonzero(~hidden)
    if not len(visible):
        return ROW_HIDDEN.format(query=query)
    if np.isnan(weights[visible]).any():
        return ROW_NAN.format(query=query)
    low, high = weights[visible].min(), weights[visible].max()
    if len(visible) > 1 and high - low < 0.005:
        return ROW_EVEN.format(query=query, weight=high)
    largest = sorted(visible, key=lambda j: -round(float(weights[j]), 2))[:3]  # a tie goes to the first
    told = [j for j in largest if weights[j] >= max(0.15, high / 5)] or largest[:1]
    return ROW.format(query=query, weights=", ".join(f"{labels[j]} {weights[j]:.2f}" for j in told))


def attention_heatmap(
    weights: Float[Tensor, "n_q n_k"],
    query_labels: Labels | None = None,
    key_labels: Labels | None = None,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    annotate: bool | None = None,
    title: str | None = None,
    cbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One head's weights: a row for each query, a column for each key.

    The scale is fixed: white is 0, the darkest colour is 1. Grey hatched cells are hidden by ``mask``; red is
    NaN.

    Args:
        weights: ``(n_q, n_k)``.
        query_labels, key_labels: the labels of rows and columns; ``None`` means the positions or,
            for the keys of a square heatmap, the same as the queries. They are shown as typed.
        mask: boolean, ``True`` = may attend, broadcastable to ``(n_q, n_k)``.
        annotate: write the numbers into the cells; ``None`` means up to 100 cells.
        title: the text above the heatmap.
        cbar: draw the colour bar.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    Source: the layout of Bahdanau et al. 2015, figure 3 (there with queries as rows, too).

    >>> attention_heatmap(torch.eye(2), ["the", "cat"]).get_xlabel()
    'key'
    """
    data = heatmap_data(weights, query_labels, key_labels, mask=mask, annotate=annotate)
    if ax is None:
        size = (1.6 + 0.62 * data.values.shape[1] + 0.9 * cbar, 1.2 + 0.62 * data.values.shape[0])
        _, ax = plt.subplots(figsize=np.clip(size, 2.6, WIDEST), layout="constrained")
    return _draw_heatmap(data, ax, title=title, cbar=cbar)


def head_heatmaps(
    weights: Float[Tensor, "heads n_q n_k"],
    query_labels: Labels | None = None,
    key_labels: Labels | None = None,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    annotate: bool | None = None,
    titles: Labels | None = None,
    columns: int = 4,
    axes: Sequence[Axes] | np.ndarray | None = None,
) -> np.ndarray:
    """All heads of one sample side by side, on one scale from 0 to 1.

    Args:
        weights: ``(heads, n_q, n_k)``; ``weights[0]`` picks a sample of a batch.
        query_labels, key_labels: as in ``attention_heatmap``.
        mask: boolean, ``True`` = may attend, broadcastable to ``(heads, n_q, n_k)``.
        annotate: as in ``attention_heatmap``.
        titles: one for each head; ``None`` means "head 0", "head 1", ...
        columns: how many heads to draw in a row, at most; a row has as many as can be read on a page.
        axes: where to draw, one for each head; ``None`` means a new figure with one colour bar.

    Returns:
        A flat array with an ``Axes`` for each head.

    Source: the layout of Vaswani et al. 2017, figures 3 to 5 (one picture a head).

    >>> len(head_heatmaps(torch.eye(2).expand(3, 2, 2)))
    3
    """
    expect.tensor("weights", weights, "(heads, n_q, n_k); weights[0] is one sample", min_rank=3, max_rank=3)
    expect.whole_number("columns", columns)
    heads = weights.shape[0]
    if heads == 0:
        expect.fail(ValueError, "weights", "at least one head", expect.shape(weights.shape))
    if mask is not None:
        expect.mask_for(mask, weights.shape, weights.device)
        mask = mask.expand(weights.shape)
    titles = texts("titles", titles, heads, "head {}", titles=True)
    data = [
        heatmap_data(
            weights[h],
            query_labels,
            key_labels,
            mask=None if mask is None else mask[h],
            annotate=annotate,
        )
        for h in range(heads)
    ]
    made_here, labels = axes is None, data[0].query_labels + data[0].key_labels
    if made_here:
        axes = _grid(heads, columns, data[0].annotations, labels, BAR)
    axes = np.asarray(axes).reshape(-1)
    if len(axes) != heads:
        expect.fail(ValueError, "axes", f"one for each of {heads} heads", len(axes))
    for head, title, ax in zip(data, titles, axes, strict=True):
        _draw_heatmap(head, ax, title=title, cbar=False)
    if made_here:
        _one_bar(axes, "weight")
    return axes


def _grid(heads: int, columns: int, texts: np.ndarray, labels: list[str], bar: float = 0.0) -> np.ndarray:
    """A figure with a place for each head, at most ``columns`` in a row; a cell without a text is smaller."""
    n_q, n_k = texts.shape
    cell = 0.42 if texts.any() else 0.2
    beside = 1.0 + 0.08 * max(0, max(map(len, map(short, labels))) - 8)  # inches, for labels
    most = (WIDEST - BAR) / (2 if beside == 1.0 else 1)
    width, height = np.clip(beside + cell * np.array([n_k, n_q]), 2.2, most)
    columns = min(columns, heads, int((WIDEST - bar) / width))
    rows = math.ceil(heads / columns)
    size = (width * columns + bar, height * rows)
    _, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for spare in grid.flat[heads:]:
        spare.set_visible(False)
    return grid.flat[:heads]


def _one_bar(axes: np.ndarray, label: str, place: str = "right") -> None:
    """One colour bar for a figure of heatmaps on one scale."""
    drawn, look = axes[0].collections[0], {"fraction": 0.04, "pad": 0.02, "label": label}
    axes[0].figure.colorbar(drawn, ax=list(axes), location=place, **look)


def _draw_heatmap(data: HeatmapData, ax: Axes, *, title: str | None, cbar: bool) -> Axes:
    missing = np.isnan(data.values) & ~data.hidden
    ax.set_aspect("equal")
    values = np.ma.masked_where(data.hidden | missing, data.values)
    drawn = _draw_cells(ax, values, PALETTE, (0.0, 1.0), lines="0.8")
    if cbar:
        ax.figure.colorbar(drawn, ax=ax, label="weight").outline.set_linewidth(0)
    _cover(ax, data.hidden, facecolor=HIDDEN_COLOUR, edgecolor="0.6", hatch="////")
    _cover(ax, missing, facecolor=NAN_COLOUR, edgecolor="white")
    for row, column in np.argwhere(data.annotations != "").tolist():
        ground = NAN_COLOUR if missing[row, column] else PALETTE(data.values[row, column])
        write_number(ax, row, column, data.annotations[row, column], ground)
    _name_cells(ax, data.query_labels, data.key_labels)
    ax.set(xlabel="key", ylabel="query", title=literal(title), label=describe(data, title))
    return ax


def _draw_cells(
    ax: Axes, values: np.ndarray, colours: LinearSegmentedColormap, ends: tuple[float, float], *, lines: str
) -> QuadMesh:
    """A cell for each number, row 0 on top, as seaborn has it, whose heatmap draws the figure each time."""
    sns.despine(ax=ax, left=True, bottom=True)
    width = 0.5 if max(values.shape) <= MAX_FRAMED else 0
    look = {"linewidths": width, "edgecolors": lines if width else "none"}
    drawn = ax.pcolormesh(values, cmap=colours, vmin=ends[0], vmax=ends[1], **look)
    ax.set(xlim=(0, values.shape[1]), ylim=(values.shape[0], 0))
    return drawn


def _name_cells(ax: Axes, rows: list[str], columns: list[str]) -> None:
    """Labels beside rows and columns: of many, as many as have room."""
    width, height = 0.75 * np.array(ax.get_window_extent().size) / ax.figure.dpi
    if ax.get_aspect() == 1.0:
        cell = min(width / len(columns), height / len(rows))
        width, height = cell * len(columns), cell * len(rows)
    longest = max(map(len, columns))
    turn = 0 if longest <= (5 if len(columns) <= 12 else 1) else 90
    for name, inches, set_ticks, look in (
        (columns, width, ax.set_xticks, {"rotation": turn}),
        (rows, height, ax.set_yticks, {"rotation": 0, "va": "center"}),
    ):
        step = every(len(name), inches)
        shown = [short(one) for one in name[::step]]
        set_ticks(np.arange(0, len(name), step) + 0.5, shown, parse_math=False, **look)


def _cover(ax: Axes, cells: np.ndarray, **look: str) -> None:
    """Lay a rectangle over each true cell; over many cells, one over neighbours of a row."""
    if not cells.any():
        return
    at = [(row, column, column + 1) for row, column in np.argwhere(cells)]
    if max(cells.shape) > MAX_FRAMED:
        steps = np.diff(np.pad(cells, ((0, 0), (1, 1))).astype(np.int8))
        starts, ends = np.argwhere(steps == 1), np.argwhere(steps == -1)
        at = [(row, first, last) for (row, first), last in zip(starts, ends[:, 1], strict=True)]
        look["edgecolor"] = look["facecolor"]
    patches = [Rectangle((first, row), last - first, 1) for row, first, last in at]
    ax.add_collection(PatchCollection(patches, linewidth=0.5, **look))
