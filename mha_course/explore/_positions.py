"""A query and a key at two positions: what each pair of columns adds to their score."""

import math
from typing import Any, Literal

import matplotlib.pyplot as plt
import torch
import traitlets
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mha_course.explore._widget import COLOURS, MARKERS, Explorable, finite, module
from mha_lab import _expect as expect
from mha_lab.attention import scaled_dot_product_scores
from mha_lab.positions import apply_rotary, rotary_frequencies, sinusoidal_positions

COUNT = 32  # positions, counted from 0
MAX_WIDTH = 8
KINDS = {"rotary": "Rotary", "sinusoidal": "Sinusoidal", "alibi": "ALiBi"}


class Positions(Explorable):
    """The result of ``explore.positions``: the picture, and its state, in both directions."""

    _esm = module("positions")
    _query = traitlets.List().tag(sync=True)
    _key = traitlets.List().tag(sync=True)
    _base = traitlets.Float().tag(sync=True)
    _slope = traitlets.Float().tag(sync=True)
    _kind = traitlets.Unicode().tag(sync=True)
    _at = traitlets.List().tag(sync=True)  # the positions of the query and of the key

    def __init__(self, dtype: torch.dtype, **state: Any) -> None:
        self._dtype = dtype
        super().__init__(**state)

    @property
    def at(self) -> tuple[int, int]:
        """The positions of the query and of the key. Assigning moves both."""
        i, j = self._at
        return i, j

    @at.setter
    def at(self, value: tuple[int, int]) -> None:
        self._at = _places(value)

    @property
    def kind(self) -> str:
        """One of "rotary", "sinusoidal" and "alibi". Assigning chooses it."""
        return self._kind

    @kind.setter
    def kind(self, value: str) -> None:
        self._kind = _one_kind(value)

    @property
    def parts(self) -> Float[Tensor, "pairs"]:
        """What each pair of columns adds to the dot product, before the scale and the penalty of ALiBi."""
        return self._parts().to(self._dtype)

    @property
    def score(self) -> Float[Tensor, ""]:
        """``parts.sum() / sqrt(d_k)``, and with ALiBi minus the slope times the distance."""
        i, j = self._at
        return self._scores()[i, j].to(self._dtype)

    def _placed(self) -> tuple[Tensor, Tensor]:
        """The query and the key as they are at each position, ``(COUNT, d_k)`` both."""
        both = torch.tensor([self._query, self._key], dtype=torch.float64)[:, None].repeat(1, COUNT, 1)
        if self._kind == "rotary":
            both = apply_rotary(both, base=self._base)
        elif self._kind == "sinusoidal":
            both = both + sinusoidal_positions(COUNT, both.shape[-1], base=self._base, dtype=both.dtype)
        return both[0], both[1]

    def _parts(self) -> Tensor:
        (query, key), (i, j) = self._placed(), self._at
        return (query[i] * key[j]).view(-1, 2).sum(dim=-1)

    def _scores(self) -> Tensor:
        """Of a query at each position, with a key at each position."""
        scores = scaled_dot_product_scores(*self._placed())
        if self._kind != "alibi":
            return scores
        place = torch.arange(COUNT)
        return scores - self._slope * (place - place[:, None]).abs()

    def describe(self) -> str:
        """The kind, the positions, the parts and the score."""
        (i, j), parts = self._at, self._parts().tolist()
        told = ", ".join(f"pair {r} {part:.2f}" for r, part in enumerate(parts))
        slope = f" (slope {self._slope:.3g})" if self._kind == "alibi" else ""
        place = f"query at position {i}, key at {j}, distance {j - i}"
        return f"{KINDS[self._kind]}{slope}: {place}. Dot product: {told}. Score: {self.score.item():.2f}."

    def still(self) -> Figure:
        """The strip of positions, a dial for each pair, and the score for the key at each distance."""
        (i, j), parts, d_k = self._at, self._parts().tolist(), len(self._query)
        figure = plt.figure(figsize=(9.5, 7), layout="constrained")
        strip, dials, below = figure.subfigures(3, 1, height_ratios=(1.3, 3.3, 2.4))
        _draw_strip(strip.subplots(), i, j)
        own = torch.tensor([self._query, self._key], dtype=torch.float64)
        hands = torch.stack([each[place] for each, place in zip(self._placed(), self._at, strict=True)])
        reach = 1.15 * max(x.view(-1, 2).norm(dim=-1).max().item() for x in (own, hands)) or 1.0
        speeds = rotary_frequencies(d_k, base=self._base).tolist()
        for r, ax in enumerate(dials.subplots(1, len(parts), squeeze=False)[0]):
            _draw_dial(ax, own[:, 2 * r : 2 * r + 2].tolist(), hands[:, 2 * r : 2 * r + 2].tolist(), reach)
            name = f"pair {r}" if self._kind == "alibi" else f"pair {r}, θ = {speeds[r]:.3f}"
            ax.set_title(
                f"{name}\n{_product(hands[:, 2 * r : 2 * r + 2])}\n= {parts[r]:.2f}", fontsize="medium"
            )
        penalty = f" - {self._slope:.3g} × |{j - i}|" if self._kind == "alibi" else ""
        total = " + ".join(f"{part:.2f}" for part in parts).replace("+ -", "- ")
        formula = f"score = ({total}) / √{d_k}{penalty} = {self.score.item():.2f}"
        strip.suptitle(f"{KINDS[self._kind]}: distance {j} - {i} = {j - i}", fontsize="medium")
        dials.suptitle(f"{formula}\n", fontsize="medium")
        ax, scores = below.subplots(), self._scores()
        ax.plot(range(-i, COUNT - i), scores[i].tolist(), ".-", color=COLOURS["accent"])
        ax.plot(j - i, scores[i, j].item(), "o", markersize=10, markerfacecolor="none", color="0.2")
        low, high = scores.min().item(), scores.max().item()
        ax.set(xlim=(-COUNT, COUNT), ylim=(1.1 * min(low, 0) - 0.1, 1.1 * max(high, 0) + 0.1))
        ax.set(xlabel="distance: key - query", ylabel="score", title=f"for the query at {i}")
        ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        return figure


def _draw_strip(ax: Axes, i: int, j: int) -> None:
    """All positions, with the query above and the key below."""
    for y, place, name in ((1, i, "query"), (0, j, "key")):
        ax.axhline(y, color="0.7", linewidth=0.8, zorder=0)
        ax.plot(place, y, MARKERS[name], color=COLOURS[name], markersize=10)
        right, above = place < COUNT / 2, name == "query"
        ax.annotate(
            f"{name} at {place}", (place, y), (10 if right else -10, 3 if above else -3),
            textcoords="offset points", color=COLOURS[name],
            ha="left" if right else "right", va="bottom" if above else "top",
        )  # fmt: skip
    ax.plot([i, i, j, j], [1, 0.5, 0.5, 0], ":", color="0.2")
    ax.set(xlim=(-0.7, COUNT - 0.3), ylim=(-1.1, 2.1), yticks=[], xticks=range(0, COUNT, 5))
    ax.spines[["left", "right", "top"]].set_visible(False)


def _product(hands: Tensor) -> str:
    """The product of two hands as the picture writes it: their lengths and the angle between them."""
    query, key = (math.hypot(*hand) for hand in hands.tolist())
    product = hands.prod(dim=0).sum().item()
    angle = math.acos(min(max(product / query / key, -1), 1)) if product else 0.0
    return f"{query:.2f} × {key:.2f} × cos {angle:.2f}"


def _draw_dial(ax: Axes, own: list[list[float]], hands: list[list[float]], reach: float) -> None:
    """The query's hand and the key's, and dotted what each is without its position."""
    for name, start, end in zip(("query", "key"), own, hands, strict=True):
        colour = COLOURS[name]
        ax.plot([0, start[0]], [0, start[1]], ":", color=colour)
        ax.plot([0, end[0]], [0, end[1]], color=colour, linewidth=2.5)
        ax.plot(*end, MARKERS[name], color=colour, markersize=8)
    ax.add_patch(plt.Circle((0, 0), reach, fill=False, color="0.6"))
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    ax.set_axis_off()


def positions(
    query: Float[Tensor, "d_k"],
    key: Float[Tensor, "d_k"],
    *,
    at: tuple[int, int] = (8, 5),
    kind: Literal["rotary", "sinusoidal", "alibi"] = "rotary",
    base: int | float = 10000.0,
    slope: int | float = 0.5,
) -> Positions:
    """The score of one query and one key, wherever the two tokens stand: drag one of them, or both together.

    The columns ``2r`` and ``2r + 1`` are a dial. Its two hands are the query's pair and the key's pair. Let
    the query be at position ``i`` and the key at ``j``. With ``theta_r = base ** (-2r / d_k)``, the score is

    - ``R(i) query · R(j) key / sqrt(d_k)`` for "rotary": ``R(p)`` turns pair ``r`` by ``p * theta_r``;
    - ``(query + P[i]) · (key + P[j]) / sqrt(d_k)`` for "sinusoidal", with ``P`` of ``sinusoidal_positions``.
      So the head takes its input as query and key, without projections;
    - ``query · key / sqrt(d_k) - slope * |j - i|`` for "alibi".

    The learner's state is in ``.at``, ``.kind``, ``.parts`` (of the dot product, by pair) and ``.score``.

    Args:
        query, key: ``(d_k,)``, with ``d_k`` 2, 4, 6 or 8, before a position is put into them.
        at: the first positions of the query and of the key, from 0 to 31.
        kind: which of the three is shown first.
        base: the larger it is, the slower the last pairs turn.
        slope: of ALiBi; 1/2 is that of the first of 8 heads, see ``alibi_slopes``.

    Raises:
        TypeError: not tensors, not of one floating-point dtype, or a wrong type.
        ValueError: a wrong shape, NaN or infinity, another kind, or a position that is not on the strip.

    Source: Su et al. 2021, section 3.2.2; Vaswani et al. 2017, section 3.5; Press et al. 2022, section 3.

    >>> from mha_course import explore
    >>> picture = explore.positions(torch.tensor([2.0, 0.0]), torch.tensor([2.0, 0.0]), at=(3, 2))
    >>> picture.parts, picture.score  # 4 cos(1), and divided by the square root of 2
    (tensor([2.1612]), tensor(1.5282))
    """
    for name, tensor in (("query", query), ("key", key)):
        finite(name, expect.tensor(name, tensor, "(d_k,)", min_rank=1, max_rank=1))
    expect.same_kind(query=query, key=key)
    expect.width("key", key, "d_k", len(query))
    if len(query) not in range(2, MAX_WIDTH + 1, 2):
        expect.fail(ValueError, "query", f"an even number from 2 to {MAX_WIDTH} for d_k", len(query))
    rotary_frequencies(len(query), base=base)  # says what is wrong with a base
    return Positions(
        query.dtype,
        _query=query.tolist(),
        _key=key.tolist(),
        _base=float(base),
        _slope=float(expect.real_number("slope", slope)),
        _kind=_one_kind(kind),
        _at=_places(at),
    )


def _places(value: object) -> list[int]:
    """Two positions on the strip."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        expect.fail(TypeError, "at", "the positions of the query and of the key", repr(value))
    for place in value:
        if expect.whole_number("at", place, at_least=0) >= COUNT:
            expect.fail(ValueError, "at", f"positions from 0 to {COUNT - 1}", place)
    return list(value)


def _one_kind(value: object) -> str:
    if not isinstance(value, str) or value not in KINDS:
        expect.fail(ValueError, "kind", f"one of {', '.join(KINDS)}", repr(value))
    return value
