"""A mask to edit, and the weights under it."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
import traitlets
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from mha_course.explore._widget import Explorable, finite, module, unlike
from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab._texts import texts
from mha_lab.attention import masked_softmax

MAX_TOKENS = 16


class Mask(Explorable):
    """The result of ``explore.mask``: the picture, and its mask as a tensor, in both directions."""

    _esm = module("mask")
    _scores = traitlets.List().tag(sync=True)
    _query_labels = traitlets.List().tag(sync=True)
    _key_labels = traitlets.List().tag(sync=True)
    _mask = traitlets.List().tag(sync=True)
    _chosen = traitlets.Dict().tag(sync=True)

    def __init__(self, dtype: torch.dtype, **state: Any) -> None:
        self._dtype = dtype
        super().__init__(**state)

    @property
    def mask(self) -> Bool[Tensor, "n_q n_k"]:
        """The mask as it is now, ``True`` = may attend. Assigning changes the picture."""
        return torch.tensor(self._mask, dtype=torch.bool)

    @mask.setter
    def mask(self, value: Tensor) -> None:
        self._mask = _mask(value, (len(self._scores), len(self._scores[0])))

    @property
    def weights(self) -> Float[Tensor, "n_q n_k"]:
        """The weights under the mask as it is now; rows that see nothing are 0."""
        return masked_softmax(torch.tensor(self._scores, dtype=torch.float64), self.mask).to(self._dtype)

    def describe(self) -> str:
        """What each query sees."""
        rows, queries, keys = [], unlike(self._query_labels), unlike(self._key_labels)
        for name, seen, weights in zip(queries, self._mask, self.weights.tolist(), strict=True):
            shares = [f"{key} {w:.2f}" for key, w, s in zip(keys, weights, seen, strict=True) if s]
            rows.append(f"{name} sees {', '.join(shares) or 'nothing'}.")
        return " ".join(rows)

    def still(self) -> Figure:
        """The weights, with hidden cells hatched."""
        n_q, n_k = self.mask.shape
        figure, ax = plt.subplots(figsize=(1.6 + 0.62 * n_k, 1.0 + 0.5 * n_q), layout="constrained")
        names = self._query_labels, self._key_labels
        plot.attention_heatmap(self.weights, *names, mask=self.mask, ax=ax)
        return figure


def mask(
    scores: Float[Tensor, "n_q n_k"],
    mask: Bool[Tensor, "..."] | None = None,
    labels: Sequence[str] | None = None,
) -> Mask:
    """A mask to edit, cell by cell or with a button; the weights are renormalised at once.

    It shows the same mask in the three conventions, as code to copy. The learner's mask and weights are in
    ``.mask`` and ``.weights``.

    Args:
        scores: ``(n_q, n_k)``, up to 16 of each.
        mask: boolean, ``True`` = may attend, broadcastable to the scores; ``None`` hides nothing.
        labels: one text for each token, for self-attention; ``None`` numbers queries and keys.

    Raises:
        TypeError: scores that are not a floating-point tensor, a mask that is not boolean, or labels that are
            not texts.
        ValueError: a wrong shape or size, NaN, or a wrong number of labels.

    >>> from mha_course import explore
    >>> from mha_lab import causal_mask
    >>> explore.mask(torch.zeros(2, 2), causal_mask(2)).weights
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    return _make(scores, mask, labels)


def _make(scores: Tensor, given: Tensor | None, names: Sequence[str] | None) -> Mask:
    finite("scores", expect.tensor("scores", scores, "(n_q, n_k)", min_rank=2, max_rank=2))
    for axis, what in enumerate(("queries", "keys")):
        if not 1 <= scores.shape[axis] <= MAX_TOKENS:
            expect.fail(ValueError, "scores", f"1 to {MAX_TOKENS} {what}", scores.shape[axis])
    n_q, n_k = scores.shape
    if names is not None and n_q != n_k:
        expect.fail(
            ValueError, "labels", "as many queries as keys", f"scores of shape {expect.shape(scores.shape)}"
        )
    return Mask(
        scores.dtype,
        _scores=scores.tolist(),
        _query_labels=texts("labels", names, n_q, "query {}"),
        _key_labels=texts("labels", names, n_k, "key {}"),
        _mask=[[True] * n_k for _ in range(n_q)] if given is None else _mask(given, (n_q, n_k)),
    )


def _mask(value: Tensor, shape: tuple[int, int]) -> list[list[bool]]:
    expect.mask_for(value, shape, torch.device("cpu"))
    return value.expand(shape).tolist()
