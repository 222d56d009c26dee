"""All heads of a layer at once."""

from collections.abc import Sequence
from typing import Any

import traitlets
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from mha_course.explore._widget import COLOURS, Explorable, finite, module, row_of, written
from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab._texts import texts

MAX_HEADS, MAX_TOKENS = 16, 128
TIE = 1e-6  # weights that are nearer than this are the same
CELL = 24  # heads and tokens that a still shows with every label


class Heads(Explorable):
    """The result of ``explore.heads``: the picture and the choices in it, in both directions."""

    _esm = module("heads")
    _weights = traitlets.Bytes().tag(sync=True)
    _shape = traitlets.List().tag(sync=True)
    _query_labels = traitlets.List().tag(sync=True)
    _key_labels = traitlets.List().tag(sync=True)
    _values = traitlets.List().tag(sync=True)  # (n_k, d_v), or empty
    _row = traitlets.Int().tag(sync=True)
    _picked = traitlets.List().tag(sync=True)
    _averaged = traitlets.Bool(False).tag(sync=True)

    def __init__(self, weights: Float[Tensor, "num_heads n_q n_k"], **state: Any) -> None:
        self._all = weights.detach().clone()
        super().__init__(**state)

    @property
    def row(self) -> int:
        """The query token that is chosen, counted from 0. Assigning chooses another."""
        return self._row

    @row.setter
    def row(self, value: int) -> None:
        self._row = row_of(value, self._shape[1])

    @property
    def picked(self) -> list[int]:
        """The heads that are compared. Assigning chooses others."""
        return list(self._picked)

    @picked.setter
    def picked(self, value: Sequence[int]) -> None:
        chosen = sorted({expect.whole_number("picked", head, at_least=0) for head in value})
        if not chosen or chosen[-1] >= self._shape[0]:
            expect.fail(ValueError, "picked", f"some of the heads 0 to {self._shape[0] - 1}", list(value))
        self._picked = chosen

    @property
    def averaged(self) -> bool:
        """Whether the picked heads are averaged. Assigning switches it."""
        return self._averaged

    @averaged.setter
    def averaged(self, value: bool) -> None:
        self._averaged = value

    @property
    def weights(self) -> Float[Tensor, "shown n_k"]:
        """The numbers below the heatmaps: the chosen token's weights, a row for each picked head."""
        rows = self._all[self._picked, self._row]
        return rows.mean(dim=0, keepdim=True) if self._averaged else rows

    @property
    def output(self) -> Float[Tensor, "shown d_v"] | None:
        """What each shown row fetches, the weighted sum of the values; ``None`` if no values were given."""
        return self.weights @ self.weights.new_tensor(self._values) if self._values else None

    def _fetched(self) -> list[str]:
        """``output`` in words, for each shown row."""
        return [] if self.output is None else [written(row) for row in self.output.tolist()]

    def describe(self) -> str:
        """For the chosen token, the keys that get the most weight in each shown head, and what it fetches."""
        names = ["the average"] if self._averaged else [f"head {h}" for h in self._picked]
        fetches = [f", so it fetches {text}" for text in self._fetched()] or [""] * len(names)
        shown = zip(names, self.weights.tolist(), fetches, strict=True)
        looks = "; ".join(f"in {name}, to {self._most(row)}{fetched}" for name, row, fetched in shown)
        heads, n_q, n_k = self._shape
        sizes = f"{heads} heads, {n_q} queries, {n_k} keys"
        return f"{sizes}. The query {self._query_labels[self._row]} gives most weight, {looks}."

    def _most(self, row: list[float]) -> str:
        """The keys with the largest weight of a row, and this weight."""
        best = [j for j, weight in enumerate(row) if weight > max(row) - TIE]
        if len(best) == 1:
            return f"{self._key_labels[best[0]]} ({max(row):.2f})"
        keys = " and ".join(self._key_labels[j] for j in best)
        if len(best) > 2:
            keys = "all keys" if len(best) == len(row) else f"{len(best)} keys"
        return f"{keys} ({max(row):.2f} each)"

    def still(self) -> Figure:
        """The heatmaps of all heads, with the chosen row in a frame, and what it fetches."""
        heads, _, n_k = self._shape
        fits = max(self._shape[1:]) <= CELL
        names = {"query_labels": self._query_labels, "key_labels": self._key_labels} if fits else {}
        titles = [f"head {h}" for h in range(heads)]
        if self._values:
            fetched = (self._all[:, self._row] @ self._all.new_tensor(self._values)).tolist()
            titles = [f"{title}\nfetches {written(row)}" for title, row in zip(titles, fetched, strict=True)]
        axes = plot.head_heatmaps(self._all, titles=titles, **names)
        for ax in axes:
            ax.add_patch(
                Rectangle((0, self._row), n_k, 1, fill=False, edgecolor=COLOURS["query"], linewidth=2.5)
            )
        return axes[0].figure


def heads(
    weights: Float[Tensor, "num_heads n_q n_k"],
    query_labels: Sequence[str],
    key_labels: Sequence[str] | None = None,
    *,
    values: Float[Tensor, "n_k d_v"] | None = None,
    row: int = 0,
) -> Heads:
    """A heatmap for each head on one scale; a token's row is marked in all of them and written below.

    Heads can be picked, compared, averaged and enlarged. The choices are in ``.row``, ``.picked``,
    ``.averaged``, ``.weights`` and, with values, ``.output``.

    Args:
        weights: ``(num_heads, n_q, n_k)``, up to 16 heads of 128 tokens; each row sums to 1, or is 0.
        query_labels: one text for each query.
        key_labels: one text for each key; ``None`` takes ``query_labels``.
        values: what the keys hand over, ``(n_k, d_v)``, in all heads; then each head shows what it fetches.
        row: the query token that is chosen at the start, counted from 0.

    Raises:
        TypeError: weights or values that are not floating-point tensors, or labels that are not texts.
        ValueError: a wrong shape or size, NaN, rows that do not sum to 1, or a wrong number of labels.

    >>> import torch
    >>> from mha_course import explore
    >>> explore.heads(torch.eye(2).expand(3, 2, 2), ["a", "b"]).weights
    tensor([[1., 0.],
            [1., 0.],
            [1., 0.]])
    """
    finite("weights", expect.tensor("weights", weights, "(num_heads, n_q, n_k)", min_rank=3, max_rank=3))
    for axis, (what, most) in enumerate(
        (("heads", MAX_HEADS), ("queries", MAX_TOKENS), ("keys", MAX_TOKENS))
    ):
        if not 1 <= weights.shape[axis] <= most:
            expect.fail(ValueError, "weights", f"1 to {most} {what}", weights.shape[axis])
    sums = weights.detach().double().sum(dim=-1)
    if weights.min() < 0 or not (((sums - 1).abs() < 1e-2) | (sums == 0)).all():
        worst = sums.flatten()[(sums - 1).abs().argmax()].item()
        hint = "Are these scores? Did a softmax run over another axis?"
        expect.fail(ValueError, "weights", "rows that sum to 1", f"a row that sums to {worst:.3g}", hint)
    num_heads, n_q, n_k = weights.shape
    queries = texts("query_labels", query_labels, n_q, "query {}")
    same = key_labels is None and query_labels is not None
    if values is not None:
        finite("values", expect.tensor("values", values, "(n_k, d_v)", min_rank=2, max_rank=2))
        if len(values) != n_k:
            expect.fail(ValueError, "values", f"one row for each of the {n_k} keys", len(values))
    made = Heads(
        weights,
        _weights=weights.detach().float().contiguous().cpu().numpy().tobytes(),
        _shape=[num_heads, n_q, n_k],
        _query_labels=queries,
        _key_labels=texts("key_labels", queries if same else key_labels, n_k, "key {}"),
        _values=[] if values is None else values.tolist(),
        _picked=list(range(min(num_heads, 4))),
    )
    made.row = row
    return made
