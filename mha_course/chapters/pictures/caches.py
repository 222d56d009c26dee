"""Chapter 12: what models keep, and heads that copy."""

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab._texts import literal
from mha_lab.plot._heatmap import head_heatmaps
from mha_lab.plot._page import DASHES, INK, LINES, WIDEST


def cache_lines_data(kept: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """How high ``cache_lines`` writes each name, in bytes: beside the end of its line, and clear of others.

    The logarithms of the heights are at least 1/26 of the picture apart, in the order of the lines, and as
    close to the ends as this allows (least squares).

    >>> {name: round(height) for name, height in cache_lines_data({"a": [1, 16], "b": [1, 16]}).items()}
    {'a': 15, 'b': 17}
    """
    ends = {name: math.log2(values[-1]) for name, values in kept.items()}
    low, high = (pick(math.log2(pick(values)) for values in kept.values()) for pick in (min, max))
    gap = (high - low) / 26
    order = sorted(ends, key=ends.__getitem__)
    pools: list[list[float]] = []  # names that touch share the mean of their distances from an even ladder
    for rung, name in enumerate(order):
        pools.append([ends[name] - rung * gap])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    moved = [float(np.mean(pool)) for pool in pools for _ in pool]
    return {name: 2 ** (moved[rung] + rung * gap) for rung, name in enumerate(order)}


def cache_lines(
    lengths: Sequence[int],
    kept: Mapping[str, Sequence[int]],
    kinds: Mapping[str, str] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Bytes that models keep against the length of the text, one line for each, with its name at its end.

    Both axes are logarithmic: a line that rises by one power of two for each doubling is proportional to the
    length, and a level one does not depend on it.

    Args:
        lengths: numbers of tokens, from small to large.
        kept: for each name, its bytes at each length, as ``chapters.published.cache_curves`` gives them. A
            shorter list is a line that ends early.
        kinds: a word for what each of them does, up to four different ones; each has its colour and dashes.
        ax: where to draw; ``None`` means a new figure.

    Returns:
        The ``Axes``.

    >>> cache_lines([1024, 2048], {"a model": [2**20, 2**21]}).get_label()[-23:]
    'a model 1 MiB to 2 MiB.'
    """
    if len(lengths) < 2 or list(lengths) != sorted(set(lengths)) or lengths[0] < 1:
        expect.fail(ValueError, "lengths", "at least two whole numbers, each larger than the last", lengths)
    if not kept:
        expect.fail(ValueError, "kept", "at least one line", "none")
    for name, values in kept.items():
        if not 1 <= len(values) <= len(lengths) or min(values) < 1:
            expected = f"up to {len(lengths)} positive numbers, one for each length"
            expect.fail(ValueError, f"kept[{name!r}]", expected, list(values))
    said = list(dict.fromkeys((kinds or {}).get(name, "") for name in kept))
    if len(said) > len(DASHES):
        expect.fail(ValueError, "kinds", f"at most {len(DASHES)} different ones", said)
    if ax is None:
        _, ax = plt.subplots(figsize=(WIDEST - 0.2, 5.6), layout="constrained")
    colours = LINES
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    whole = {name: values for name, values in kept.items() if len(values) == len(lengths)}
    heights = cache_lines_data(whole) if whole else {}
    for name, values in kept.items():
        kind, last = said.index((kinds or {}).get(name, "")), lengths[len(values) - 1]
        seen, mark = lengths[: len(values)], "" if name in whole else "o"  # a mark where a line ends early
        ax.plot(
            seen, values, color=colours[kind], linestyle=DASHES[kind], marker=mark, markevery=[-1],
            label=literal(said[kind] or name),
        )  # fmt: skip
        at = (lengths[-1] * 1.25, heights[name]) if name in whole else (last * 1.25, values[-1] / 1.6)
        ax.annotate(
            literal(name), (last, values[-1]), at, va="center",
            fontsize=9, color=INK, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 1},
        )  # fmt: skip
    if kinds:
        named = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
        ax.legend(named.values(), named.keys(), loc="upper left", frameon=False, fontsize="small")
    lowest, highest = (pick(map(pick, kept.values())) for pick in (min, max))
    powers = range(math.floor(math.log2(lowest)), math.ceil(math.log2(highest)) + 1)
    ticks = [2**power for power in powers if power % 2 == 0]
    ax.set_yticks(ticks, [_bytes(tick) for tick in ticks])
    ax.set_xticks(lengths, [f"{n // 1024}k" if n % 1024 == 0 else str(n) for n in lengths])
    ax.minorticks_off()
    ax.set(xlabel="tokens", ylabel="bytes of the cache")
    sns.despine(ax=ax)
    first_to_last = "; ".join(
        f"{name} {_bytes(values[0])} to {_bytes(values[-1])}"
        + ("" if name in whole else f" at {lengths[len(values) - 1]} tokens")
        for name, values in sorted(kept.items(), key=lambda line: -line[1][-1])
    )
    span = f"from {lengths[0]} to {lengths[-1]} tokens"
    ax.set_label(
        f"Lines of the bytes of the cache against the tokens, both logarithmic, {span}: {first_to_last}."
    )
    return ax


def _bytes(number: int | float) -> str:
    """A number of bytes, for reading: 8.31 GiB."""
    power = min(max(int(math.log2(number)) // 10, 0), 4)
    return f"{number / 1024**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def own_key_heatmaps(
    weights: Float[Tensor, "heads n n"], titles: Sequence[str], labels: Sequence[object]
) -> np.ndarray:
    """Heatmaps of many tokens, described by their largest weight and by what each query gives its own key.

    >>> import torch
    >>> axes = own_key_heatmaps(torch.eye(3)[None], ["copy"], ["a", "b", "c"])
    >>> axes[0].get_label()
    'copy: 3 queries by 3 keys, largest weight 1.00, own key 1.00 to 1.00.'
    """
    axes = head_heatmaps(weights, labels, titles=titles, annotate=False, columns=len(titles))
    for ax, title, one in zip(axes.flat, titles, weights, strict=False):
        own, n = one.diagonal(), len(one)
        ax.set_label(
            f"{title}: {n} queries by {n} keys, largest weight {one.max():.2f}, "
            f"own key {own.min():.2f} to {own.max():.2f}."
        )
    return axes
