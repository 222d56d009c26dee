"""All heads of a layer at once."""

from collections.abc import Sequence
from typing import Any

import traitlets
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab.explore._widget import Explorable, finite, labels, module, short

MAX_HEADS, MAX_TOKENS = 16, 128
CELL = 24  # heads and tokens that a still shows with every label


class Heads(Explorable):
    """The result of ``explore.heads``: the picture and the choices in it, in both directions."""

    _esm = module("heads")
    _weights = traitlets.Bytes().tag(sync=True)
    _shape = traitlets.List().tag(sync=True)
    _query_labels = traitlets.List().tag(sync=True)
    _key_labels = traitlets.List().tag(sync=True)
    _row = traitlets.Int().tag(sync=True)
    _picked = traitlets.List().tag(sync=True)
    _averaged = traitlets.Bool(False).tag(sync=True)

    def __init__(self, weights: Tensor, **state: Any) -> None:
        self._all = weights.detach().clone()
        super().__init__(**state)

    @property
    def row(self) -> int:
        """The query token that is chosen, counted from 0. Assigning chooses another."""
        return self._row

    @row.setter
    def row(self, value: int) -> None:
        n_q = self._shape[1]
        if expect.whole_number("row", value, at_least=0) >= n_q:
            expect.fail(ValueError, "row", f"a token from 0 to {n_q - 1}", value)
        self._row = value

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

    def describe(self) -> str:
        """For the chosen token, the key that each shown head looks at most."""
        most = self.weights.max(dim=-1)
        names = ["average"] if self._averaged else [f"head {h}" for h in self._picked]
        looks = ", ".join(
            f"{name}: {self._key_labels[j]} {weight:.2f}"
            for name, weight, j in zip(names, most.values.tolist(), most.indices.tolist(), strict=True)
        )
        heads, n_q, n_k = self._shape
        sizes = f"{heads} heads, {n_q} queries, {n_k} keys"
        return f"{sizes}. {self._query_labels[self._row]} looks most at {looks}."

    def still(self) -> Figure:
        """The heatmaps of all heads."""
        fits = max(self._shape[1:]) <= CELL
        names = (
            {"query_labels": short(self._query_labels), "key_labels": short(self._key_labels)} if fits else {}
        )
        return plot.head_heatmaps(self._all, **names)[0].figure


def heads(
    weights: Float[Tensor, "num_heads n_q n_k"],
    query_labels: Sequence[str],
    key_labels: Sequence[str] | None = None,
) -> Heads:
    """A heatmap for each head on one scale; a token's row is marked in all of them and in the sentence.

    Heads can be picked, compared and averaged. The choices are in ``.row``, ``.picked``, ``.averaged`` and
    ``.weights``.

    Args:
        weights: ``(num_heads, n_q, n_k)``, up to 16 heads of 128 tokens; each row sums to 1, or is 0.
        query_labels: one text for each query.
        key_labels: one text for each key; ``None`` takes ``query_labels``.

    Raises:
        TypeError: weights that are not a floating-point tensor, or labels that are not texts.
        ValueError: a wrong shape or size, NaN, rows that do not sum to 1, or a wrong number of labels.

    >>> import torch
    >>> from mha_lab import explore
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
    queries = labels("query_labels", query_labels, "query", n_q)
    same = key_labels is None and query_labels is not None
    return Heads(
        weights,
        _weights=weights.detach().float().contiguous().cpu().numpy().tobytes(),
        _shape=[num_heads, n_q, n_k],
        _query_labels=queries,
        _key_labels=labels("key_labels", queries if same else key_labels, "key", n_k),
        _row=0,
        _picked=list(range(min(num_heads, 4))),
    )
