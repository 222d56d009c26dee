"""A caller's texts for a picture: as typed, whitespace visible, short enough, in a font that has them."""

import math
import re
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from mha_lab import _expect as expect

Labels = Sequence[object] | Shaped[Tensor, "..."] | Shaped[np.ndarray, "..."]
SEEN = {"\n": "↵", "\t": "⇥", "\r": "⇤"}  # a token can be nothing but whitespace
NO_LETTERS = re.compile("Color|Last ?Resort")  # coloured pictures, and boxes for every letter
LETTERS = 12  # of a label in a picture; its description has the whole label
LINE = 0.145  # inches between two labels that do not touch


def texts(
    name: str, given: Labels | None, count: int, usual: str = "{}", *, titles: bool = False
) -> list[str]:
    """``count`` texts: those given, or ``usual`` with 0, 1 and so on; a picture then has their letters.

    A tensor or an array gives its numbers. Whitespace is made visible, but not in ``titles``, which can have
    several lines.

    Raises:
        TypeError: one ``str``, or something without an order, such as a set.
        ValueError: another number of texts.

    >>> texts("labels", [" cat", "\\n", "$5"], 3), texts("titles", None, 2, "head {}")
    (['␣cat', '↵', '$5'], ['head 0', 'head 1'])
    """
    if given is None:
        return [usual.format(i) for i in range(count)]
    if isinstance(given, Tensor | np.ndarray):
        given = given.tolist()
    if isinstance(given, str | AbstractSet | Mapping) or not hasattr(given, "__len__"):
        hint = f"Did you mean {name}.split()?" if isinstance(given, str) else ""
        expect.fail(TypeError, name, "a list of labels", f"one {type(given).__name__}", hint)
    if len(given) != count:
        expect.fail(ValueError, name, f"{count} labels", len(given))
    numbers = (each.item() if isinstance(each, Tensor) and each.numel() == 1 else each for each in given)
    made = [str(each) if titles else visible(str(each)) for each in numbers]
    draw_letters(made)
    return made


def visible(text: str) -> str:
    """``text`` with a sign for each line break and tab, and for the spaces at its ends."""
    text = "".join(SEEN.get(letter, letter) for letter in text)
    inner = text.strip()
    before, _, after = text.partition(inner) if inner else (text, "", "")
    shown = "␣" * len(before) + inner + "␣" * len(after)
    # Joiners and marks belong to the letters beside them; alone, they would be nothing.
    return shown if any(map(str.isprintable, shown)) else shown.encode("unicode_escape").decode()


def short(text: str) -> str:
    """``text`` as a picture has room for it. Left out is the middle, because both ends tell words apart.

    >>> short("a label"), short("representations")
    ('a label', 'repres…tions')
    """
    kept = LETTERS - 1
    return text if len(text) <= LETTERS else f"{text[: math.ceil(kept / 2)]}…{text[-(kept // 2) :]}"


def literal(text: str | None) -> str | None:
    """A title or a name in a legend: a dollar sign stays one, and does not start a formula."""
    return None if text is None else texts("title", [text], 1, titles=True)[0].replace("$", r"\$")


def every(count: int, inches: float) -> int:
    """Of ``count`` labels along ``inches``, each how many has room: 1 if all have."""
    return max(1, math.ceil(count * LINE / max(inches, LINE)))


def draw_letters(made: Sequence[str]) -> None:
    """Let Matplotlib fall back on fonts of this machine for letters that its own font does not have.

    Warns:
        UserWarning: no font of this machine has some letter. It would be drawn as a box.
    """
    import matplotlib.pyplot as plt
    from matplotlib import font_manager
    from matplotlib.font_manager import FontProperties

    # Letters, numbers, punctuation and symbols; joiners and marks come with them.
    letters = {ord(each) for text in made for each in text if unicodedata.category(each)[0] in "LNPS"}
    family = plt.rcParams["font.family"]
    files = [font_manager.findfont(FontProperties(family=[name])) for name in family]
    missing = letters.difference(*map(_letters, files))
    for path, name in _fonts() if missing else ():
        if here := missing & _letters(path):
            plt.rcParams["font.family"] = family = [*family, name]
            missing -= here
    if missing:
        shown = " ".join(map(chr, sorted(missing)[:8])) + " …" * (len(missing) > 8)
        fonts = " and ".join(sorted({_font_for(chr(each)) for each in missing}))
        advice = f"install {fonts}, or another font that has, and restart the kernel"
        warnings.warn(f"no font of this machine has {shown}: {advice}", stacklevel=2)


@cache
def _letters(path: str) -> frozenset[int]:
    from matplotlib import font_manager

    return frozenset(font_manager.get_font(path).get_charmap())


@cache
def _fonts() -> list[tuple[str, str]]:
    """Files and names of the upright fonts with outlines; a font of coloured pictures has none to draw."""
    from matplotlib import font_manager

    every_font = font_manager.fontManager.ttflist
    usable = [font for font in every_font if font.style == "normal" and not NO_LETTERS.search(font.name)]
    files = {font.name: font.fname for font in sorted(usable, key=lambda font: font.weight == 400)}
    return sorted((file, name) for name, file in files.items())


def _font_for(letter: str) -> str:
    script = unicodedata.name(letter, "").split()[:1]
    if script and script[0] in ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "FULLWIDTH", "IDEOGRAPHIC"):
        return "Noto Sans CJK"
    return "Noto Emoji" if unicodedata.category(letter) == "So" else "Noto Sans"
