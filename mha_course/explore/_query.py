"""A query to drag in the plane of the keys."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
import traitlets
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from mha_course.explore._widget import (
    COLOURS,
    MARKERS,
    Explorable,
    finite,
    module,
    name_rows,
    written,
)
from mha_lab import _expect as expect
from mha_lab._texts import short, texts
from mha_lab.attention import scaled_dot_product_attention

DASHES = ("-", (0, (8, 3)), (0, (2, 3)), (0, (10, 3, 2, 3)))


class KeyPlane(Explorable):
    """The result of ``explore.query``: the plane of the keys, and its state as tensors, in both directions.

    ``.query`` is the vector; this class is the picture that it is moved in.
    """

    _public = "query"
    _esm = module("query")
    _keys = traitlets.List().tag(sync=True)
    _values = traitlets.List().tag(sync=True)
    _labels = traitlets.List().tag(sync=True)
    _reach = traitlets.Float().tag(sync=True)
    _query = traitlets.List().tag(sync=True)
    _scale = traitlets.Float().tag(sync=True)

    def __init__(self, dtype: torch.dtype, **state: Any) -> None:
        self._dtype = dtype
        super().__init__(**state)

    @property
    def query(self) -> Float[Tensor, "2"]:
        """The query at its present place. Assigning moves the arrow."""
        return torch.tensor(self._query, dtype=self._dtype)

    @query.setter
    def query(self, value: Tensor) -> None:
        self._query = _checked(value, torch.tensor(self._keys, dtype=self._dtype)).tolist()

    @property
    def scale(self) -> float:
        """The factor for the dot products. Assigning changes the picture."""
        return self._scale

    @scale.setter
    def scale(self, value: float) -> None:
        self._scale = float(expect.real_number("scale", value))

    @property
    def weights(self) -> Float[Tensor, "n_k"]:
        """The weights of the query at its present place."""
        return self._attend()[1]

    @property
    def output(self) -> Float[Tensor, "d_v"]:
        """The weighted sum of the values, for the query at its present place."""
        return self._attend()[0]

    def _attend(self) -> tuple[Tensor, Tensor]:
        query, keys, values = (
            torch.tensor(x, dtype=torch.float64) for x in ([self._query], self._keys, self._values)
        )
        output, weights = scaled_dot_product_attention(query, keys, values, scale=self._scale)
        return output[0].to(self._dtype), weights[0].to(self._dtype)

    def describe(self) -> str:
        """The weights and the fetched value in words."""
        output, weights = self._attend()
        shares = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(self._labels, weights, strict=True))
        fetched = ", ".join(f"{x:.2f}" for x in output.tolist())
        at = ", ".join(f"{x:.2f}" for x in self._query)
        return f"A query at ({at}), scale {self._scale:.3g}. Weights: {shares}. Fetched value: ({fetched})."

    def still(self) -> Figure:
        """Keys and query as arrows; score, value and weight of each key, the fetched value and the scale."""
        output, weights = (each.tolist() for each in self._attend())
        products = [sum(a * b for a, b in zip(key, self._query, strict=True)) for key in self._keys]
        figure, (plane, bars) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
        for i, ((x, y), name, weight) in enumerate(
            zip(self._keys, map(short, self._labels), weights, strict=True)
        ):
            plane.plot(
                [0, x],
                [0, y],
                color=COLOURS["key"],
                linestyle=DASHES[i % len(DASHES)],
                linewidth=1.5 + 4 * weight,
            )
            plane.plot(x, y, MARKERS["key"], color=COLOURS["key"], markersize=4 + 6 * weight)
            plane.annotate(
                name,
                (x, y),
                textcoords="offset points",
                xytext=(0, 8 if y >= 0 else -16),
                ha="right" if x > self._reach / 2 else "left" if x < -self._reach / 2 else "center",
                parse_math=False,
            )
        x, y = self._query
        plane.plot([0, x], [0, y], color=COLOURS["query"], linewidth=4)
        plane.plot(x, y, MARKERS["query"], color=COLOURS["query"], markersize=11)
        plane.annotate("query", self._query, textcoords="offset points", xytext=(6, -14), weight="bold")
        plane.set(xlim=(-self._reach, self._reach), ylim=(-self._reach, self._reach), aspect="equal")
        plane.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        plane.axvline(0, color="0.8", linewidth=0.8, zorder=0)
        drawn = bars.barh(range(len(weights)), weights, color=COLOURS["weight"])
        bars.bar_label(drawn, [f"{weight:.2f}" for weight in weights], padding=3)
        rows = zip(map(short, self._labels), products, self._values, strict=True)
        names = [
            f"■ {name}: q · k {product:.1f}, score {self._scale * product:.1f}\n"
            f"▲ value {written(value, whole=True)}"
            for name, product, value in rows
        ]
        name_rows(bars, names)
        title = f"fetched value {written(output)}\nscale {self._scale:.3g}"
        bars.set(xlim=(0, 1.15), xlabel="weight", title=title)
        bars.invert_yaxis()
        return figure


def query(
    keys: Float[Tensor, "n_k 2"],
    values: Float[Tensor, "n_k d_v"],
    *,
    query: Float[Tensor, "2"] | None = None,
    scale: float | None = None,
    key_labels: Sequence[str] | None = None,
) -> KeyPlane:
    """A query to drag in the plane of its keys: ``softmax(scale * keys @ query) @ values``, live.

    Dot products, scores, weights and the fetched value follow the pointer or the arrow keys. A click on a key
    focuses on it, and a second key is averaged with it; where no query does that, the picture says why. The
    learner's state is in ``.query``, ``.weights``, ``.output`` and ``.scale``.

    Args:
        keys: ``(n_k, 2)``, none of them 0, for up to 8 keys.
        values: ``(n_k, d_v)``.
        query: the first place of the query, ``(2,)``; ``None`` means half the first key.
        scale: the factor for the dot products; ``None`` means ``1/sqrt(2)``.
        key_labels: one text for each key; ``None`` means "key 0", "key 1" and so on.

    Raises:
        TypeError: not tensors, not of one floating-point dtype, or labels that are not texts.
        ValueError: a wrong shape, NaN or infinity, a key of 0, or a wrong number of labels.

    Source: Vaswani et al. 2017, section 3.2.1.

    >>> from mha_course import explore
    >>> keys, values = torch.eye(2) * 4, torch.tensor([[1.0], [3.0]])
    >>> picture = explore.query(keys, values, query=torch.tensor([1.0, 1.0]))
    >>> picture.weights, picture.output
    (tensor([0.5000, 0.5000]), tensor([2.]))
    """
    for name, tensor in (("keys", keys), ("values", values)):
        finite(
            name,
            expect.tensor(
                name, tensor, "(n_k, 2)" if name == "keys" else "(n_k, d_v)", min_rank=2, max_rank=2
            ),
        )
    expect.same_kind(keys=keys, values=values)
    expect.width("keys", keys, "the plane's 2 axes", 2)
    if not 1 <= len(keys) <= 8:
        expect.fail(ValueError, "keys", "1 to 8 keys", f"{len(keys)}")
    if len(values) != len(keys):
        expect.fail(ValueError, "values", f"one row for each of the {len(keys)} keys", f"{len(values)}")
    lengths = keys.norm(dim=1)
    if not lengths.all():
        expect.fail(
            ValueError, "keys", "keys that point somewhere", "a key of 0", "It has no direction to draw."
        )
    begin = keys[0] / 2 if query is None else _checked(query, keys)
    return KeyPlane(
        keys.dtype,
        _keys=keys.tolist(),
        _values=values.tolist(),
        _labels=texts("key_labels", key_labels, len(keys), "key {}"),
        _reach=1.25 * max(lengths.max().item(), begin.abs().max().item()),
        _query=begin.tolist(),
        _scale=1 / math.sqrt(2) if scale is None else float(expect.real_number("scale", scale)),
    )


def _checked(value: Tensor, keys: Tensor) -> Tensor:
    finite("query", expect.tensor("query", value, "(2,)", min_rank=1, max_rank=1))
    expect.same_kind(keys=keys, query=value)
    expect.width("query", value, "the plane's axes", 2)
    return value
