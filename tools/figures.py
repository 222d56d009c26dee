"""Draw every picture under figures/ again: ``python -m tools.figures [FOLDER]``.

The files have no date and no version, so drawing twice on one machine gives the same bytes.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mha_course.chapters import published, story_model, variants
from mha_course.chapters.sparse import choose
from mha_lab import (
    MultiHeadAttention,
    causal_mask,
    masked_softmax,
    plot,
    scaled_dot_product_attention,
    scaled_dot_product_scores,
    split_heads,
    toy,
)
from mha_lab.masks import sliding_window_mask
from mha_lab.positions import sinusoidal_positions
from tools import attention_map

FOLDER = Path(__file__).parents[1] / "figures"
CARD = (2.28, 1.44)  # inches of 100 pixels: as large as on the website's first page


def two_heads() -> Figure:
    """The weights of two heads in the worked example: the README's picture."""
    x = toy.embeddings()
    query, key, value = (split_heads(x @ w, 2) for w in toy.multi_head_weights()[:3])
    _, weights = scaled_dot_product_attention(query, key, value)
    return plot.head_heatmaps(weights, toy.tokens())[0].figure


def memory_map() -> Figure:
    """Where each number goes when heads are split: the picture of ``docs/handout-view.md``."""
    return plot.memory_map(n=3, num_heads=2, d_k=2)[0].figure


def map_of_attention() -> Figure:
    """Which features the attention of text decoders has, by year: the picture of the map on the website."""
    shares, counts = attention_map.by_year(published.census())
    shares = shares.T.loc[shares.mean().sort_values(ascending=False).index]
    figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
    ax.pcolormesh(shares[::-1], cmap=plot.PALETTE, vmin=0, vmax=1, edgecolor="white")
    for y, row in enumerate(shares[::-1].to_numpy()):
        for x, share in enumerate(row):
            colour = "white" if share > 0.7 else "black"
            ax.text(x + 0.5, y + 0.5, f"{share:.0%}" if share else "", ha="center", va="center", color=colour)
    years = [f"{year}\nof {count}" for year, count in counts.items()]
    labels = [attention_map.FEATURES[name][0] for name in shares.index[::-1]]
    ax.set_xlabel("year of the file, and how many classes it has")
    ax.set_xticks([x + 0.5 for x in range(len(years))], years)
    ax.set_yticks([y + 0.5 for y in range(len(labels))], labels)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure


def start_here() -> Figure:
    """A card: what *saw* gets from each word of the worked example, as ribbons of the weights' thickness."""
    query, key = (toy.embeddings() @ w for w in toy.single_head_weights()[:2])
    tokens = toy.tokens()
    (weights,) = masked_softmax(scaled_dot_product_scores(query, key))[2:3].tolist()
    figure, ax = plt.subplots(figsize=CARD, layout="constrained")
    way = torch.linspace(0, 1, 40)
    for row, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        start, end = -row, -4 * (sum(weights[:row]) + weight / 2)  # one below the other at the right
        middle = start + (end - start) * (3 * way**2 - 2 * way**3)
        half = 4 * weight / 2 * way + 0.04 * (1 - way)
        ax.fill_between(way, middle - half, middle + half, color=plot.PALETTE(0.75), alpha=0.8, linewidth=0)
        ax.text(-0.05, start, token, ha="right", va="center")
    ax.text(1.05, -2, "saw", ha="left", va="center", color=plot.ROLES["query"][0])
    ax.set(xlim=(-0.35, 1.35), ylim=(-4.4, 0.4))
    ax.axis("off")
    return figure


def toy_queries() -> Figure:
    """A card: the keys of chapter 02 as arrows, and a query that is halfway between two of them."""
    figure, ax = plt.subplots(figsize=CARD, layout="constrained")
    query, key = (plot.ROLES[role][0] for role in ("query", "key"))
    for x, y, name, colour in (
        (3, 0, "key", key),
        (0, 3, "key", key),
        (-2, -2, "key", key),
        (2, 2, "query", query),
    ):
        ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2})
        ax.text(
            x + (0.2 if x >= 0 else -0.2),
            y,
            name,
            color=colour,
            ha="left" if x >= 0 else "right",
            va="center",
        )
    ax.set(xlim=(-4, 5), ylim=(-2.6, 3.4), aspect="equal")
    ax.axis("off")
    return figure


def splitting_heads() -> Figure:
    """A card: rows of four numbers, and the two heads that have two columns each."""
    wide = torch.arange(2).repeat_interleave(2).expand(4, 4) * 0.5 + 0.25
    figure, axes = plt.subplots(1, 3, figsize=CARD, width_ratios=[2, 1, 1], layout="constrained")
    tables = {"one head": wide, "0": wide[:, :2], "1": wide[:, 2:]}
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        ax.pcolormesh(table.flip(0).numpy(), cmap=plot.PALETTE, vmin=0, vmax=1, edgecolor="white")
        ax.set(title=title, aspect="equal")
        bare(ax)
    return figure


def masking() -> Figure:
    """A card: the weights of the worked example under a causal mask."""
    query, key = (toy.embeddings() @ w for w in toy.single_head_weights()[:2])
    visible = causal_mask(len(query))
    weights = masked_softmax(scaled_dot_product_scores(query, key), visible)
    figure, ax = plt.subplots(figsize=CARD, layout="constrained")
    plot.attention_heatmap(weights, mask=visible, annotate=False, cbar=False, ax=ax)
    bare(ax)
    return figure


def single_head_attention() -> Figure:
    """A card: the weights of *saw* in the worked example."""
    query, key = (toy.embeddings() @ w for w in toy.single_head_weights()[:2])
    figure, ax = plt.subplots(figsize=CARD, layout="constrained")
    row = masked_softmax(scaled_dot_product_scores(query, key))[2:3]
    plot.attention_heatmap(row, ["saw"], toy.tokens(), cbar=False, ax=ax)
    ax.set(xlabel="", ylabel="")
    return figure


def output_projection() -> Figure:
    """A card: what each head of the worked example writes, and their sum."""
    x, (*matrices, w_o) = toy.embeddings(), toy.multi_head_weights()
    heads, _ = scaled_dot_product_attention(*(split_heads(x @ w, 2) for w in matrices))
    written = heads @ w_o.unflatten(0, (2, -1))
    return side_by_side({"head 0": written[0], "+ head 1": written[1], "= output": written.sum(0)})


def five_ways() -> Figure:
    """A card: the output of the five layers of chapter 06, with the same weights."""
    x = toy.embeddings()[None]
    source = MultiHeadAttention(4, 2, bias=False)
    with torch.no_grad():
        for part, matrix in zip(variants.parts(source), toy.multi_head_weights(), strict=True):
            part.copy_(matrix.mT)
    calls = {
        variants.PackedAttention(4, 2): lambda layer: layer(x),
        variants.ThreeProjections(4, 2): lambda layer: layer(x, x, x)[0],
        variants.SizedAttention(4, 4, 4, 4, num_heads=2): lambda layer: layer(x, x, x),
        variants.BareAttention(4, 2): lambda layer: layer(x, x, x)[0],
        variants.SequenceFirstAttention(4, 2): lambda layer: layer(*3 * [x.transpose(0, 1)]).transpose(0, 1),
    }
    for layer in calls:
        variants.copy_weights(source, layer)
    outputs = [call(layer)[0].detach() for layer, call in calls.items()]
    return side_by_side({f"({name})": output for name, output in zip("abcde", outputs, strict=True)})


def bare(ax: Axes) -> None:
    """No names and no ticks: a card is too small for them."""
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])


def side_by_side(tables: dict[str, torch.Tensor]) -> Figure:
    """Small tables without numbers, on one scale: ochre below 0, teal above."""
    figure, axes = plt.subplots(1, len(tables), figsize=CARD, layout="constrained")
    for (title, table), ax in zip(tables.items(), axes, strict=True):
        ax.imshow(table.numpy(), cmap=plot.SIGNED, vmin=-1, vmax=1)
        ax.set(title=title, xticks=[], yticks=[])
    return figure


def why_more_heads() -> Figure:
    """A card: what one row of weights makes of two questions, and what two rows make of them."""
    scores = 9 * torch.eye(4)[[1, 3]]
    rows = masked_softmax(torch.stack([scores.amax(0), *scores]))
    figure, (one, two) = plt.subplots(2, 1, figsize=CARD, height_ratios=[1, 2], layout="constrained")
    for ax, weights, title in ((one, rows[:1], "one head"), (two, rows[1:], "two heads")):
        plot.attention_heatmap(weights, title=title, annotate=False, cbar=False, ax=ax)
        bare(ax)
    return figure


def what_attention_costs() -> Figure:
    """A card: how many weights are in memory, for all at once and for one block of keys after another."""
    n = torch.arange(1, 65)
    return curves({"all weights": n * n, "one block": 8 * n}, "tokens")


def scores_and_positions() -> Figure:
    """A card: the sinusoidal positions of 40 tokens."""
    figure, ax = plt.subplots(figsize=CARD, layout="constrained")
    ax.imshow(sinusoidal_positions(40, 24).mT.numpy(), cmap=plot.SIGNED, vmin=-1, vmax=1, aspect="auto")
    bare(ax)
    ax.set(xlabel="position")
    return figure


def small_language_model() -> Figure:
    """A card: all heads of the shipped model on the first words of a story."""
    model = story_model.load()
    tokens = story_model.encode("Ada amused Ben because")
    with torch.no_grad():
        _, weights = model(tokens[None], need_weights=True)
    weights = torch.stack([layer[0] for layer in weights]).round(decimals=3)
    figure, axes = plt.subplots(*weights.shape[:2], figsize=CARD, layout="constrained")
    for ax, head in zip(axes.flat, weights.flatten(0, 1), strict=True):
        plot.attention_heatmap(head, mask=causal_mask(len(head)), annotate=False, cbar=False, ax=ax)
        bare(ax)
    return figure


def smaller_caches() -> Figure:
    """A card: eight query heads that share two heads of keys and values."""
    figure, ax = plt.subplots(figsize=CARD, layout="constrained")
    query, key = (plot.ROLES[role][0] for role in ("query", "key"))
    for head in range(8):
        ax.plot([head, 4 * (head // 4) + 1.5], [1, 0], color="0.6", linewidth=1, zorder=0)
    ax.scatter(range(8), [1] * 8, s=60, color=query)
    ax.scatter([1.5, 5.5], [0, 0], s=80, color=key, marker="s")
    ax.text(3.5, 1.2, "8 query heads", ha="center", va="bottom", color=query)
    ax.text(3.5, -0.2, "2 key and value heads", ha="center", va="top", color=key)
    ax.set(xlim=(-0.6, 7.6), ylim=(-0.75, 1.75))
    ax.axis("off")
    return figure


def longer_texts() -> Figure:
    """A card: the weight of a key with a score of 4, beside more and more keys with the score 0."""
    weight = [masked_softmax(4.0 * torch.eye(n)[:1])[0, 0].item() for n in range(1, 129)]
    return curves({"largest weight": torch.tensor(weight)}, "tokens")


def curves(lines: dict[str, torch.Tensor], below: str) -> Figure:
    """Lines with their names and without numbers."""
    figure, ax = plt.subplots(figsize=CARD, layout="constrained")
    for dashes, (name, line) in zip(("-", "--"), lines.items(), strict=False):
        ax.plot(line.numpy(), dashes, label=name)
    bare(ax)
    ax.set(xlabel=below, ylim=(0, None))
    ax.legend(frameon=False, borderpad=0)
    return figure


def bug_clinic() -> Figure:
    """A card: the weights of the worked example, and what bug 3 of chapter 11 makes of them."""
    query, key = (toy.embeddings() @ w for w in toy.single_head_weights()[:2])
    scores = scaled_dot_product_scores(query, key)
    both = torch.stack([masked_softmax(scores), masked_softmax(scores.mT).mT])
    figure, axes = plt.subplots(1, 2, figsize=CARD, layout="constrained")
    plot.head_heatmaps(both, annotate=False, titles=["right", "bug 3"], axes=axes)
    for ax in axes:
        bare(ax)
    return figure


def heads_that_work_together() -> Figure:
    """A card: a head that looks at the token before, and one that looks behind an equal token."""
    text, visible = torch.arange(8) % 4, causal_mask(8)
    before = visible.diagonal_scatter(torch.zeros(8, dtype=torch.bool)).triu(-1)
    behind_an_equal_one = (text[:, None] == text).float() @ before.mT.float() > 0
    both = masked_softmax(torch.zeros(2, 8, 8), torch.stack([before, behind_an_equal_one & visible]))
    figure, axes = plt.subplots(1, 2, figsize=CARD, layout="constrained")
    titles = ["token before", "induction"]
    plot.head_heatmaps(both, mask=visible, annotate=False, titles=titles, axes=axes)
    for ax in axes:
        bare(ax)
    return figure


def read_a_model() -> Figure:
    """A card: a window that counts the own key as one of its keys, and one that counts it extra."""
    both = torch.stack([sliding_window_mask(8, window=window) for window in (3, 4)])
    figure, axes = plt.subplots(1, 2, figsize=CARD, layout="constrained")
    titles = ["one file", "another file"]
    weights = masked_softmax(torch.zeros(2, 8, 8), both)
    plot.head_heatmaps(weights, mask=both, annotate=False, titles=titles, axes=axes)
    for ax in axes:
        bare(ax)
    return figure


def state_in_place_of_a_cache() -> Figure:
    """A card: what is left of earlier writes in a state that fades, and the few keys that are read."""
    visible, scores = causal_mask(8), torch.sin(5 * torch.arange(64.0)).view(8, 8)
    fading = torch.full((8,), 0.75).log().cumsum(0)
    left = (fading[:, None] - fading).exp() * visible
    read = choose(scores, 3, visible)
    figure, axes = plt.subplots(1, 2, figsize=CARD, layout="constrained")
    both = torch.stack([left, masked_softmax(torch.zeros(8, 8), read)])
    plot.head_heatmaps(both, mask=visible, annotate=False, titles=["fading", "few read"], axes=axes)
    for ax in axes:
        bare(ax)
    return figure


# A figure with the name of a chapter is the picture of its card on the website's first page.
FIGURES: dict[str, Callable[[], Figure]] = {
    "memory_map": memory_map,
    "two_heads": two_heads,
    "map_of_attention": map_of_attention,
    "00_start_here": start_here,
    "01_single_head_attention": single_head_attention,
    "02_toy_queries_keys_values": toy_queries,
    "03_splitting_heads": splitting_heads,
    "04_masking": masking,
    "05_output_projection": output_projection,
    "06_five_ways": five_ways,
    "07_why_more_heads": why_more_heads,
    "08_what_attention_costs": what_attention_costs,
    "09_scores_and_positions": scores_and_positions,
    "10_small_language_model": small_language_model,
    "11_bug_clinic": bug_clinic,
    "12_smaller_caches": smaller_caches,
    "13_longer_texts": longer_texts,
    "14_heads_that_work_together": heads_that_work_together,
    "15_read_a_model": read_a_model,
    "16_a_state_in_place_of_a_cache": state_in_place_of_a_cache,
}


def draw(folder: Path) -> list[Path]:
    """Write each figure as SVG and PNG into ``folder``; returns the paths."""
    folder.mkdir(exist_ok=True)
    written = []
    plot.style()
    with mpl.rc_context({"svg.hashsalt": "mha_lab"}):
        for name, make in FIGURES.items():
            figure = make()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
            (folder / f"{name}.png").write_bytes(plot.png(figure)[0])
            written += [folder / f"{name}.svg", folder / f"{name}.png"]
            plt.close(figure)
    return written


if __name__ == "__main__":
    for path in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        print(path.name, f"{path.stat().st_size / 1000:.0f} kB")
