"""Chapter 10: numbers of words, and measurements."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from mha_lab import _expect as expect
from mha_lab._texts import every, literal, short, texts
from mha_lab.plot._page import DASHES, WIDEST

HATCHES = ["", "//", "..", "xx"]


def named_bars(
    heights: Mapping[str, Sequence[int | float]],
    names: Sequence[object],
    *,
    ylabel: str,
    level: tuple[str, int | float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A bar for each name, or several side by side, with a description that has all their heights.

    Args:
        heights: for each kind of bar, one number for each name. If there are several kinds, a legend says
            which is which, and each bar has its number.
        names: what the bars are about.
        ylabel: what the heights are.
        level: the name and the height of a dotted line for comparison.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    >>> named_bars({"": [1.386, 0]}, ["ate", "."], ylabel="entropy (nats)").get_label()
    'Bars of the entropy (nats): ate 1.39, . 0.00.'
    """
    if not heights:
        expect.fail(ValueError, "heights", "at least one kind of bar", "none")
    for kind, numbers in heights.items():
        if len(numbers) != len(names):
            expect.fail(ValueError, f"heights[{kind!r}]", f"{len(names)}, one for each name", len(numbers))
    if ax is None:
        _, ax = plt.subplots(figsize=(WIDEST - 0.2, 2.8), layout="constrained")
    named, width = texts("names", names, len(names)), 0.8 / len(heights)
    for i, (kind, numbers) in enumerate(heights.items()):
        at = np.arange(len(names)) + (i - (len(heights) - 1) / 2) * width
        look = {"hatch": HATCHES[i % len(HATCHES)], "edgecolor": "black"} if len(heights) > 1 else {}
        bars = ax.bar(at, numbers, width, color=f"C{i}", label=literal(kind), **look)
        if len(heights) > 1:
            ax.bar_label(bars, fmt="%.2f", fontsize="small")
    if level is not None:
        ax.axhline(level[1], color="black", linestyle=":", label=literal(level[0]))
    many = len(names) > 12
    lines, inches = max(one.count(", ") + 1 for one in named), ax.get_window_extent().width / ax.figure.dpi
    step, turn = every(lines * len(names), 0.9 * inches), 90 if many else 0
    shown = ["\n".join(map(short, one.split(", "))) for one in named[::step]]
    ax.set_xticks(range(0, len(names), step), shown, rotation=turn, parse_math=False)
    ax.set(ylabel=literal(ylabel), xlim=(-0.6, len(names) - 0.4))
    if len(heights) > 1:
        ax.legend(ncols=len(heights) + (level is not None), loc="upper right", fontsize="small")
    told = "; ".join(
        f"{kind}: " * bool(kind)
        + ", ".join(
            f"{name} {round(x, 2) + 0:.2f}" for name, x in zip(names, numbers, strict=True)
        )  # no -0.00
        for kind, numbers in heights.items()
    )
    said = f" A line marks {level[0]}, {level[1]:g}." if level else ""
    ax.set_label(f"Bars of the {ylabel}: {told}.{said}")
    return ax


def measured_lines(
    places: Sequence[int | float],
    measured: Mapping[str, Sequence[int | float]],
    *,
    xlabel: str,
    ylabel: str,
    ax: Axes | None = None,
) -> Axes:
    """Measurements at some places, a line with its own mark and dashes for each name.

    Args:
        places: where it was measured, from small to large.
        measured: for each name, one number for each place.
        xlabel, ylabel: what the two axes are.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    >>> measured_lines([8, 16], {"a": [1.0, 4.0]}, xlabel="words", ylabel="time (s)").get_label()
    'Lines of the time (s) against the words, at 8, 16: a 1, 4.'
    """
    if not measured or len(measured) > len(DASHES):
        expect.fail(ValueError, "measured", f"1 to {len(DASHES)} lines", len(measured))
    for name, numbers in measured.items():
        if len(numbers) != len(places):
            expect.fail(ValueError, f"measured[{name!r}]", f"{len(places)}, one for each place", len(numbers))
    if ax is None:
        _, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for i, (name, numbers) in enumerate(measured.items()):
        ax.plot(places, numbers, f"C{i}", marker="os^D"[i], linestyle=DASHES[i], label=literal(name))
    ax.set(xlabel=literal(xlabel), ylabel=literal(ylabel), xticks=places, ylim=(0, None))
    ax.legend()
    told = "; ".join(
        f"{name} {', '.join(f'{number:.3g}' for number in numbers)}" for name, numbers in measured.items()
    )
    at = ", ".join(f"{place:g}" for place in places)
    ax.set_label(f"Lines of the {ylabel} against the {xlabel}, at {at}: {told}.")
    return ax
