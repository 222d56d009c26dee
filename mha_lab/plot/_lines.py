"""Lines over one axis."""

import itertools
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab._texts import literal
from mha_lab.plot._page import DASHES

# The picture in words.
LINES = "Lines of {ylabel} against {xlabel}, from {first:g} to {last:g}."
LINE = "{name}: {points}."
ENDS = "from {first} to {last}"
LOWEST = "lowest {height} at {x:g}"
HIGHEST = "highest {height} at {x:g}"
CROSSING = "{one} and {other} cross at {x}, at a height of {height}."
LEVEL = "A dashed line is {name}, {height:.3g}."


def crossings(
    x: Sequence[int | float] | Float[Tensor, " n"], one: Float[Tensor, " n"], other: Float[Tensor, " n"]
) -> list[tuple[float, float]]:
    """Where two lines cross, as ``(x, height)``: between two points, or at a point that both go through.

    Lines that only touch do not cross. Differences below a millionth of the larger number count as none.

    >>> crossings([0, 1, 2], torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.5, 1.5, 1.5]))
    [(1.5, 1.5)]
    """
    place, one, other = (torch.as_tensor(each, dtype=torch.float64) for each in (x, one, other))
    apart = one - other
    apart[apart.abs() <= 1e-6 * torch.maximum(one.abs(), other.abs())] = 0
    sides = apart.nonzero()[:, 0].tolist()
    found = []
    for i, j in itertools.pairwise(sides):
        if apart[i] * apart[j] < 0:
            share = apart[i] / (apart[i] - apart[j]) if j == i + 1 else 0  # else both go through a point
            k = i if j == i + 1 else (i + j) // 2
            at, height = (line[k] + share * (line[k + 1] - line[k]) for line in (place, one))
            found.append((at.item(), height.item()))
    return found


def lines(
    x: Sequence[int | float] | Float[Tensor, " n"],
    heights: Mapping[str, Sequence[int | float] | Float[Tensor, " n"]],
    xlabel: str,
    ylabel: str,
    *,
    levels: Mapping[str, float] | None = None,
    markers: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Lines over one axis, described by their ends, by what lies outside the ends, and by where they cross.

    Args:
        x: the places, from small to large.
        heights: for each line its name and its height at each place.
        xlabel: what the horizontal axis shows.
        ylabel: what the lines show.
        levels: heights of horizontal dashed lines, by what they are called.
        markers: a letter for the marker of each line, such as ``"os^"``; without it, lines differ by their
            dashes.
        ax: where to draw; ``None`` means a new figure. Make its x-axis logarithmic before, not after: this
            decides where lines cross.

    Returns:
        The ``Axes``; it has no legend if it was given.

    >>> lines([0, 1], {"a": [0, 2], "b": [1, 1]}, "x", "y").get_label()[35:]
    'a: from 0 to 2. b: from 1 to 1. a and b cross at 0.5, at a height of 1.'
    """
    place = torch.as_tensor(x, dtype=torch.float64)
    if len(place) < 2 or (place.diff() <= 0).any():
        expect.fail(ValueError, "x", "at least two numbers, each larger than the last", place.tolist())
    most = len(markers or DASHES)
    if not 1 <= len(heights) <= most:
        expect.fail(ValueError, "heights", f"1 to {most} lines", len(heights))
    drawn = {name: torch.as_tensor(line, dtype=torch.float64).detach() for name, line in heights.items()}
    for name, line in drawn.items():
        if line.shape != place.shape or not line.isfinite().all():
            expected = f"{len(place)} finite numbers, one for each x"
            expect.fail(ValueError, f"heights[{name!r}]", expected, line.tolist())
    legend = ax is None
    ax = plt.subplots(figsize=(6, 3.2), layout="constrained")[1] if legend else ax
    room = 0.02 * (max(map(torch.max, drawn.values())) - min(map(torch.min, drawn.values())))  # to be seen
    said = [LINES.format(ylabel=ylabel, xlabel=xlabel, first=place[0], last=place[-1])]
    for i, (name, line) in enumerate(drawn.items()):
        look = {"marker": markers[i]} if markers else {"linestyle": DASHES[i]}
        ax.plot(place.numpy(), line.numpy(), label=literal(name), **look)
        said.append(LINE.format(name=name, points=", ".join(_way(place, line, room))))
    scale = ax.xaxis.get_transform()  # lines are straight on the paper, also where the axis is logarithmic
    for (one, first), (other, second) in itertools.combinations(drawn.items(), 2):
        for at, height in crossings(torch.as_tensor(scale.transform(place)), first, second):
            x_there = _about(float(scale.inverted().transform(at)))
            said.append(CROSSING.format(one=one, other=other, x=x_there, height=_about(height)))
    for name, height in (levels or {}).items():
        ax.axhline(height, color="gray", linestyle="--")
        said.append(LEVEL.format(name=name, height=height))
    ax.set(xlabel=literal(xlabel), ylabel=literal(ylabel), label=" ".join(said))
    if legend:
        ax.legend()
    return ax


def _way(place: Float[Tensor, " n"], line: Float[Tensor, " n"], room: Float[Tensor, ""]) -> list[str]:
    """Where a line begins and ends, and its lowest and highest point if these are more than ``room`` away."""
    told = [ENDS.format(first=_about(line[0]), last=_about(line[-1]))]
    for says, extreme, i in ((LOWEST, line.min(), line.argmin()), (HIGHEST, line.max(), line.argmax())):
        if min(abs(extreme - line[0]), abs(extreme - line[-1])) > room:
            told.append(says.format(height=_about(extreme), x=place[i]))
    return told


def _about(number: float | Tensor) -> str:
    """With two digits, and without an exponent where it can be avoided: 510, 0.048."""
    return f"{float(f'{float(number):.2g}'):g}"
