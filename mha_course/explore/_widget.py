"""The Python side of all explorables: the ES module, the fixed repr, the picture without scripts.

For each explorable, ``NAME.js`` has a pure function ``compute`` and a function ``render``. All words for
the reader stand in the table ``TEXT`` at its top, as whole sentences; ``fill`` of ``shared.js`` puts values
into their named places. ``_NAME.py`` has the state, a description in words, and a still picture.
``tests/explore`` checks the numbers, pointer, keyboard, labels, both browsers and axe.
``.venv/bin/python -m bench repaint`` measures drawing: at most 16 ms for a drag or a key, 50 ms for a button.

Colours have fixed meanings in both themes (``mha_lab/_colours.py``; ``make sync`` writes ``colours.js``).
Write ●, ■ or ▲ before query, key or value; colour a weight with ``shade`` or ``paint``. *Reset* and the goals
are in ``shared.js``. Use container queries: below 640 px an explorable is on a phone, what one presses is at
least 44 px, and a swipe scrolls the page (``touch-action: none`` only on a handle).
"""

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea, VPacker
from torch import Tensor

from mha_lab import _colours, plot
from mha_lab import _expect as expect

HERE = Path(__file__).parent
START = "application/vnd.mha-lab.explorable+json"  # the first state on a page without a kernel
COLOURS = _colours.LIGHT  # of the stills
MARKERS = {"query": "o", "key": "s", "value": "^"}
DIGITS = 6  # of the numbers in it: as many as can be seen, and the same on every machine


def colours() -> str:
    """The text of ``colours.js``, which ``make sync`` writes: the colours of ``_colours.py``."""
    given = {"light": _colours.LIGHT, "dark": _colours.DARK, "tokens": _colours.TOKENS}
    said = "// Of each theme, and of tokens. make sync writes this from _colours.py."
    return f"{said}\nexport const COLOURS = {json.dumps(given)};\n"


def shared() -> str:
    """What all ES modules import, as the body of a function."""
    own, given = (
        re.sub(r"(?m)^export (?:\{[^}]*\};\n)?", "", (HERE / name).read_text(encoding="utf-8"))
        for name in ("shared.js", "colours.js")
    )
    whole, places = re.subn(r'(?m)^import [^"]+"\./colours\.js";\n', lambda _: given, own)
    assert places == 1
    return whole


def module(name: str, body: str | None = None) -> str:
    """The ES module ``name.js`` with what it imports from ``shared.js`` inside it.

    A widget gets one text, so the import becomes a function with the imported text, which gives the imported
    names and keeps the others to itself. ``body`` replaces this text; ``None`` means ``shared()``.
    """
    body = shared() if body is None else body
    own = (HERE / f"{name}.js").read_text(encoding="utf-8")
    whole, imports = re.subn(
        r'^import (\{[^}]*\}) from "\./shared\.js";\n',
        lambda names: f"const {names[1]} = (() => {{\n{body}\nreturn {names[1]};\n}})();\n",
        own,
        flags=re.MULTILINE,
    )
    assert imports == 1, name
    return whole


class Explorable(anywidget.AnyWidget):
    """A widget whose repr is the same on every run, and that shows a picture if no script can run."""

    _css = (HERE / "jupyter.css").read_text(encoding="utf-8")
    _public = ""  # the function of ``explore`` that makes it, and its ES module; "" is the class's name

    @classmethod
    def _named(cls) -> str:
        return cls._public or cls.__name__.lower()

    def __repr__(self) -> str:
        return f"<explore.{self._named()}: {self.describe()}>"

    def describe(self) -> str:
        """The state in words: the text for those who do not see the picture."""
        raise NotImplementedError

    def still(self) -> Figure:
        """The state as a picture."""
        raise NotImplementedError

    def start(self) -> dict[str, Any]:
        """The module's name and every state that it reads, in a form that JSON has: bytes as base64."""
        own = set(self.traits(sync=True)) - {*anywidget.AnyWidget.class_traits(), "_esm", "_css"}
        states = {name: getattr(self, name) for name in sorted(own - {"_anywidget_id"})}
        return {"module": self._named(), "state": {k: _plain(v) for k, v in states.items()}}

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict, dict]:
        data, metadata = super()._repr_mimebundle_(**options)
        figure = self.still()
        picture, size = plot.png(figure)
        plt.close(figure)
        data["image/png"] = base64.b64encode(picture).decode()
        data["text/plain"] = repr(self)
        data[START] = self.start()
        metadata["image/png"] = {"alt": self.describe(), **size}
        return data, metadata


def _plain(value: Any) -> Any:
    """``value`` for JSON: numbers are rounded; bytes, which are float32, become base64 of rounded ones.

    A whole number has no decimal point, as in JavaScript: a notebook saved in JupyterLab stays the same.
    """
    if isinstance(value, bytes):
        rounded = np.frombuffer(value, dtype="<f4").round(DIGITS)
        return base64.b64encode(rounded.tobytes()).decode()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, float):
        rounded = round(value, DIGITS)
        return int(rounded) if rounded.is_integer() else rounded
    return value


def row_of(value: int, n: int) -> int:
    """``value``, the row of one of ``n`` query tokens."""
    if expect.whole_number("row", value, at_least=0) >= n:
        expect.fail(ValueError, "row", f"a token from 0 to {n - 1}", value)
    return value


def unlike(names: list[str]) -> list[str]:
    """Names, with the index of each that is there twice; as in ``shared.js``."""
    return [f"{name} (index {i})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def written(vector: Sequence[float], *, whole: bool = False) -> str:
    """A vector as the pictures write it: two digits; with ``whole``, none for a whole number."""
    numbers = [f"{x:.{0 if whole and x == int(x) else 2}f}".replace("-0.00", "0.00") for x in vector]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


def inked(text: str, size: float | str = "medium", align: str = "left") -> VPacker:
    """Lines of a text for a picture: each shape has the colour of what it stands for."""
    roles = {shape: role for role, shape in _colours.SHAPES.items()}
    lines = []
    for line in text.split("\n"):
        parts = [part.strip() for part in re.split(f"([{''.join(roles)}])", line) if part.strip()]
        inks = [COLOURS[roles[part]] if part in roles else "black" for part in parts]
        texts = [
            TextArea(part, textprops={"color": ink, "fontsize": size, "parse_math": False})
            for part, ink in zip(parts, inks, strict=True)
        ]
        lines.append(HPacker(children=texts, pad=0, sep=4, align="baseline"))
    return VPacker(children=lines, pad=0, sep=2, align=align)


def name_rows(ax: Axes, texts: Sequence[str], size: float | str = "medium") -> None:
    """Texts with shapes beside the rows 0, 1 and so on of a chart."""
    ax.set_yticks(range(len(texts)), [""] * len(texts))
    for i, text in enumerate(texts):
        at = {"xybox": (-6, 0), "xycoords": ("axes fraction", "data"), "boxcoords": "offset points"}
        box = inked(text, size, "right")
        ax.add_artist(AnnotationBbox(box, (0, i), **at, box_alignment=(1, 0.5), frameon=False, pad=0))


def finite(name: str, value: Tensor) -> Tensor:
    """``value`` if it has no NaN and no infinity in it; in a drawing, they would be gaps without an error."""
    if not value.is_floating_point():
        expect.fail(
            TypeError, name, "floating-point numbers", str(value.dtype), f"Did you mean {name}.float()?"
        )
    if not value.isfinite().all():
        expect.fail(ValueError, name, "finite numbers", "NaN or infinity", "Is a row fully hidden?")
    return value
