"""A diagram of the whole layer, shape by shape: boxes for tensors, arrows for what is computed from what."""

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from mha_lab.attention import masked_softmax, scaled_dot_product_scores
from mha_lab.heads import merge_heads, split_heads
from mha_lab.masks import padding_mask
from mha_lab.multihead import MultiHeadAttention

INK, TENSOR, LEARNED, ASKED = "#222222", "#dceaf6", "#f6e3cf", "#e4e4e4"
LEFT, MIDDLE, RIGHT = 1.6, 4.8, 8.0
Point = tuple[int | float, int | float]


def layer_shapes() -> Figure:
    """Every tensor of one call of the layer, with its shape, from the input to the output.

    The shapes are those of tensors that were really computed, so the picture cannot be wrong about them.
    Its description, for ``plot.show``, is made from the same tensors.

    Source: Vaswani et al. 2017, section 3.2.2 and figure 2.
    """
    with torch.random.fork_rng(devices=[]):  # the numbers do not matter; a seed set before must go on
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
    _box(ax, MIDDLE, 11, "x", x)
    columns = zip((LEFT, MIDDLE, RIGHT), ("query", "key", "value"), wide, (query, key, value), strict=True)
    for column, name, tensor, cut in columns:
        _arrow(ax, (MIDDLE, 10.6), (column, 10.0))
        _box(ax, column, 9.6, f"{name[0]}_proj", tensor, colour=LEARNED)
        _arrow(ax, (column, 9.2), (column, 8.6))
        _box(ax, column, 8.2, f"split_heads: {name}", cut)
    between = (LEFT + MIDDLE) / 2
    _arrow(ax, (LEFT, 7.8), (between - 0.5, 7.2))
    _arrow(ax, (MIDDLE, 7.8), (between + 0.5, 7.2))
    _box(ax, between, 6.8, "query @ key.mT / sqrt(d_k)", scores, width=4.4)
    _arrow(ax, (between, 6.4), (between, 5.8))
    _box(ax, between, 5.4, "masked_softmax: weights", weights, width=4.4)
    _box(ax, 6.65, 5.4, "mask", mask, colour=ASKED, width=1.7)
    _arrow(ax, (5.8, 5.4), (between + 2.2, 5.4))
    _arrow(ax, (between, 5.0), (between + 0.9, 4.4))
    _arrow(ax, (RIGHT, 7.8), (RIGHT, 4.4))
    _box(ax, 5.9, 4.0, "weights @ value: heads", heads, width=6.0)
    _arrow(ax, (MIDDLE, 3.6), (MIDDLE, 3.0))
    _box(ax, MIDDLE, 2.6, "merge_heads", concat)
    _arrow(ax, (MIDDLE, 2.2), (MIDDLE, 1.6))
    _box(ax, MIDDLE, 1.2, "out_proj: output", output, colour=LEARNED)
    ax.text(
        0.1, 0.4,
        "batch 2, n = 5, d_model = 6, num_heads = 3, d_k = 2. Orange: learned. Mask: True = may attend.",
        fontsize=10, color=INK,
    )  # fmt: skip
    ax.set_label(
        f"The layer shape by shape. x {_shape(x)} goes through q_proj, k_proj and v_proj, "
        f"{_shape(wide[0])} each; split_heads gives query, key and value, {_shape(query)}; "
        f"query @ key.mT / sqrt(d_k) is {_shape(scores)}; with mask {_shape(mask)}, masked_softmax "
        f"gives weights {_shape(weights)}; weights @ value, the heads, is {_shape(heads)}; "
        f"merge_heads gives {_shape(concat)}; out_proj gives output {_shape(output)}."
    )
    return figure


def _shape(tensor: torch.Tensor) -> str:
    """Of a tensor, for reading."""
    return str(tuple(tensor.shape))


def _box(
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
    ax.text(x, y - 0.19, _shape(tensor), ha="center", va="center", fontsize=10.5, color=INK)


def _arrow(ax: Axes, start: Point, end: Point) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK})
