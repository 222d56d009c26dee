"""Attention with one head in one picture, with all numbers."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab._texts import Labels, short, texts
from mha_lab.attention import masked_softmax, scaled_dot_product_scores
from mha_lab.plot._page import ASKED, INK, ROLES, TENSOR, _arrow, _size

MEANING = ["", "what it asks for", "how it is found", "what it hands over"]
MEANING += ["how well each key matches", "shares, 1 in each row", "average of the values"]

# The picture in words.
FLOW = "Attention from left to right. {tensors}"
GIVEN = "{name} {size}: {numbers}."
COMPUTED = "{name} {size} = {formula}: {numbers}."
GIVEN_UNKNOWN = "{name} {size}: no numbers yet."
UNKNOWN = "{name} {size}, {meaning}: no numbers yet."


def attention_flow_data(
    x: Float[Tensor, "n d_model"],
    w_q: Float[Tensor, "d_model d_k"],
    w_k: Float[Tensor, "d_model d_k"],
    w_v: Float[Tensor, "d_model d_v"],
) -> dict[str, Float[Tensor, "_ _"]]:
    """The tensors that ``attention_flow`` draws, by their names, in the order in which they are computed.

    >>> import torch
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

    >>> import torch
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
        places = {"name": name, "size": _size(tensor), "formula": how[i], "meaning": MEANING[i]}
        said = f"= {how[i]}" if name in known and how[i] else MEANING[i]
        title = f"{sign} {name} {_size(tensor)}\n{said}".strip()
        ax.text(lefts[i], tops[i] - 0.2, title, va="bottom", fontsize=10, color=colour)
        numbers = "; ".join(f"{label} {', '.join(row)}" for label, row in zip(labels, rows, strict=True))
        says = (COMPUTED if how[i] else GIVEN) if name in known else UNKNOWN if how[i] else GIVEN_UNKNOWN
        described.append(says.format(numbers=numbers, **places))
    for start, end in ((0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 6)):
        name, tensor = [*tensors.items()][start]
        begin = lefts[start] + tensor.shape[1] + 0.1, tops[start] + n / 2
        _arrow(ax, begin, (lefts[end] - 1.3, tops[end] + n / 2), ROLES.get(name, (INK, ""))[0])
    for top in tops[4:6]:
        _arrow(ax, (third + 0.5, top + n + 0.1), (third + 0.5, top + n + 1.5))
    ax.set(xlim=(-1.4, width), ylim=(3 * n + 6.4, -2))
    ax.axis("off")
    ax.set_label(FLOW.format(tensors=" ".join(described)))
    return figure


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
