"""Pictures of attention: weights as heatmaps, the memory layout of split heads, the layer's shapes.

Queries are rows, keys are columns, and all heads have one scale from 0 to 1. In every heatmap

* a cell with a colour of ``PALETTE`` is a weight, from white for 0 to the darkest for 1, with the colours of
  the live pictures;
* a grey, hatched cell is hidden by the mask, which is not the same as a weight of 0;
* a red cell that says NaN is not a number.

Wherever a query, a key or a value is drawn, ``ROLES`` gives its colour and its sign.

Each picture is made in two steps: ``..._data`` computes the numbers, and can be tested; the
function without ``_data`` draws them. A picture also has a description in words, made from the same
numbers, for readers who cannot see it: ``show`` stores it beside the picture.
"""

import base64
import io
import itertools
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from jaxtyping import Bool, Float, Int64
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection, QuadMesh
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab._colours import GROUND, LIGHT, SHAPES, TOKENS
from mha_lab._texts import Labels, every, literal, short, texts
from mha_lab.attention import masked_softmax, scaled_dot_product_scores
from mha_lab.heads import merge_heads, split_heads
from mha_lab.masks import padding_mask
from mha_lab.multihead import MultiHeadAttention
from mha_lab.positions import mean_rotary_score

# Change the colour of weights in _colours.py, and not here: the live pictures and the website use it, too.
# write_number then finds by DARK_BELOW where a number must be white, whatever the colour is.
PALETTE = LinearSegmentedColormap.from_list("weight", [GROUND, LIGHT["weight"]])
SIGNED = LinearSegmentedColormap.from_list("signed", [LIGHT["minus"], GROUND, LIGHT["plus"]])
HIDDEN_COLOUR = "0.88"
NAN_COLOUR = "#a83c00"
DARK_BELOW = 0.179  # on a colour with a smaller luminance, white has more contrast than black
MAX_DESCRIBED = 16  # a longer heatmap is described by its first rows
MAX_ANNOTATED = 100  # a heatmap with more cells gets no numbers
MAX_FRAMED = 100  # a heatmap with more rows or columns has no lines between its cells
WIDEST, BAR = 8.2, 0.8  # inches: of a picture that a page has room for, and of a colour bar beside it
INK, TENSOR, LEARNED, ASKED = "#222222", "#dceaf6", "#f6e3cf", "#e4e4e4"
ROLES = {role: (LIGHT[role], shape) for role, shape in SHAPES.items()}
LEFT, MIDDLE, RIGHT = 1.6, 4.8, 8.0
DASHES = ["-", "--", "-.", ":"]
# Of lines and bars: those of "colorblind" that stay apart on a white and on a dark page, in this order.
LINES = [sns.color_palette("colorblind")[i] for i in (0, 3, 2, 4, 7, 5)]
LOOKS = dict(zip(DASHES, ("solid", "dashed", "dashes and dots", "dotted"), strict=True))
HATCHES = ["", "//", "..", "xx"]
Point = tuple[int | float, int | float]


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
    text = np.where(np.isnan(values), "NaN", np.char.mod("%.2f", values))
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
    queries, keys = ("query" if n_q == 1 else "queries"), ("key" if n_k == 1 else "keys")
    start = f"{title}: heatmap" if title else "Heatmap"
    rows = [
        f"{label}: {_describe_row(data.values[i], data.hidden[i], data.key_labels)}"
        for i, label in enumerate(data.query_labels[:MAX_DESCRIBED])
    ]
    more = [f"{n_q - MAX_DESCRIBED} more queries"] if n_q > MAX_DESCRIBED else []
    hidden = f" {data.hidden.sum()} of {data.hidden.size} cells hidden." if data.hidden.any() else ""
    return f"{start} of weights, {n_q} {queries} by {n_k} {keys}. {'; '.join(rows + more)}.{hidden}"


def _describe_row(weights: np.ndarray, hidden: np.ndarray, labels: list[str]) -> str:
    visible = np.flatnonzero(~hidden)
    if not len(visible):
        return "all hidden"
    if np.isnan(weights[visible]).any():
        return "NaN"
    low, high = weights[visible].min(), weights[visible].max()
    if len(visible) > 1 and high - low < 0.005:
        return f"{high:.2f} everywhere"
    largest = sorted(visible, key=lambda j: -round(float(weights[j]), 2))[:3]  # a tie goes to the first
    told = [j for j in largest if weights[j] >= max(0.15, high / 5)] or largest[:1]
    return ", ".join(f"{labels[j]} {weights[j]:.2f}" for j in told)


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


@dataclass(frozen=True)
class MemoryMap:
    """Which number of memory each cell shows, for the input and for two ways to split it.

    ``stored`` is ``(n, d_model)``; ``right`` (``split_heads``) and ``wrong`` (a bare ``view``) are
    ``(num_heads, n, d_k)``. ``token`` says to which token each number of memory belongs;
    ``misplaced`` says which cells of ``wrong`` have the number of another token or head.
    """

    stored: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    token: np.ndarray
    misplaced: np.ndarray


def memory_map_data(n: int, num_heads: int, d_k: int) -> MemoryMap:
    """The data that ``memory_map`` draws; see there for the arguments and errors.

    >>> memory_map_data(n=3, num_heads=2, d_k=2).right[1].tolist()
    [[2, 3], [6, 7], [10, 11]]
    """
    for name, size in (("n", n), ("num_heads", num_heads), ("d_k", d_k)):
        expect.whole_number(name, size)
    d_model = num_heads * d_k
    stored = torch.arange(n * d_model).view(n, d_model)
    right = split_heads(stored, num_heads)
    wrong = stored.view(num_heads, n, d_k)
    return MemoryMap(
        stored=stored.numpy(),
        right=right.numpy(),
        wrong=wrong.numpy(),
        token=(stored.flatten() // d_model).numpy(),
        misplaced=(right != wrong).numpy(),
    )


def memory_map(
    n: int,
    num_heads: int,
    d_k: int,
    *,
    token_labels: Labels | None = None,
    axes: Sequence[Axes] | np.ndarray | None = None,
) -> np.ndarray:
    """Where each element goes when heads are split: the input, the right way, the wrong way.

    A cell's number is its place in memory, and its colour shows the token that it belongs to. In the
    third picture, a hatched cell has a number that belongs to another token or head.

    Args:
        n: number of tokens.
        num_heads: number of heads.
        d_k: width of a head; ``d_model`` is ``num_heads * d_k``.
        token_labels: names for the tokens; ``None`` means "token 0", "token 1", ...
        axes: three, where to draw; ``None`` means a new figure.

    Returns:
        Three ``Axes``: the input ``(n, d_model)``, ``split_heads`` and the bare ``view``, both
        ``(num_heads, n, d_k)`` with the heads one below the other.

    Source: the memory layout is described in PyTorch's documentation, "Tensor Views".

    >>> len(memory_map(n=3, num_heads=2, d_k=2))
    3
    """
    data = memory_map_data(n, num_heads, d_k)
    labels = texts("token_labels", token_labels, n, "token {}")
    if axes is None:
        d_model = num_heads * d_k
        cell = min(0.45, 8.0 / (d_model + 2 * d_k))
        size = (4.2 + cell * (d_model + 2 * d_k), 1.0 + cell * num_heads * (n + 1))
        widths = [d_model + 2, d_k + 4, d_k + 4]
        _, axes = plt.subplots(1, 3, figsize=size, layout="constrained", width_ratios=widths)
    axes = np.asarray(axes).reshape(-1)
    if len(axes) != 3:
        expect.fail(ValueError, "axes", "three", len(axes))
    colours = sns.color_palette(TOKENS if n <= len(TOKENS) else "husl", n)
    nowhere = np.zeros((1, *data.stored.shape), dtype=bool)
    shape = (num_heads, n, d_k)
    _draw_blocks(axes[0], data.stored[None], data.token, colours, nowhere, [labels])
    axes[0].set_title(f"x\nshape {(n, num_heads * d_k)}")
    right = np.zeros(shape, dtype=bool)
    _draw_blocks(axes[1], data.right, data.token, colours, right, [labels] * num_heads)
    axes[1].set_title(f"right: view, then transpose\nshape {shape}")
    rows = [f"row {i}" for i in range(n)]
    _draw_blocks(axes[2], data.wrong, data.token, colours, data.misplaced, [rows] * num_heads)
    axes[2].set_title(f"wrong: the bare view\nshape {shape}")
    axes[0].set_label(
        f"Map of memory: {n} tokens of {num_heads * d_k} numbers, a row and a colour for each token."
    )
    axes[1].set_label(f"View, then transpose: {num_heads} heads, each with {d_k} numbers of every token.")
    wrong = f"{data.misplaced.sum()} of {data.misplaced.size} cells hold a number that belongs elsewhere"
    axes[2].set_label(f"Bare view: {wrong}.")
    return axes


def layer_shapes() -> Figure:
    """Every tensor of one call of the layer, with its shape, from the input to the output.

    The shapes are read from computed tensors, so the picture cannot be wrong about them. Its description,
    for ``plot.show``, is made from the same tensors.

    Source: Vaswani et al. 2017, section 3.2.2 and figure 2.
    """
    with torch.random.fork_rng(
        devices=[]
    ):  # the numbers do not matter; the caller's seed must keep its effect
        layer = MultiHeadAttention(d_model=6, num_heads=3)
    x, mask = torch.zeros(2, 5, 6), padding_mask([5, 3])
    wide = [projection(x) for projection in (layer.q_proj, layer.k_proj, layer.v_proj)]
    query, key, value = (split_heads(each, layer.num_heads) for each in wide)
    scores = scaled_dot_product_scores(query, key)
    weights = masked_softmax(scores, mask)
    heads = weights @ value
    concat = merge_heads(heads)
    output = layer.out_proj(concat)
    assert torch.equal(output, layer(x, mask=mask)[0])

    figure, ax = plt.subplots(figsize=(8.6, 9.4), layout="constrained")
    ax.set(xlim=(0, 9.6), ylim=(0.2, 11.6))
    ax.axis("off")
    _tensor_box(ax, MIDDLE, 11, "x", x)
    columns = zip((LEFT, MIDDLE, RIGHT), ("query", "key", "value"), wide, (query, key, value), strict=True)
    for column, name, tensor, cut in columns:
        _arrow(ax, (MIDDLE, 10.6), (column, 10.0))
        _tensor_box(ax, column, 9.6, f"{name[0]}_proj", tensor, colour=LEARNED, role=name)
        _arrow(ax, (column, 9.2), (column, 8.6), ROLES[name][0])
        _tensor_box(ax, column, 8.2, f"split_heads: {name}", cut, role=name)
    between = (LEFT + MIDDLE) / 2
    _arrow(ax, (LEFT, 7.8), (between - 0.5, 7.2), ROLES["query"][0])
    _arrow(ax, (MIDDLE, 7.8), (between + 0.5, 7.2), ROLES["key"][0])
    _tensor_box(ax, between, 6.8, "query @ key.mT / sqrt(d_k)", scores, width=4.4)
    _arrow(ax, (between, 6.4), (between, 5.8))
    _tensor_box(ax, between, 5.4, "masked_softmax: weights", weights, width=4.4)
    _tensor_box(ax, 6.65, 5.4, "mask", mask, colour=ASKED, width=1.7)
    _arrow(ax, (5.8, 5.4), (between + 2.2, 5.4))
    _arrow(ax, (between, 5.0), (between + 0.9, 4.4))
    _arrow(ax, (RIGHT, 7.8), (RIGHT, 4.4), ROLES["value"][0])
    _tensor_box(ax, 5.9, 4.0, "weights @ value: heads", heads, width=6.0)
    _arrow(ax, (MIDDLE, 3.6), (MIDDLE, 3.0))
    _tensor_box(ax, MIDDLE, 2.6, "merge_heads", concat)
    _arrow(ax, (MIDDLE, 2.2), (MIDDLE, 1.6))
    _tensor_box(ax, MIDDLE, 1.2, "out_proj: output", output, colour=LEARNED)
    ax.text(
        0.1, 0.4,
        "batch 2, n = 5, d_model = 6, num_heads = 3, d_k = 2. Orange: learned. Mask: True = may attend.",
        fontsize=10, color=INK,
    )  # fmt: skip
    ax.set_label(
        f"The layer shape by shape. x {_size(x)} goes through q_proj, k_proj and v_proj, "
        f"{_size(wide[0])} each; split_heads gives query, key and value, {_size(query)}; "
        f"query @ key.mT / sqrt(d_k) is {_size(scores)}; with mask {_size(mask)}, masked_softmax "
        f"gives weights {_size(weights)}; weights @ value, the heads, is {_size(heads)}; "
        f"merge_heads gives {_size(concat)}; out_proj gives output {_size(output)}."
    )
    return figure


def attention_flow_data(
    x: Float[Tensor, "n d_model"],
    w_q: Float[Tensor, "d_model d_k"],
    w_k: Float[Tensor, "d_model d_k"],
    w_v: Float[Tensor, "d_model d_v"],
) -> dict[str, Float[Tensor, "_ _"]]:
    """The tensors that ``attention_flow`` draws, by their names, in the order in which they are computed.

    >>> [name for name in attention_flow_data(torch.eye(2), *torch.ones(3, 2, 1))]
    ['x', 'query', 'key', 'value', 'scores', 'weights', 'output']
    """
    expect.tensor("x", x, "(n, d_model); x[0] is one sample", min_rank=2, max_rank=2)
    for name, matrix in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)):
        expect.tensor(name, matrix, "(d_model, width)", min_rank=2, max_rank=2)
        if len(matrix) != x.shape[1]:
            expect.fail(ValueError, name, f"{x.shape[1]} rows, the width of x", len(matrix))
    query, key, value = x @ w_q, x @ w_k, x @ w_v
    scores = scaled_dot_product_scores(query, key)
    weights = masked_softmax(scores)
    tensors = {"x": x, "query": query, "key": key, "value": value}
    return tensors | {"scores": scores, "weights": weights, "output": weights @ value}


def attention_flow(
    x: Float[Tensor, "n d_model"],
    w_q: Float[Tensor, "d_model d_k"],
    w_k: Float[Tensor, "d_model d_k"],
    w_v: Float[Tensor, "d_model d_v"],
    token_labels: Labels | None = None,
    *,
    known: Sequence[str] = ("x", "query", "key", "value", "scores", "weights", "output"),
) -> Figure:
    """Attention with one head in one picture: from ``x`` to the output, with all numbers.

    Args:
        x: ``(n, d_model)``, a row for each token.
        w_q, w_k: ``(d_model, d_k)``.
        w_v: ``(d_model, d_v)``.
        token_labels: the names of the rows; ``None`` means the positions.
        known: the tensors whose numbers and formulas are written; the others show what they mean, and a
            question mark in each cell.

    Source: Vaswani et al. 2017, section 3.2.1 and figure 2.

    >>> attention_flow(torch.eye(2), *torch.ones(3, 2, 1), known=["x"]).axes[0].get_label()[-53:]
    'output (2, 1), average of the values: no numbers yet.'
    """
    tensors = attention_flow_data(x, w_q, w_k, w_v)
    for name in known:
        if name not in tensors:
            expect.fail(ValueError, "known", f"names out of {', '.join(tensors)}", name)
    n, (d_model, d_k), d_v = len(x), w_q.shape, w_v.shape[1]
    labels = texts("token_labels", token_labels, n)
    how = ["", "x @ w_q", "x @ w_k", "x @ w_v", f"query @ key.mT / sqrt({d_k})"]
    how += ["softmax(scores)", "weights @ value"]
    meaning = ["", "what it asks for", "how it is found", "what it hands over"]
    meaning += ["how well each key matches", "shares, 1 in each row", "average of the values"]
    second, third = d_model + 3, d_model + max(d_k, d_v) + 6
    lefts = [0, second, second, second, third, third, third]
    tops = [step * (n + 3) for step in (1, 0, 1, 2, 0, 1, 2)]
    width = third + max(n, d_v, 4) + 2
    figure, ax = plt.subplots(figsize=(0.36 * width, 0.3 * (3 * n + 8)), layout="constrained")
    described = []
    for i, (name, tensor) in enumerate(tensors.items()):
        rows = _written(tensor) if name in known else [["?"] * tensor.shape[1]] * n
        colour, sign = ROLES.get(name, (INK, ""))
        _draw_numbers(ax, lefts[i], tops[i], rows, labels, colour if name in ROLES else None)
        said = f"= {how[i]}" if name in known and how[i] else meaning[i]
        title = f"{name} {_size(tensor)}\n{said}".strip()
        ax.text(lefts[i], tops[i] - 0.2, f"{sign} {title}".strip(), va="bottom", fontsize=10, color=colour)
        numbers = "; ".join(f"{label} {', '.join(row)}" for label, row in zip(labels, rows, strict=True))
        shown = numbers if name in known else "no numbers yet"
        described.append(f"{title.replace(chr(10) + '=', ' =').replace(chr(10), ', ')}: {shown}.")
    for start, end in ((0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 6)):
        name, tensor = [*tensors.items()][start]
        right = lefts[start] + tensor.shape[1] + 0.1
        colour, _ = ROLES.get(name, (INK, ""))
        _arrow(ax, (right, tops[start] + n / 2), (lefts[end] - 1.3, tops[end] + n / 2), colour)
    for top in tops[4:6]:
        _arrow(ax, (third + 0.5, top + n + 0.1), (third + 0.5, top + n + 1.5))
    ax.set(xlim=(-1.4, width), ylim=(3 * n + 6.4, -2))
    ax.axis("off")
    ax.set_label("Attention from left to right. " + " ".join(described))
    return figure


def cache_lines_data(kept: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """How high ``cache_lines`` writes each name, in bytes: beside the end of its line, and clear of others.

    The logarithms of the heights are at least 1/26 of the picture apart, in the order of the lines, and as
    close to the ends as this allows (least squares).

    >>> {name: round(height) for name, height in cache_lines_data({"a": [1, 16], "b": [1, 16]}).items()}
    {'a': 15, 'b': 17}
    """
    ends = {name: math.log2(values[-1]) for name, values in kept.items()}
    low, high = (pick(math.log2(pick(values)) for values in kept.values()) for pick in (min, max))
    gap = (high - low) / 26
    order = sorted(ends, key=ends.__getitem__)
    pools: list[list[float]] = []  # names that touch share the mean of their distances from an even ladder
    for rung, name in enumerate(order):
        pools.append([ends[name] - rung * gap])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    moved = [float(np.mean(pool)) for pool in pools for _ in pool]
    return {name: 2 ** (moved[rung] + rung * gap) for rung, name in enumerate(order)}


def cache_lines(
    lengths: Sequence[int],
    kept: Mapping[str, Sequence[int]],
    kinds: Mapping[str, str] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Bytes that models keep against the length of the text, one line for each, with its name at its end.

    Both axes are logarithmic: a line that rises by one power of two for each doubling is proportional to the
    length, and a level one does not depend on it.

    Args:
        lengths: numbers of tokens, from small to large.
        kept: for each name, its bytes at each length, as ``chapters.published.cache_curves`` gives them. A
            shorter list is a line that ends early.
        kinds: a word for what each of them does, up to four different ones; each has its colour and dashes.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    >>> cache_lines([1024, 2048], {"a model": [2**20, 2**21]}).get_label()[-23:]
    'a model 1 MiB to 2 MiB.'
    """
    if len(lengths) < 2 or list(lengths) != sorted(set(lengths)) or lengths[0] < 1:
        expect.fail(ValueError, "lengths", "at least two whole numbers, each larger than the last", lengths)
    if not kept:
        expect.fail(ValueError, "kept", "at least one line", "none")
    for name, values in kept.items():
        if not 1 <= len(values) <= len(lengths) or min(values) < 1:
            expected = f"up to {len(lengths)} positive numbers, one for each length"
            expect.fail(ValueError, f"kept[{name!r}]", expected, list(values))
    said = list(dict.fromkeys((kinds or {}).get(name, "") for name in kept))
    if len(said) > len(DASHES):
        expect.fail(ValueError, "kinds", f"at most {len(DASHES)} different ones", said)
    if ax is None:
        _, ax = plt.subplots(figsize=(WIDEST - 0.2, 5.6), layout="constrained")
    colours = LINES
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    whole = {name: values for name, values in kept.items() if len(values) == len(lengths)}
    heights = cache_lines_data(whole) if whole else {}
    for name, values in kept.items():
        kind, last = said.index((kinds or {}).get(name, "")), lengths[len(values) - 1]
        seen, mark = lengths[: len(values)], "" if name in whole else "o"  # a mark where a line ends early
        ax.plot(
            seen, values, color=colours[kind], linestyle=DASHES[kind], marker=mark, markevery=[-1],
            label=literal(said[kind] or name),
        )  # fmt: skip
        at = (lengths[-1] * 1.25, heights[name]) if name in whole else (last * 1.25, values[-1] / 1.6)
        ax.annotate(
            literal(name), (last, values[-1]), at, va="center",
            fontsize=9, color=INK, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 1},
        )  # fmt: skip
    if kinds:
        named = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
        ax.legend(named.values(), named.keys(), loc="upper left", frameon=False, fontsize="small")
    lowest, highest = (pick(map(pick, kept.values())) for pick in (min, max))
    powers = range(math.floor(math.log2(lowest)), math.ceil(math.log2(highest)) + 1)
    ticks = [2**power for power in powers if power % 2 == 0]
    ax.set_yticks(ticks, [_bytes(tick) for tick in ticks])
    ax.set_xticks(lengths, [f"{n // 1024}k" if n % 1024 == 0 else str(n) for n in lengths])
    ax.minorticks_off()
    ax.set(xlabel="tokens", ylabel="bytes of the cache")
    sns.despine(ax=ax)
    first_to_last = "; ".join(
        f"{name} {_bytes(values[0])} to {_bytes(values[-1])}"
        + ("" if name in whole else f" at {lengths[len(values) - 1]} tokens")
        for name, values in sorted(kept.items(), key=lambda line: -line[1][-1])
    )
    span = f"from {lengths[0]} to {lengths[-1]} tokens"
    ax.set_label(
        f"Lines of the bytes of the cache against the tokens, both logarithmic, {span}: {first_to_last}."
    )
    return ax


def named_bars(
    heights: Mapping[str, Sequence[int | float]],
    names: Sequence[object],
    *,
    ylabel: str,
    level: tuple[str, int | float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A bar for each name, or several side by side, with a description that has all their heights.

    Args:
        heights: for each kind of bar, one number for each name. If there are several kinds, a legend says
            which is which, and each bar has its number.
        names: what the bars are about.
        ylabel: what the heights are.
        level: the name and the height of a dotted line for comparison.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    >>> named_bars({"": [1.386, 0]}, ["ate", "."], ylabel="entropy (nats)").get_label()
    'Bars of the entropy (nats): ate 1.39, . 0.00.'
    """
    if not heights:
        expect.fail(ValueError, "heights", "at least one kind of bar", "none")
    for kind, numbers in heights.items():
        if len(numbers) != len(names):
            expect.fail(ValueError, f"heights[{kind!r}]", f"{len(names)}, one for each name", len(numbers))
    if ax is None:
        _, ax = plt.subplots(figsize=(WIDEST - 0.2, 2.8), layout="constrained")
    named, width = texts("names", names, len(names)), 0.8 / len(heights)
    for i, (kind, numbers) in enumerate(heights.items()):
        at = np.arange(len(names)) + (i - (len(heights) - 1) / 2) * width
        look = {"hatch": HATCHES[i % len(HATCHES)], "edgecolor": "black"} if len(heights) > 1 else {}
        bars = ax.bar(at, numbers, width, color=f"C{i}", label=literal(kind), **look)
        if len(heights) > 1:
            ax.bar_label(bars, fmt="%.2f", fontsize="small")
    if level is not None:
        ax.axhline(level[1], color="black", linestyle=":", label=literal(level[0]))
    many = len(names) > 12
    lines, inches = max(one.count(", ") + 1 for one in named), ax.get_window_extent().width / ax.figure.dpi
    step, turn = every(lines * len(names), 0.9 * inches), 90 if many else 0
    shown = ["\n".join(map(short, one.split(", "))) for one in named[::step]]
    ax.set_xticks(range(0, len(names), step), shown, rotation=turn, parse_math=False)
    ax.set(ylabel=literal(ylabel), xlim=(-0.6, len(names) - 0.4))
    if len(heights) > 1:
        ax.legend(ncols=len(heights) + (level is not None), loc="upper right", fontsize="small")
    told = "; ".join(
        f"{kind}: " * bool(kind)
        + ", ".join(
            f"{name} {round(x, 2) + 0:.2f}" for name, x in zip(names, numbers, strict=True)
        )  # no -0.00
        for kind, numbers in heights.items()
    )
    said = f" A line marks {level[0]}, {level[1]:g}." if level else ""
    ax.set_label(f"Bars of the {ylabel}: {told}.{said}")
    return ax


def measured_lines(
    places: Sequence[int | float],
    measured: Mapping[str, Sequence[int | float]],
    *,
    xlabel: str,
    ylabel: str,
    ax: Axes | None = None,
) -> Axes:
    """Measurements at some places, a line with its own mark and dashes for each name.

    Args:
        places: where it was measured, from small to large.
        measured: for each name, one number for each place.
        xlabel, ylabel: what the two axes are.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    >>> measured_lines([8, 16], {"a": [1.0, 4.0]}, xlabel="words", ylabel="time (s)").get_label()
    'Lines of the time (s) against the words, at 8, 16: a 1, 4.'
    """
    if not measured or len(measured) > len(DASHES):
        expect.fail(ValueError, "measured", f"1 to {len(DASHES)} lines", len(measured))
    for name, numbers in measured.items():
        if len(numbers) != len(places):
            expect.fail(ValueError, f"measured[{name!r}]", f"{len(places)}, one for each place", len(numbers))
    if ax is None:
        _, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for i, (name, numbers) in enumerate(measured.items()):
        ax.plot(places, numbers, f"C{i}", marker="os^D"[i], linestyle=DASHES[i], label=literal(name))
    ax.set(xlabel=literal(xlabel), ylabel=literal(ylabel), xticks=places, ylim=(0, None))
    ax.legend()
    told = "; ".join(
        f"{name} {', '.join(f'{number:.3g}' for number in numbers)}" for name, numbers in measured.items()
    )
    at = ", ".join(f"{place:g}" for place in places)
    ax.set_label(f"Lines of the {ylabel} against the {xlabel}, at {at}: {told}.")
    return ax


def own_key_heatmaps(
    weights: Float[Tensor, "heads n n"], titles: Sequence[str], labels: Sequence[object]
) -> np.ndarray:
    """Heatmaps of many tokens, described by their largest weight and by what each query gives its own key.

    >>> axes = own_key_heatmaps(torch.eye(3)[None], ["copy"], ["a", "b", "c"])
    >>> axes[0].get_label()
    'copy: 3 queries by 3 keys, largest weight 1.00, own key 1.00 to 1.00.'
    """
    axes = head_heatmaps(weights, labels, titles=titles, annotate=False, columns=len(titles))
    for ax, title, one in zip(axes.flat, titles, weights, strict=False):
        own, n = one.diagonal(), len(one)
        ax.set_label(
            f"{title}: {n} queries by {n} keys, largest weight {one.max():.2f}, "
            f"own key {own.min():.2f} to {own.max():.2f}."
        )
    return axes


def crossings(
    x: Sequence[int | float] | Float[Tensor, " n"], one: Float[Tensor, " n"], other: Float[Tensor, " n"]
) -> list[tuple[float, float]]:
    """Where two lines cross, as ``(x, height)``: between two points, or at a point that both go through.

    Lines that only touch do not cross. Differences below a millionth of the larger number count as none.

    >>> crossings([0, 1, 2], torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.5, 1.5, 1.5]))
    [(1.5, 1.5)]
    """
    place, one, other = (torch.as_tensor(each, dtype=torch.float64) for each in (x, one, other))
    apart = one - other
    apart[apart.abs() <= 1e-6 * torch.maximum(one.abs(), other.abs())] = 0
    sides = apart.nonzero()[:, 0].tolist()
    found = []
    for i, j in itertools.pairwise(sides):
        if apart[i] * apart[j] < 0:
            share = apart[i] / (apart[i] - apart[j]) if j == i + 1 else 0  # else both go through a point
            k = i if j == i + 1 else (i + j) // 2
            at, height = (line[k] + share * (line[k + 1] - line[k]) for line in (place, one))
            found.append((at.item(), height.item()))
    return found


def lines(
    x: Sequence[int | float] | Float[Tensor, " n"],
    heights: Mapping[str, Sequence[int | float] | Float[Tensor, " n"]],
    xlabel: str,
    ylabel: str,
    *,
    levels: Mapping[str, float] | None = None,
    markers: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Lines over one axis, described by their ends, by what lies outside the ends, and by where they cross.

    Args:
        x: the places, from small to large.
        heights: for each line its name and its height at each place.
        xlabel: what the horizontal axis shows.
        ylabel: what the lines show.
        levels: heights of horizontal dashed lines, by what they are called.
        markers: a letter for the marker of each line, such as ``"os^"``; without it, lines differ by their
            dashes.
        ax: where to draw; ``None`` means a new figure. Make its x-axis logarithmic before, not after: this
            decides where lines cross.

    Returns:
        The ``Axes``; it has no legend if it was given.

    >>> lines([0, 1], {"a": [0, 2], "b": [1, 1]}, "x", "y").get_label()[35:]
    'a: from 0 to 2. b: from 1 to 1. a and b cross at 0.5, at a height of 1.'
    """
    place = torch.as_tensor(x, dtype=torch.float64)
    if len(place) < 2 or (place.diff() <= 0).any():
        expect.fail(ValueError, "x", "at least two numbers, each larger than the last", place.tolist())
    if not heights or len(heights) > len(markers or DASHES):
        most = f"1 to {len(markers or DASHES)} lines"
        expect.fail(ValueError, "heights", most, len(heights))
    drawn = {name: torch.as_tensor(line, dtype=torch.float64).detach() for name, line in heights.items()}
    for name, line in drawn.items():
        if line.shape != place.shape or not line.isfinite().all():
            expected = f"{len(place)} finite numbers, one for each x"
            expect.fail(ValueError, f"heights[{name!r}]", expected, line.tolist())
    legend = ax is None
    if ax is None:
        _, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
    room = 0.02 * (max(map(torch.max, drawn.values())) - min(map(torch.min, drawn.values())))  # to be seen
    said = [f"Lines of {ylabel} against {xlabel}, from {place[0]:g} to {place[-1]:g}."]
    for i, (name, line) in enumerate(drawn.items()):
        look = {"marker": markers[i]} if markers else {"linestyle": DASHES[i]}
        ax.plot(place.numpy(), line.numpy(), label=literal(name), **look)
        told = f"{name}: from {_about(line[0])} to {_about(line[-1])}"
        for word, extreme, i in (
            ("lowest", line.min(), line.argmin()),
            ("highest", line.max(), line.argmax()),
        ):
            if min(abs(extreme - line[0]), abs(extreme - line[-1])) > room:
                told += f", {word} {_about(extreme)} at {place[i]:g}"
        said.append(f"{told}.")
    scale = ax.xaxis.get_transform()  # lines are straight on the paper, also where the axis is logarithmic
    for (one, first), (other, second) in itertools.combinations(drawn.items(), 2):
        for at, height in crossings(torch.as_tensor(scale.transform(place)), first, second):
            x_there = float(scale.inverted().transform(at))
            said.append(f"{one} and {other} cross at {_about(x_there)}, at a height of {_about(height)}.")
    for name, height in (levels or {}).items():
        ax.axhline(height, color="gray", linestyle="--")
        said.append(f"A dashed line is {name}, {height:.3g}.")
    ax.set(xlabel=literal(xlabel), ylabel=literal(ylabel))
    if legend:
        ax.legend()
    ax.set_label(" ".join(said))
    return ax


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


def write_number(
    ax: Axes, row: int | float, column: int | float, text: str, ground: str | tuple[float, ...]
) -> None:
    """A number in a cell of the colour ``ground``: black or white; black has a light edge where it needs one.

    The edge is for a page with a dark theme, which turns black into white and the edge into its ground.
    """
    light = sns.utils.relative_luminance(ground)
    black = light > DARK_BELOW
    edge = [withStroke(linewidth=2, foreground=(1, 1, 1, 0.6))] if black and light < 0.45 else []
    look = {"color": "black" if black else "white", "fontsize": "small", "path_effects": edge}
    ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", **look)


def _round_up(number: float) -> float:
    """The next of 1, 2 and 5 times a power of 10; 1 for 0."""
    power = 10.0 ** math.floor(math.log10(number or 1))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= number)


def show(drawn: Axes | Figure | np.ndarray, alt: str | None = None) -> None:
    """Show a picture under a cell, once, with a text for readers who cannot see it.

    The text is also stored as the picture's plain text. A comparison of stored outputs skips pixels, so this
    text is how it compares the drawn numbers.

    Args:
        drawn: the result of a function of this module, or a figure.
        alt: a description of the picture in words; ``None`` uses the descriptions that this module's
            pictures have. It is stored in the notebook with the picture.

    Raises:
        ValueError: there is no ``alt``, and the picture has no description.
    """
    figure = drawn if isinstance(drawn, Figure) else np.asarray(drawn).reshape(-1)[0].figure
    if alt is None:
        alt = " ".join(ax.get_label() for ax in figure.axes if ax.get_label() not in ("", "<colorbar>"))
    if not alt.strip():
        expect.fail(ValueError, "alt", "a description of the picture in words", "nothing")
    from IPython.display import display

    content, size = png(figure)
    picture, about = base64.b64encode(content).decode(), {"alt": alt, **size}
    display({"image/png": picture, "text/plain": alt}, metadata={"image/png": about}, raw=True)
    plt.close(figure)


def png(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """A figure as a PNG file, sharp on every screen, and the width and height that it is shown with.

    The file has two pixels for each of the page's, and only 256 colours, which is a third of the bytes. Its
    text ``smallest`` is the height of the smallest letters, in pixels of the page; exponents count.
    """
    from IPython.core.pylabtools import print_figure

    with warnings.catch_warnings():  # whoever made the texts was told once which letters no font has
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        drawn = print_figure(figure, "retina")
    if not drawn:  # an empty figure, or `make grade`, which draws nothing
        return b"", {}
    sharp, stored, said = Image.open(io.BytesIO(drawn)), io.BytesIO(), PngInfo()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    sizes = [t.get_fontsize() * (0.7 if re.search(r"\$.*\^.*\$", t.get_text()) else 1) for t in texts]
    if sizes:
        said.add_text("smallest", f"{min(sizes) * figure.dpi / 72:.1f}")
    few = _few_colours(sharp.convert("RGB"))
    few.save(stored, "png", optimize=True, dpi=sharp.info["dpi"], pnginfo=said)
    return stored.getvalue(), {"width": sharp.width // 2, "height": sharp.height // 2}


def _few_colours(picture: Image.Image) -> Image.Image:
    """The picture with 256 colours. Those with a meaning are among them, however small their area is."""
    kept = [tuple(round(255 * x) for x in to_rgb(colour)) for colour in (GROUND, *LIGHT.values())]
    free = 256 - len(kept)
    first = picture.quantize(free)
    number, red, green, blue = np.asarray(first).copy(), *np.moveaxis(np.asarray(picture), -1, 0)
    for i, (r, g, b) in enumerate(kept):
        number[(red == r) & (green == g) & (blue == b)] = free + i
    few = Image.fromarray(number, "P")
    palette = first.getpalette()[: 3 * free]
    few.putpalette(palette + [0] * (3 * free - len(palette)) + [x for colour in kept for x in colour])
    return few


def style() -> None:
    """The style of the series: text that is large enough to read, and no lines without a meaning."""
    sns.set_theme(context="notebook", style="white", palette=LINES, font_scale=0.9)
    plt.rcParams.update({"figure.dpi": 100, "axes.titlesize": "medium", "hatch.linewidth": 0.6})
    plt.rcParams["axes.formatter.min_exponent"] = 5  # 0.01 and 1000: an exponent would be too small to read


def _about(number: float | Tensor) -> str:
    """With two digits, and without an exponent where it can be avoided: 510, 0.048."""
    return f"{float(f'{float(number):.2g}'):g}"


def _count(number: int, what: str) -> str:
    """``1 run``, ``5 runs``."""
    return f"{number} {what}" + "s" * (number != 1)


def _bytes(number: int | float) -> str:
    """A number of bytes, for reading: 8.31 GiB."""
    power = min(max(int(math.log2(number)) // 10, 0), 4)
    return f"{number / 1024**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


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


def _draw_blocks(
    ax: Axes,
    blocks: np.ndarray,
    token: np.ndarray,
    colours: list[tuple[float, float, float]],
    misplaced: np.ndarray,
    row_labels: list[list[str]],
) -> None:
    """Draw ``(blocks, rows, columns)`` of memory numbers, one block below the other."""
    count, rows, columns = blocks.shape
    ticks, names = [], []
    for block in range(count):
        top = block * (rows + 1)
        if count > 1:
            ax.text(columns / 2, top - 0.08, f"head {block}", ha="center", va="bottom", fontsize="small")
        for row in range(rows):
            ticks.append(top + row + 0.5)
            names.append(short(row_labels[block][row]))
            for column in range(columns):
                number = blocks[block, row, column]
                hatch = "///" if misplaced[block, row, column] else None
                colour = colours[token[number]]
                patch = Rectangle(
                    (column, top + row), 1, 1, facecolor=(*colour, 0.45), edgecolor="0.25", hatch=hatch
                )
                ax.add_patch(patch)
                box = (
                    {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.0} if hatch else None
                )
                ax.text(
                    column + 0.5,
                    top + row + 0.5,
                    number,
                    ha="center",
                    va="center",
                    fontsize="small",
                    bbox=box,
                )
    ax.set(xlim=(-0.05, columns + 0.05), ylim=(count * (rows + 1) - 0.9, -0.75), aspect="equal", anchor="N")
    ax.set_yticks(ticks, names, fontsize="small", parse_math=False)
    ax.set_xticks([])
    sns.despine(ax=ax, left=True, bottom=True)


def _size(tensor: torch.Tensor) -> str:
    """A tensor's shape, for reading."""
    return str(tuple(tensor.shape))


def _tensor_box(
    ax: Axes,
    x: int | float,
    y: int | float,
    name: str,
    tensor: torch.Tensor,
    *,
    colour: str = TENSOR,
    width: float = 2.7,
    role: str = "",
) -> None:
    """A rounded box around a name and a shape, with the colour and the sign of its role."""
    ink, sign = ROLES.get(role, (INK, ""))
    look = {"boxstyle": "round,pad=0.02,rounding_size=0.12", "facecolor": colour, "edgecolor": ink}
    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.38), width, 0.76, **look))
    said = f"{sign} {name}".strip()
    ax.text(x, y + 0.14, said, ha="center", va="center", fontsize=11, color=ink, weight="bold")
    ax.text(x, y - 0.19, _size(tensor), ha="center", va="center", fontsize=10.5, color=INK)


def _written(tensor: Tensor) -> list[list[str]]:
    """The numbers as short texts: whole ones without decimals, if all are whole."""
    numbers = tensor.detach().double().cpu().tolist()
    whole = all(number.is_integer() for row in numbers for number in row)
    return [[f"{number + 0.0:.{0 if whole else 2}f}" for number in row] for row in numbers]


def _draw_numbers(
    ax: Axes,
    left: int | float,
    top: int | float,
    rows: list[list[str]],
    labels: list[str],
    role: str | None = None,
) -> None:
    """A box for each text, with a tint of the colour of its role; to the left of each row, its label."""
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        middle = top + i + 0.5
        ax.text(
            left - 0.1, middle, short(label), ha="right", va="center", fontsize=9, color=INK, parse_math=False
        )
        for j, text in enumerate(row):
            colour = ASKED if text == "?" else (role, 0.16) if role else TENSOR
            ax.add_patch(Rectangle((left + j, top + i), 1, 1, facecolor=colour, edgecolor="white"))
            ax.text(left + j + 0.5, middle, text, ha="center", va="center", fontsize=9, color=INK)


def _arrow(ax: Axes, start: Point, end: Point, colour: str = INK) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour})
