"""Draw every picture under figures/ again: ``python -m tools.figures [FOLDER]``.

The files have no date and no version, so drawing twice on one machine gives the same bytes.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from mha_lab import plot, scaled_dot_product_attention, split_heads, toy

FOLDER = Path(__file__).parents[1] / "figures"


def two_heads() -> Figure:
    """The weights of two heads in the worked example: the README's picture."""
    x = toy.embeddings()
    query, key, value = (split_heads(x @ w, 2) for w in toy.multi_head_weights()[:3])
    _, weights = scaled_dot_product_attention(query, key, value)
    return plot.head_heatmaps(weights, toy.tokens())[0].figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "two_heads": two_heads,
}


def draw(folder: Path) -> list[Path]:
    """Write each figure as SVG and PNG into ``folder``; returns the paths."""
    folder.mkdir(exist_ok=True)
    written = []
    plot.style()
    with mpl.rc_context({"svg.hashsalt": "mha_lab"}):
        for name, make in FIGURES.items():
            figure = make()
            for suffix, nothing in ((".svg", {"Date": None, "Creator": None}), (".png", {"Software": None})):
                path = folder / (name + suffix)
                figure.savefig(path, metadata=nothing, dpi=150)
                written.append(path)
            plt.close(figure)
    return written


if __name__ == "__main__":
    for path in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        print(path.name, f"{path.stat().st_size / 1000:.0f} kB")
