"""Weights that carry values into an output, one step after the other."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import traitlets
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mha_course.explore._widget import COLOURS, Explorable, finite, module, row_of, written
from mha_lab import _expect as expect
from mha_lab._texts import short, texts
from mha_lab.attention import masked_softmax

STEPS = ("start", "product", "scale", "softmax", "weigh", "sum", "w_o")
TOLD = ("start", "scale", "w_o")  # how far the still can go; the last is all
PLACES = (0, 1.6, 3.4, 4.2, 5)  # of the columns in the still
MAX_SIZES = {"heads": 2, "tokens": 8, "d_k": 8, "d_v": 4, "d_model": 8}


class Flow(Explorable):
    """The result of ``explore.flow``: the picture, and its state as tensors, in both directions."""

    _esm = module("flow")
    _tokens = traitlets.List().tag(sync=True)
    _labels = traitlets.List().tag(sync=True)  # tokens, short enough for the picture
    _query = traitlets.List().tag(sync=True)
    _key = traitlets.List().tag(sync=True)
    _value = traitlets.List().tag(sync=True)
    _w_o = traitlets.List().tag(sync=True)
    _limits = traitlets.List().tag(sync=True)  # of a value and of query · key: the least, the most, a step
    _row = traitlets.Int().tag(sync=True)
    _shown = traitlets.Unicode().tag(sync=True)
    _at = traitlets.Float().tag(sync=True)
    _playing = traitlets.Bool().tag(sync=True)
    _edits = traitlets.Dict().tag(sync=True)  # "value head key number", "product head query key": a number

    def __init__(self, dtype: torch.dtype, known: str, **state: Any) -> None:
        self._dtype, self._known = dtype, known
        super().__init__(**state)

    @property
    def row(self) -> int:
        """The query token that is chosen, counted from 0. Assigning chooses another."""
        return self._row

    @row.setter
    def row(self, value: int) -> None:
        self._row = row_of(value, len(self._tokens))

    @property
    def shown(self) -> str:
        """One of "head 0", "head 1", "both" and "average". Assigning chooses it."""
        return f"head {self._shown}" if self._shown.isdigit() else self._shown

    @shown.setter
    def shown(self, value: str) -> None:
        heads = [f"head {h}" for h in range(len(self._query))]
        if value not in (offered := heads if len(heads) == 1 else [*heads, "both", "average"]):
            expect.fail(ValueError, "shown", f"one of {', '.join(offered)}", repr(value))
        self._shown = value.removeprefix("head ")

    @property
    def step(self) -> str:
        """The step reached or under way: "start", "product", "scale", "softmax", "weigh", "sum" or "w_o"."""
        return STEPS[math.ceil(self._at)]

    @step.setter
    def step(self, value: str) -> None:
        offered = STEPS if self._w_o else STEPS[:-1]
        if value not in offered:
            expect.fail(ValueError, "step", f"one of {', '.join(offered)}", repr(value))
        self._at = offered.index(value)

    @property
    def scale(self) -> float:
        """The factor for the dot products. Assigning changes the picture."""
        return self._edits.get("scale", 1 / math.sqrt(len(self._query[0][0])))

    @scale.setter
    def scale(self, value: float) -> None:
        self._edits = self._edits | {"scale": float(expect.real_number("scale", value))}

    @property
    def values(self) -> Float[Tensor, "num_heads n d_v"]:
        """The values with the learner's edits. Assigning changes the picture."""
        return self._edited("value", self._value).to(self._dtype)

    @values.setter
    def values(self, value: Tensor) -> None:
        self._assign("values", "value", value, self._value)

    @property
    def w_o(self) -> Float[Tensor, "rows d_model"] | None:
        """The output projection with the learner's edits, or ``None``. Assigning changes the picture."""
        return self._edited("w_o", self._w_o).to(self._dtype) if self._w_o else None

    @w_o.setter
    def w_o(self, value: Tensor) -> None:
        if not self._w_o:
            expect.fail(ValueError, "w_o", "a picture with w_o", "one that was made without")
        self._assign("w_o", "w_o", value, self._w_o)

    @property
    def scores(self) -> Float[Tensor, "shown n"]:
        """The scores of the chosen query, a row for each head that is shown."""
        return self._scores()[self._picked()].to(self._dtype)

    @property
    def weights(self) -> Float[Tensor, "shown n"]:
        """The weights of the chosen query: a row for each head that is shown, or their average."""
        weights = masked_softmax(self._scores())[self._picked()]
        return (weights.mean(dim=0, keepdim=True) if self._shown == "average" else weights).to(self._dtype)

    @property
    def output(self) -> Float[Tensor, "width"]:
        """What the last step gives: the output of the heads that are shown, after ``w_o`` if there is one.

        A head that is not shown counts as zeros. The average of the heads has no ``w_o``: it is too narrow.
        """
        heads = (masked_softmax(self._scores())[:, None] @ self._edited("value", self._value))[:, 0]
        if self._shown == "average":
            return heads.mean(dim=0).to(self._dtype)
        if not self._w_o:
            return heads[self._picked()].flatten().to(self._dtype)
        kept = torch.zeros_like(heads)
        kept[self._picked()] = heads[self._picked()]
        return (kept.flatten() @ self._edited("w_o", self._w_o)).to(self._dtype)

    def _picked(self) -> list[int]:
        return [int(self._shown)] if self._shown.isdigit() else list(range(len(self._query)))

    def _products(self) -> Tensor:
        """Of all heads, queries and keys, before the scale."""
        query, key = (torch.tensor(x, dtype=torch.float64) for x in (self._query, self._key))
        return self._edited("product", (query @ key.mT).tolist())

    def _scores(self) -> Tensor:
        """Of the chosen query, in all heads."""
        return self.scale * self._products()[:, self._row]

    def _edited(self, kind: str, numbers: list) -> Tensor:
        edited = torch.tensor(numbers, dtype=torch.float64)
        for name, number in self._edits.items():
            if name.startswith(kind):
                edited[tuple(map(int, name.split()[1:]))] = number
        return edited

    def _assign(self, name: str, kind: str, value: Tensor, numbers: list) -> None:
        old = torch.tensor(numbers, dtype=self._dtype)
        shape = expect.shape(old.shape)
        finite(name, expect.tensor(name, value, shape, min_rank=old.ndim, max_rank=old.ndim))
        if value.shape != old.shape:
            expect.fail(ValueError, name, f"the shape {shape}", expect.shape(value.shape))
        others = {edit: x for edit, x in self._edits.items() if not edit.startswith(kind)}
        places = (value != old).nonzero().tolist()
        new = {" ".join([kind, *map(str, place)]): value[tuple(place)].item() for place in places}
        self._edits = others | new

    def _told(self) -> str:
        """How far the description and the still go: to ``known``; to the end after a later step."""
        return self._known if self._at <= STEPS.index(self._known) else TOLD[-1]

    def describe(self) -> str:
        """Scores and weights of each head that is shown, and the output; only what is told already."""
        rows, known = [], self._told()
        names = {"start": "value", "scale": "score and value"}.get(known, "score, weight and value")
        for h, scores in zip(self._picked(), self.scores, strict=True):
            weights = masked_softmax(scores[None].double())[0].tolist()
            each = zip(scores.tolist(), weights, self.values[h].tolist(), strict=True)
            numbers = ([f"{score:.2f}", f"{weight:.2f}", written(v)] for score, weight, v in each)
            kept = {"start": [2], "scale": [0, 2]}.get(known, [0, 1, 2])
            told = (", ".join(each[i] for i in kept) for each in numbers)
            of_each = "; ".join(map(" ".join, zip(self._tokens, told, strict=True)))
            rows.append(f"Head {h}, {names}: {of_each}.")
        if known == TOLD[-1]:
            rows.append(f"Output ({self.shown}): {written(self.output.tolist())}.")
        return f"The query {self._tokens[self._row]}. {' '.join(rows)}"

    def still(self) -> Figure:
        """All steps at once: tokens, ribbons as thick as the weights, sums; below, ``w_o`` and the output.

        With ``known``, the tokens and their numbers up to this step, and nothing else.
        """
        picked = self._picked()
        scores = self.scores.double()
        if self._told() != TOLD[-1]:
            figure, axes = plt.subplots(
                len(picked), figsize=(4.7, 0.3 + 2.6 * len(picked)), layout="constrained", squeeze=False
            )
            for ax, h, score in zip(axes[:, 0], picked, scores.tolist(), strict=True):
                self._draw_tokens(ax, h, score)
            return figure
        weights = masked_softmax(scores)
        projects = bool(self._w_o) and self._shown != "average"
        share = 1 / len(picked) if self._shown == "average" else 1.0
        rows = len(picked) + (projects or share < 1)
        figure, axes = plt.subplots(
            rows, 2, figsize=(9.5, 0.3 + 2.6 * rows), layout="constrained", width_ratios=(5, 2), squeeze=False
        )
        figure.suptitle(f"scale {self.scale:.3f}", fontsize="medium", x=0.01, ha="left")
        parts = weights[..., None] * self.values[picked].double()  # (shown, n, d_v)
        sums = torch.nn.functional.pad(parts.cumsum(dim=1), (0, 0, 1, 0))  # one scale for all heads
        reach = [1.08 * x for x in (sums.min().item(), sums.max().item())] if sums.any() else [-1, 1]
        for (left, right), h, score, weight, part in zip(axes, picked, scores, weights, parts, strict=False):
            self._draw_ribbons(left, h, score.tolist(), weight.tolist())
            _draw_sums(right, part, f"output of head {h}")
            right.set_xlim(*reach)
        left, right = axes[-1]
        if projects:
            _draw_matrix(left, self.w_o.tolist(), len(self._value[0][0]))
            heads = torch.zeros(len(self._query), parts.shape[-1], dtype=torch.float64)
            heads[picked] = parts.sum(dim=1)
            _draw_sums(right, heads.flatten()[:, None] * self.w_o.double(), "output = concat @ w_o", self.w_o)
        elif share < 1:
            left.set_axis_off()
            _draw_sums(right, share * parts.flatten(0, 1), "output: average of the heads")
        return figure

    def _draw_tokens(self, ax: Axes, h: int, scores: list[float], weights: list[float] | None = None) -> None:
        """A row for each token: its value and, as far as they are told, the numbers of its score."""
        columns = [self._products()[h, self._row].tolist(), scores, weights or []]
        columns = columns[: {"start": 0, "scale": 2}.get(self._told(), 3)]
        names, values = [*map(short, self._tokens)], self.values[h].tolist()
        for j, (name, value) in enumerate(zip(names, values, strict=True)):
            numbers = (f"{column[j]:.2f}" for column in columns)
            for place, text in zip(PLACES, (name, written(value), *numbers), strict=False):
                ax.text(place, j + 0.5, text, va="center", parse_math=False)
        headings = f"head {h}", "▲ value", "q · k", "score", "weight"
        colours = "black", COLOURS["value"], "black", "black", "black"
        for place, text, colour in zip(PLACES, headings[: 2 + len(columns)], colours, strict=False):
            ax.text(place, -0.3, text, va="center", weight="bold", color=colour)
        middle, who = len(names) / 2, f"● query\n{names[self._row]}"
        end = 5.2 if weights is None else 7.95
        ax.text(end, middle, who, va="center", color=COLOURS["query"], parse_math=False)
        ax.set(xlim=(0, end + 1.05), ylim=(len(names) + 0.5, -0.7))
        ax.set_axis_off()

    def _draw_ribbons(self, ax: Axes, h: int, scores: list[float], weights: list[float]) -> None:
        n, x = len(scores), np.linspace(0, 1, 40)
        tall = min(n, 2)  # the node is as high as two rows
        seat = (n - tall) / 2
        self._draw_tokens(ax, h, scores, weights)
        for j in range(n):
            y, thick = j + 0.5, weights[j] * tall
            middle = y + (seat + thick / 2 - y) * x * x * (3 - 2 * x)
            ax.fill_between(
                5.7 + 2 * x, middle - thick / 2, middle + thick / 2, color=COLOURS["weight"], alpha=0.7
            )
            seat += thick
        ax.add_patch(plt.Rectangle((7.7, (n - tall) / 2), 0.15, tall, color=COLOURS["query"]))


def _draw_sums(
    ax: Axes, parts: Float[Tensor, "terms width"], title: str, w_o: Float[Tensor, "terms width"] | None = None
) -> None:
    """For each number of the sum, its terms one after the other, in the colour of values or of w_o's sign."""
    terms, width = parts.shape
    for c in range(width):
        start, top = 0.0, c * (terms + 3)
        for j, x in enumerate(parts[:, c].tolist()):
            kind = "value" if w_o is None else "minus" if w_o[j, c] < 0 else "plus"
            ax.barh(top + j, x, left=start, color=COLOURS[kind])
            start += x
        ax.barh(top + terms + 0.4, start, height=1.4, color="0.3")
        told = f"{start:.2f}" if w_o is None else f"col. {c}: {start:.2f}"
        ax.annotate(told, (1.02, top + terms + 0.4), xycoords=("axes fraction", "data"), va="center")
    ax.use_sticky_edges = False  # room beyond the last bar
    ax.axvline(0, color="0.6", linewidth=0.8)
    ax.set_title(title, fontsize="medium")
    ax.set_yticks([])
    ax.invert_yaxis()


def _draw_matrix(ax: Axes, matrix: list[list[float]], d_v: int) -> None:
    rows = [f"head {r // d_v} [{r % d_v}]" for r in range(len(matrix))]
    columns = [f"col. {c}" for c in range(len(matrix[0]))]
    cells = [[f"{x:.2f}" for x in line] for line in matrix]
    table = ax.table(cells, rowLabels=rows, colLabels=columns, loc="center", edges="horizontal")
    table.scale(0.85, 1.3)
    for (r, c), x in np.ndenumerate(matrix):
        if x:
            table[r + 1, c].get_text().set_color(COLOURS["minus" if x < 0 else "plus"])
    ax.set_title("w_o", fontsize="medium")
    ax.set_axis_off()


def flow(
    tokens: Sequence[str],
    query: Float[Tensor, "*heads n d_k"],
    key: Float[Tensor, "*heads n d_k"],
    value: Float[Tensor, "*heads n d_v"],
    w_o: Float[Tensor, "rows d_model"] | None = None,
    *,
    row: int = 0,
    play: bool = False,
    known: str | None = None,
) -> Flow:
    """How one token gets its output: its weights carry the values, step by step.

    ``weights = softmax(scale * query @ key.mT)``, ``output = weights @ value``, and with ``w_o``
    ``output = concat @ w_o``. A slider moves through the steps, and a loop of about four seconds plays them.
    Values, scores, the scale and ``w_o`` can be changed. The learner's state is in ``.row``, ``.shown``,
    ``.step``, ``.values``, ``.scores``, ``.scale``, ``.weights``, ``.w_o`` and ``.output``.

    Args:
        tokens: one text for each of up to 8 tokens.
        query: ``(num_heads, n, d_k)`` for one or two heads, or ``(n, d_k)`` for one; ``d_k`` up to 8.
        key: as ``query``.
        value: ``(num_heads, n, d_v)`` or ``(n, d_v)``; ``d_v`` up to 4.
        w_o: ``(num_heads * d_v, d_model)``, ``d_model`` up to 8; ``None`` leaves out the last step.
        row: the query token that is chosen first.
        play: whether the loop plays from the start.
        known: ``"start"`` or ``"scale"``: the static picture and the description stop at this step, until a
            later one is reached. This leaves the weights to the reader. ``None`` means that they tell all.

    Raises:
        TypeError: not tensors, not of one floating-point dtype, or tokens that are not texts.
        ValueError: a wrong shape or size, NaN or infinity, or a wrong number of tokens.

    Source: Vaswani et al. 2017, sections 3.2.1 and 3.2.2.

    >>> from mha_course import explore
    >>> query, key = torch.zeros(2, 1), torch.ones(2, 1)
    >>> picture = explore.flow(["a", "b"], query, key, torch.tensor([[1.0, 0.0], [0.0, 5.0]]))
    >>> picture.weights, picture.output
    (tensor([[0.5000, 0.5000]]), tensor([0.5000, 2.5000]))
    """
    tensors = {"query": query, "key": key, "value": value}
    for name, tensor in tensors.items():
        finite(name, expect.tensor(name, tensor, "(num_heads, n, d_k)", min_rank=2, max_rank=3))
    query, key, value = (x if x.ndim == 3 else x[None] for x in tensors.values())
    expect.query_key_and_value(query, key, value, None)
    num_heads, n, d_k = query.shape
    if not key.shape[:2] == value.shape[:2] == (num_heads, n):
        got = " and ".join(expect.shape(x.shape) for x in (key, value))
        expect.fail(ValueError, "key and value", f"{num_heads} heads of {n} tokens, as in query", got)
    sizes = {"heads": num_heads, "tokens": n, "d_k": d_k, "d_v": value.shape[-1]}
    if w_o is not None:
        finite("w_o", expect.tensor("w_o", w_o, "(num_heads * d_v, d_model)", min_rank=2, max_rank=2))
        expect.same_kind(query=query, w_o=w_o)
        if len(w_o) != num_heads * value.shape[-1]:
            rows = f"{num_heads * value.shape[-1]} rows, num_heads * d_v"
            expect.fail(ValueError, "w_o", rows, f"shape {expect.shape(w_o.shape)}")
        sizes["d_model"] = w_o.shape[-1]
    for name, size in sizes.items():
        if not 1 <= size <= MAX_SIZES[name]:
            expect.fail(ValueError, "the picture", f"1 to {MAX_SIZES[name]} for {name}", size)
    if known is not None and known not in TOLD[:-1]:
        expect.fail(ValueError, "known", f"None or one of {', '.join(TOLD[:-1])}", repr(known))
    names = texts("tokens", tokens, n, "token {}")
    return Flow(
        query.dtype,
        known or TOLD[-1],
        _tokens=names,
        _labels=[*map(short, names)],
        _query=query.tolist(),
        _key=key.tolist(),
        _value=value.tolist(),
        _w_o=[] if w_o is None else w_o.tolist(),
        _limits=[_range(value, both=True), _range(query @ key.mT, both=False)],
        _row=row_of(row, n),
        _shown="0" if num_heads == 1 else "both",
        _playing=play,
    )


def _range(numbers: Tensor, *, both: bool) -> list[float]:
    """The least and the most to drag to, and the step of a key: 0 and all numbers are well inside."""
    low, high = min(numbers.min().item(), 0.0), max(numbers.max().item(), 0.0)
    if both:
        low, high = min(low, -high), max(high, -low)
    room = 0.125 * (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10((high - low + 2 * room) / 20))
    steps = math.floor((low - room) / step), math.ceil((high + room) / step)
    return [round(count * step, 9) for count in (*steps, 1)]
