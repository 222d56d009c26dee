"""A matrix that is written to and erased, token by token, and the cache of softmax attention beside it."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
import traitlets
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from mha_course.chapters.delta import decayed_linear_attention, delta_rule
from mha_course.explore._widget import COLOURS, Explorable, finite, module, name_rows, written
from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab._texts import short, texts
from mha_lab.attention import scaled_dot_product_attention

RULES = ("adds", "decays", "delta")
MAX_SIZES = {"tokens": 8, "d_k": 4, "d_v": 3}


class State(Explorable):
    """The result of ``explore.state``: the picture, and its state as tensors, in both directions.

    ``.state`` is the matrix; this class is the picture that it is in.
    """

    _public = "state"
    _esm = module("state")
    _keys = traitlets.List().tag(sync=True)
    _values = traitlets.List().tag(sync=True)
    _key_labels = traitlets.List().tag(sync=True)
    _value_labels = traitlets.List().tag(sync=True)
    _scale = traitlets.Float().tag(sync=True)
    _step = traitlets.Int().tag(sync=True)
    _rule = traitlets.Unicode().tag(sync=True)
    _decay = traitlets.Float().tag(sync=True)
    _rate = traitlets.Float().tag(sync=True)
    _query = traitlets.Int().tag(sync=True)

    def __init__(self, dtype: torch.dtype, **state: Any) -> None:
        self._dtype = dtype
        super().__init__(**state)

    @property
    def step(self) -> int:
        """How many tokens are read. Assigning moves the picture there."""
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        self._step = _at_most("step", value, len(self._keys))

    @property
    def rule(self) -> str:
        """How a token is written: "adds", "decays" or "delta". Assigning chooses it."""
        return self._rule

    @rule.setter
    def rule(self, value: str) -> None:
        self._rule = _rule(value)

    @property
    def decay(self) -> float:
        """What is left of the state at each token; "adds" does not use it. Assigning changes it."""
        return self._decay

    @decay.setter
    def decay(self, value: float) -> None:
        self._decay = _share("decay", value)

    @property
    def rate(self) -> float:
        """The part that is erased and written; only "delta" uses it. Assigning changes it."""
        return self._rate

    @rate.setter
    def rate(self, value: float) -> None:
        self._rate = _share("rate", value)

    @property
    def query(self) -> int:
        """The token whose key reads, from 0 on. Assigning chooses it."""
        return self._query

    @query.setter
    def query(self, value: int) -> None:
        self._query = _at_most("query", value, len(self._keys) - 1)

    @property
    def state(self) -> Float[Tensor, "d_k d_v"]:
        """The matrix ``S`` after the tokens that are read."""
        return self._matrix().to(self._dtype)

    @property
    def read(self) -> Float[Tensor, "d_v"]:
        """What the query reads in the state."""
        return (self._pairs()[0][self._query] @ self._matrix()).to(self._dtype)

    @property
    def weights(self) -> Float[Tensor, "step"]:
        """The weights of the tokens that are read, in the cache."""
        return self._attend()[1].to(self._dtype)

    @property
    def cache_read(self) -> Float[Tensor, "d_v"]:
        """What the query reads in the cache; zeros if no token is read."""
        return self._attend()[0].to(self._dtype)

    def _pairs(self) -> tuple[Tensor, Tensor]:
        keys, values = (torch.tensor(x, dtype=torch.float64) for x in (self._keys, self._values))
        return keys, values

    def _matrix(self) -> Tensor:
        keys, values = (x[: self._step] for x in self._pairs())
        if not self._step:
            return torch.zeros(len(self._keys[0]), len(self._values[0]), dtype=torch.float64)
        ones = torch.ones(self._step, 1, dtype=torch.float64)
        if self._rule == "delta":
            return delta_rule(keys, keys, values, self._rate * ones, self._decay * ones)[1]
        return decayed_linear_attention(
            keys, keys, values, self._decay * ones if self._rule == "decays" else None
        )[1]

    def _attend(self) -> tuple[Tensor, Tensor]:
        keys, values = self._pairs()
        if not self._step:
            return torch.zeros_like(values[0]), values.new_zeros(0)
        seen = slice(self._step)
        output, weights = scaled_dot_product_attention(
            keys[[self._query]], keys[seen], values[seen], scale=self._scale
        )
        return output[0], weights[0]

    def _names(self) -> list[str]:
        return [f"{key}: {value}" for key, value in zip(self._key_labels, self._value_labels, strict=True)]

    def describe(self) -> str:
        """The rule, the tokens that are read, S, and what the query reads in it and in the cache."""
        n, d_k, d_v = len(self._keys), len(self._keys[0]), len(self._values[0])
        decay = "" if self._rule == "adds" else f", decay {self._decay:.2f}"
        rate = f", rate {self._rate:.2f}" if self._rule == "delta" else ""
        rows = ", ".join(written(row) for row in self._matrix().tolist())
        reads, cached = (written(x.tolist()) for x in (self.read, self.cache_read))
        return (
            f"Tokens {', '.join(self._names())}. Rule: {self._rule}{decay}{rate}. {self._step} of {n} tokens "
            f"are read. The rows of S are {rows}. {self._key_labels[self._query]} reads {reads} in the "
            f"state and {cached} in the cache. The state has {d_k * d_v} numbers, and the cache has "
            f"{self._step * (d_k + d_v)}."
        )

    def still(self) -> Figure:
        """S as a heatmap with numbers, and the weights of all tokens in the cache."""
        matrix, query = self._matrix(), self._keys[self._query]
        n, (d_k, d_v) = len(self._keys), matrix.shape
        size = (7.0 + 0.9 * d_v, 1.4 + max(0.5 * d_k, 0.42 * n))
        figure, (left, right) = plt.subplots(
            1, 2, figsize=size, layout="constrained", width_ratios=(1 + d_v, 6)
        )
        limit = max(1e-9, matrix.abs().max().item())
        left.imshow(
            matrix.numpy(), cmap=plot.SIGNED, vmin=-2 * limit, vmax=2 * limit
        )  # pale: numbers are on it
        for r, row in enumerate(matrix.tolist()):
            for c, x in enumerate(row):
                left.annotate(written([x]), (c, r), ha="center", va="center")
        name_rows(left, [f"● {x:.2f}" for x in query])
        left.set_xticks([])
        who = short(self._key_labels[self._query])
        left.set_title(
            f"S after {self._step} of {n} tokens\n{who} reads {written(self.read.tolist())}", parse_math=False
        )
        pairs = zip(map(short, self._key_labels), map(short, self._value_labels), self._values, strict=True)
        name_rows(right, [f"■ {key} ▲ {value} {written(x, whole=True)}" for key, value, x in pairs], "small")
        weights = self.weights.tolist()
        drawn = right.barh(range(self._step), weights, color=COLOURS["weight"])
        right.bar_label(drawn, [f"{x:.2f}" for x in weights], padding=3)
        for i in range(self._step, n):
            right.annotate("not read yet", (0.02, i), va="center", color="0.4")
        title = f"cache: {who} reads {written(self.cache_read.tolist())}"
        right.set(xlim=(0, 1.2), ylim=(n - 0.5, -0.5), xlabel="weight")
        right.set_title(title, parse_math=False)
        return figure


def state(
    keys: Float[Tensor, "n d_k"],
    values: Float[Tensor, "n d_v"],
    *,
    key_labels: Sequence[str] | None = None,
    value_labels: Sequence[str] | None = None,
    rule: str = "delta",
    decay: float = 1.0,
    rate: float = 1.0,
    query: int = 0,
    step: int = 0,
    scale: float | None = None,
) -> State:
    """A matrix ``S`` that each token changes, and beside it the cache of softmax attention.

    With the rule "adds", ``S ← S + key^T value``. With "decays", ``S ← decay · S + key^T value``. With
    "delta", ``S`` first fades; then the key finds ``found = key S``, and ``S ← S + key^T rate (value -
    found)``. The picture shows these parts for each token. A key reads as a query: ``query S`` in the state,
    and ``softmax(scale · query keys^T) values`` in the cache. The learner's state is in ``.step``, ``.rule``,
    ``.decay``, ``.rate``, ``.query``, ``.state``, ``.read``, ``.weights`` and ``.cache_read``.

    Args:
        keys: ``(n, d_k)``, of up to 8 tokens, with ``d_k`` up to 4; in published layers of length 1. Tokens
            with equal rows have the same key.
        values: ``(n, d_v)``; ``d_v`` up to 3.
        key_labels, value_labels: a text for each token; ``None`` means "key 0", "value 0" and so on.
        rule: "adds", "decays" or "delta".
        decay: from 0 (forget all) to 1 (forget nothing), the same for each token.
        rate: from 0 (write nothing) to 1 (replace), the same for each token.
        query: the token whose key reads at first.
        step: how many tokens are read at first.
        scale: the factor for the dot products in the cache; ``None`` means ``1/sqrt(d_k)``.

    Raises:
        TypeError: not tensors, not of one floating-point dtype, or labels that are not texts.
        ValueError: a wrong shape or size, NaN or infinity, a wrong number of labels, a rule, a token or a
            step that does not exist, or a decay or rate that is not from 0 to 1.

    Source: Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks", section 2.

    >>> from mha_course import explore
    >>> key, value = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[8.0], [2.0]])
    >>> picture = explore.state(key, value, rate=0.5, step=2)
    >>> picture.read, picture.cache_read
    (tensor([3.]), tensor([5.]))
    """
    for name, tensor in (("keys", keys), ("values", values)):
        wanted = "(n, d_k)" if name == "keys" else "(n, d_v)"
        finite(name, expect.tensor(name, tensor, wanted, min_rank=2, max_rank=2))
    expect.same_kind(keys=keys, values=values)
    (n, d_k), d_v = keys.shape, values.shape[-1]
    for name, size in (("tokens", n), ("d_k", d_k), ("d_v", d_v)):
        if not 1 <= size <= MAX_SIZES[name]:
            expect.fail(ValueError, "the picture", f"1 to {MAX_SIZES[name]} for {name}", size)
    if len(values) != n:
        expect.fail(ValueError, "values", f"one row for each of the {n} keys", len(values))
    return State(
        keys.dtype,
        _keys=keys.tolist(),
        _values=values.tolist(),
        _key_labels=texts("key_labels", key_labels, n, "key {}"),
        _value_labels=texts("value_labels", value_labels, n, "value {}"),
        _scale=1 / math.sqrt(d_k) if scale is None else float(expect.real_number("scale", scale)),
        _step=_at_most("step", step, n),
        _rule=_rule(rule),
        _decay=_share("decay", decay),
        _rate=_share("rate", rate),
        _query=_at_most("query", query, n - 1),
    )


def _at_most(name: str, value: int, most: int) -> int:
    if expect.whole_number(name, value, at_least=0) > most:
        expect.fail(ValueError, name, f"at most {most}", value)
    return value


def _share(name: str, value: float) -> float:
    if not 0 <= expect.real_number(name, value) <= 1:
        expect.fail(ValueError, name, "a number from 0 to 1", value)
    return float(value)


def _rule(value: str) -> str:
    if value not in RULES:
        expect.fail(ValueError, "rule", f"one of {', '.join(RULES)}", repr(value))
    return value
