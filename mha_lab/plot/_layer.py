"""The layer's shapes, and the memory layout of split heads."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from mha_lab import _expect as expect
from mha_lab._colours import TOKENS
from mha_lab._texts import Labels, short, texts
from mha_lab.attention import masked_softmax, scaled_dot_product_scores
from mha_lab.heads import merge_heads, split_heads
from mha_lab.masks import padding_mask
from mha_lab.multihead import MultiHeadAttention
from mha_lab.plot._page import ASKED, INK, LEARNED, ROLES, TENSOR, _arrow, _size

LEFT, MIDDLE, RIGHT = 1.6, 4.8, 8.0

# The pictures in words.
STORED = "Map of memory: {n} tokens of {d_model} numbers, a row and a colour for each token."
SPLIT = "View, then transpose: {heads} heads, each with {d_k} numbers of every token."
BARE_VIEW = "Bare view: {misplaced} of {cells} cells hold a number that belongs elsewhere."


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
    axes[0].set_label(STORED.format(n=n, d_model=num_heads * d_k))
    axes[1].set_label(SPLIT.format(heads=num_heads, d_k=d_k))
    axes[2].set_label(BARE_VIEW.format(misplaced=data.misplaced.sum(), cells=data.misplaced.size))
    return axes


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
