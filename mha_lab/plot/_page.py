"""What all pictures have in common: colours, sizes, and how one is shown with its description."""

import base64
import io
import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from mha_lab import _expect as expect
from mha_lab._colours import GROUND, LIGHT, SHAPES

# Change the colour of weights in _colours.py, and not here: the live pictures and the website use it, too.
# write_number then finds by DARK_BELOW where a number must be white, whatever the colour is.
PALETTE = LinearSegmentedColormap.from_list("weight", [GROUND, LIGHT["weight"]])
SIGNED = LinearSegmentedColormap.from_list("signed", [LIGHT["minus"], GROUND, LIGHT["plus"]])
NAN_COLOUR = "#a83c00"
HIDDEN_COLOUR = "0.88"
DARK_BELOW = 0.179  # on a colour with a smaller luminance, white has more contrast than black
MAX_ANNOTATED = 100  # a heatmap with more cells gets no numbers
WIDEST = 8.2  # inches: of a picture that a page has room for
INK, TENSOR, LEARNED, ASKED = "#222222", "#dceaf6", "#f6e3cf", "#e4e4e4"
ROLES = {role: (LIGHT[role], shape) for role, shape in SHAPES.items()}
DASHES = ["-", "--", "-.", ":"]
# Of lines and bars: those of "colorblind" that stay apart on a white and on a dark page, in this order.
LINES = [sns.color_palette("colorblind")[i] for i in (0, 3, 2, 4, 7, 5)]
Point = tuple[int | float, int | float]


def style() -> None:
    """The style of the series: text that is large enough to read, and no lines without a meaning."""
    sns.set_theme(context="notebook", style="white", palette=LINES, font_scale=0.9)
    plt.rcParams.update({"figure.dpi": 100, "axes.titlesize": "medium", "hatch.linewidth": 0.6})
    plt.rcParams["axes.formatter.min_exponent"] = 5  # 0.01 and 1000: an exponent would be too small to read


def show(drawn: Axes | Figure | np.ndarray, alt: str | None = None) -> None:
    """Show a picture under a cell, once, with a text for readers who cannot see it.

    The text is also stored as the picture's plain text. A comparison of stored outputs skips pixels, so this
    text is how it compares the drawn numbers.

    Args:
        drawn: the result of a function of this module, or a figure.
        alt: a description of the picture in words; ``None`` uses the descriptions that this module's
            pictures have. It is stored in the notebook with the picture.

    Raises:
        ValueError: there is no ``alt``, and the picture has no description.
    """
    figure = drawn if isinstance(drawn, Figure) else np.asarray(drawn).reshape(-1)[0].figure
    if alt is None:
        alt = " ".join(ax.get_label() for ax in figure.axes if ax.get_label() not in ("", "<colorbar>"))
    if not alt.strip():
        expect.fail(ValueError, "alt", "a description of the picture in words", "nothing")
    from IPython.display import display

    content, size = png(figure)
    picture, about = base64.b64encode(content).decode(), {"alt": alt, **size}
    display({"image/png": picture, "text/plain": alt}, metadata={"image/png": about}, raw=True)
    plt.close(figure)


def png(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """A figure as a PNG file, sharp on every screen, and the width and height that it is shown with.

    The file has two pixels for each of the page's, and only 256 colours, which is a third of the bytes. Its
    text ``smallest`` is the height of the smallest letters, in pixels of the page; exponents count.
    """
    from IPython.core.pylabtools import print_figure

    with warnings.catch_warnings():  # whoever made the texts was told once which letters no font has
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        drawn = print_figure(figure, "retina")
    if not drawn:  # an empty figure, or `make grade`, which draws nothing
        return b"", {}
    sharp, stored, said = Image.open(io.BytesIO(drawn)), io.BytesIO(), PngInfo()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    sizes = [t.get_fontsize() * (0.7 if re.search(r"\$.*\^.*\$", t.get_text()) else 1) for t in texts]
    if sizes:
        said.add_text("smallest", f"{min(sizes) * figure.dpi / 72:.1f}")
    few = _few_colours(sharp.convert("RGB"))
    few.save(stored, "png", optimize=True, dpi=sharp.info["dpi"], pnginfo=said)
    return stored.getvalue(), {"width": sharp.width // 2, "height": sharp.height // 2}


def _few_colours(picture: Image.Image) -> Image.Image:
    """The picture with 256 colours. Those with a meaning are among them, however small their area is."""
    kept = [tuple(round(255 * x) for x in to_rgb(colour)) for colour in (GROUND, *LIGHT.values())]
    free = 256 - len(kept)
    first = picture.quantize(free)
    number, red, green, blue = np.asarray(first).copy(), *np.moveaxis(np.asarray(picture), -1, 0)
    for i, (r, g, b) in enumerate(kept):
        number[(red == r) & (green == g) & (blue == b)] = free + i
    few = Image.fromarray(number, "P")
    palette = first.getpalette()[: 3 * free]
    few.putpalette(palette + [0] * (3 * free - len(palette)) + [x for colour in kept for x in colour])
    return few


def write_number(
    ax: Axes, row: int | float, column: int | float, text: str, ground: str | tuple[float, ...]
) -> None:
    """A number in a cell of the colour ``ground``: black or white; black has a light edge where it needs one.

    The edge is for a page with a dark theme, which turns black into white and the edge into its ground.
    """
    light = sns.utils.relative_luminance(ground)
    black = light > DARK_BELOW
    edge = [withStroke(linewidth=2, foreground=(1, 1, 1, 0.6))] if black and light < 0.45 else []
    look = {"color": "black" if black else "white", "fontsize": "small", "path_effects": edge}
    ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", **look)


def _size(tensor: torch.Tensor) -> str:
    """A tensor's shape, for reading."""
    return str(tuple(tensor.shape))


def _arrow(ax: Axes, start: Point, end: Point, colour: str = INK) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour})
