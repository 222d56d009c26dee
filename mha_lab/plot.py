"""Pictures of attention: weights as heatmaps, the memory layout of split heads, the layer's shapes.

Queries are rows, keys are columns, and all heads have one scale from 0 to 1. In every heatmap

* a white to dark blue cell is a weight, from 0 to 1;
* a grey, hatched cell is hidden by the mask, which is not the same as a weight of 0;
* a red cell that says NaN is not a number.

Each picture is made in two steps: ``..._data`` computes the numbers, and can be tested; the
function without ``_data`` draws them. A picture also has a description in words, made from the same
numbers, for readers who cannot see it: ``show`` stores it beside the picture.

Raises: every function here checks its arguments before it computes anything. It raises ``TypeError`` for a
wrong type or dtype, and ``ValueError`` for a shape, size, number or device that does not fit. A function
says more only if it can raise for another reason.
"""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab.attention import masked_softmax, scaled_dot_product_scores
from mha_lab.heads import merge_heads, split_heads
from mha_lab.masks import padding_mask
from mha_lab.multihead import MultiHeadAttention

PALETTE = "Blues"
HIDDEN_COLOUR = "0.88"
NAN_COLOUR = "#a83c00"
DARK_FROM = 0.715  # from this weight on, white numbers have more contrast than black ones
MAX_DESCRIBED = 16  # a longer heatmap is described by its first rows
MAX_ANNOTATED = 100  # a heatmap with more cells gets no numbers
INK, TENSOR, LEARNED, ASKED = "#222222", "#dceaf6", "#f6e3cf", "#e4e4e4"
LEFT, MIDDLE, RIGHT = 1.6, 4.8, 8.0
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
    query_labels: Sequence[object] | None = None,
    key_labels: Sequence[object] | None = None,
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
        query_labels=_labels("query_labels", query_labels, values.shape[0]),
        key_labels=_labels("key_labels", key_labels, values.shape[1]),
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
    query_labels: Sequence[object] | None = None,
    key_labels: Sequence[object] | None = None,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    annotate: bool | None = None,
    title: str | None = None,
    cbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One head's weights: a row for each query, a column for each key.

    The scale is fixed: white is 0, dark blue is 1. Grey hatched cells are hidden by ``mask``; red is NaN.

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
        _, ax = plt.subplots(figsize=np.clip(size, 2.6, 9.0), layout="constrained")
    return _draw_heatmap(data, ax, title=title, cbar=cbar)


def head_heatmaps(
    weights: Float[Tensor, "heads n_q n_k"],
    query_labels: Sequence[object] | None = None,
    key_labels: Sequence[object] | None = None,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    annotate: bool | None = None,
    titles: Sequence[str] | None = None,
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
        columns: how many heads to draw in a row.
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
    titles = _labels("titles", titles or [f"head {h}" for h in range(heads)], heads)
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
    made_here = axes is None
    axes = _grid(heads, columns, data[0].values.shape) if made_here else np.asarray(axes).reshape(-1)
    if len(axes) != heads:
        expect.fail(ValueError, "axes", f"one for each of {heads} heads", len(axes))
    for head, title, ax in zip(data, titles, axes, strict=True):
        _draw_heatmap(head, ax, title=title, cbar=False)
    if made_here:
        bar = axes[0].figure.colorbar(axes[0].collections[0], ax=list(axes), fraction=0.04, pad=0.02)
        bar.set_label("weight")
    return axes


def contribution_heatmaps(
    contributions: Float[Tensor, "heads n d_model"],
    token_labels: Sequence[object] | None = None,
    feature_labels: Sequence[object] | None = None,
    *,
    axes: Sequence[Axes] | np.ndarray | None = None,
) -> np.ndarray:
    """What each head writes to the output, and the sum, on one scale: blue below 0, red above.

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
    rows = _labels("token_labels", token_labels, n)
    columns = _labels("feature_labels", feature_labels, d_model)
    parts = [*contributions.detach().double().cpu().numpy()]
    parts.append(sum(parts))
    names = [f"head {h} writes" for h in range(heads)] + ["sum: the output"]
    axes = _grid(heads + 1, 4, (n, d_model)) if axes is None else np.asarray(axes).reshape(-1)
    if len(axes) != heads + 1:
        expect.fail(ValueError, "axes", f"{heads + 1}, one for each head and one for the sum", len(axes))
    limit = max(np.abs(part).max() for part in parts) or 1.0
    for ax, part, name in zip(axes, parts, names, strict=True):
        sns.heatmap(
            part,
            vmin=-limit,
            vmax=limit,
            cmap="vlag",
            annot=part.size <= MAX_ANNOTATED,
            fmt=".2f",
            annot_kws={"fontsize": "small"},
            linewidths=0.5,
            cbar=False,
            xticklabels=_literal(columns),
            yticklabels=_literal(rows),
            ax=ax,
        )
        row, column = np.unravel_index(np.abs(part).argmax(), part.shape)
        most = f"largest {part[row, column]:.2f}, for {rows[row]} at {columns[column]}"
        ax.set(xlabel="feature", ylabel="token", title=name, label=f"{name}: {n} by {d_model}, {most}.")
        ax.tick_params(axis="y", rotation=0)
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
    token_labels: Sequence[object] | None = None,
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
    labels = _labels("token_labels", token_labels or [f"token {i}" for i in range(n)], n)
    if axes is None:
        d_model = num_heads * d_k
        cell = min(0.45, 8.0 / (d_model + 2 * d_k))
        size = (4.2 + cell * (d_model + 2 * d_k), 1.0 + cell * num_heads * (n + 1))
        widths = [d_model + 2, d_k + 4, d_k + 4]
        _, axes = plt.subplots(1, 3, figsize=size, layout="constrained", width_ratios=widths)
    axes = np.asarray(axes).reshape(-1)
    if len(axes) != 3:
        expect.fail(ValueError, "axes", "three", len(axes))
    colours = sns.color_palette("colorblind" if n <= 10 else "husl", n)
    nowhere = np.zeros((1, *data.stored.shape), dtype=bool)
    shape = (num_heads, n, d_k)
    _draw_blocks(axes[0], data.stored[None], data.token, colours, nowhere, [labels])
    axes[0].set_title(f"x\nshape {(n, num_heads * d_k)}")
    right = np.zeros(shape, dtype=bool)
    _draw_blocks(axes[1], data.right, data.token, colours, right, [labels] * num_heads)
    axes[1].set_title(f"right: view, then transpose\nshape {shape}")
    rows = [f"row {i}" for i in range(n)]
    _draw_blocks(axes[2], data.wrong, data.token, colours, data.misplaced, [rows] * num_heads)
    axes[2].set_title(f"wrong: bare view\nshape {shape}")
    axes[0].set_label(
        f"Map of memory: {n} tokens of {num_heads * d_k} numbers, a row and a colour for each token."
    )
    axes[1].set_label(f"View, then transpose: {num_heads} heads, each with {d_k} numbers of every token.")
    wrong = f"{data.misplaced.sum()} of {data.misplaced.size} cells hold a number of another token or head"
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
        _tensor_box(ax, column, 9.6, f"{name[0]}_proj", tensor, colour=LEARNED)
        _arrow(ax, (column, 9.2), (column, 8.6))
        _tensor_box(ax, column, 8.2, f"split_heads: {name}", cut)
    between = (LEFT + MIDDLE) / 2
    _arrow(ax, (LEFT, 7.8), (between - 0.5, 7.2))
    _arrow(ax, (MIDDLE, 7.8), (between + 0.5, 7.2))
    _tensor_box(ax, between, 6.8, "query @ key.mT / sqrt(d_k)", scores, width=4.4)
    _arrow(ax, (between, 6.4), (between, 5.8))
    _tensor_box(ax, between, 5.4, "masked_softmax: weights", weights, width=4.4)
    _tensor_box(ax, 6.65, 5.4, "mask", mask, colour=ASKED, width=1.7)
    _arrow(ax, (5.8, 5.4), (between + 2.2, 5.4))
    _arrow(ax, (between, 5.0), (between + 0.9, 4.4))
    _arrow(ax, (RIGHT, 7.8), (RIGHT, 4.4))
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
    from IPython.core.pylabtools import print_figure
    from IPython.display import display

    picture = base64.b64encode(print_figure(figure)).decode()
    display({"image/png": picture, "text/plain": alt}, metadata={"image/png": {"alt": alt}}, raw=True)
    plt.close(figure)


def style() -> None:
    """The style of the series: text that is large enough to read, and no lines without a meaning."""
    sns.set_theme(context="notebook", style="white", palette="colorblind", font_scale=0.9)
    plt.rcParams.update({"figure.dpi": 100, "axes.titlesize": "medium", "hatch.linewidth": 0.6})


def _labels(name: str, labels: Sequence[object] | None, length: int) -> list[str]:
    """One text for each row, column or picture."""
    if labels is None:
        return [str(position) for position in range(length)]
    if isinstance(labels, str):
        expect.fail(TypeError, name, "a list of labels", "one str", f"Did you mean {name}.split()?")
    if len(labels) != length:
        expect.fail(ValueError, name, f"{length} labels", len(labels))
    return [str(label) for label in labels]


def _literal(labels: list[str]) -> list[str]:
    """Labels as typed: a dollar sign stays a dollar sign and does not start a formula."""
    return [label.replace("$", r"\$") for label in labels]


def _grid(heads: int, columns: int, shape: tuple[int, int]) -> np.ndarray:
    """A figure with a place for each head, ``columns`` in a row."""
    columns = min(columns, heads)
    rows = math.ceil(heads / columns)
    n_q, n_k = shape
    width = np.clip(1.0 + 0.5 * n_k, 2.2, 4.2) * columns + 0.8
    height = np.clip(1.0 + 0.5 * n_q, 2.2, 4.2) * rows
    _, grid = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
    for spare in grid.flat[heads:]:
        spare.set_visible(False)
    return grid.flat[:heads]


def _draw_heatmap(data: HeatmapData, ax: Axes, *, title: str | None, cbar: bool) -> Axes:
    missing = np.isnan(data.values) & ~data.hidden
    sns.heatmap(
        data.values,
        mask=data.hidden | missing,
        vmin=0.0,
        vmax=1.0,
        cmap=PALETTE,
        linewidths=0.5,
        linecolor="0.8",
        square=True,
        xticklabels=_literal(data.key_labels),
        yticklabels=_literal(data.query_labels),
        cbar=cbar,
        cbar_kws={"label": "weight"},
        ax=ax,
    )
    _cover(ax, data.hidden, facecolor=HIDDEN_COLOUR, edgecolor="0.6", hatch="////")
    _cover(ax, missing, facecolor=NAN_COLOUR, edgecolor="white")
    for row, column in np.argwhere(data.annotations != ""):
        colour = "white" if missing[row, column] or data.values[row, column] > DARK_FROM else "black"
        text = data.annotations[row, column]
        ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontsize="small")
    ax.set(xlabel="key", ylabel="query", title=title, label=describe(data, title))
    ax.tick_params(axis="y", rotation=0)
    ax.tick_params(axis="x", rotation=0 if max(map(len, data.key_labels)) <= 5 else 90)
    return ax


def _cover(ax: Axes, cells: np.ndarray, **look: str) -> None:
    """Lay a rectangle over each true cell."""
    if cells.any():
        patches = [Rectangle((column, row), 1, 1) for row, column in np.argwhere(cells)]
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
            names.extend(_literal([row_labels[block][row]]))
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
    ax.set_yticks(ticks, names, fontsize="small")
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
) -> None:
    """A rounded box around a name and a shape."""
    look = {"boxstyle": "round,pad=0.02,rounding_size=0.12", "facecolor": colour, "edgecolor": INK}
    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.38), width, 0.76, **look))
    ax.text(x, y + 0.14, name, ha="center", va="center", fontsize=11, color=INK, weight="bold")
    ax.text(x, y - 0.19, _size(tensor), ha="center", va="center", fontsize=10.5, color=INK)


def _arrow(ax: Axes, start: Point, end: Point) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK})
