"""The Python side of all explorables: the ES module, the fixed repr, the picture without scripts."""

import base64
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from mha_lab import _expect as expect

HERE = Path(__file__).parent
START = "application/vnd.mha-lab.explorable+json"  # the first state on a page without a kernel
DIGITS = 6  # of the numbers in it: as many as can be seen, and the same on every machine


def module(name: str) -> str:
    """The ES module ``name.js`` with what it imports from ``shared.js`` inside it.

    A web page loads the two files as they are. A widget gets one text, so the import becomes the
    imported text.
    """
    shared = re.sub(r"^export ", "", (HERE / "shared.js").read_text(encoding="utf-8"), flags=re.MULTILINE)
    own = (HERE / f"{name}.js").read_text(encoding="utf-8")
    whole, imports = re.subn(
        r'^import \{[^}]*\} from "\./shared\.js";\n', lambda _: shared, own, flags=re.MULTILINE
    )
    assert imports == 1, name
    return whole


class Explorable(anywidget.AnyWidget):
    """A widget whose repr is the same on every run, and that shows a picture if no script can run."""

    def __repr__(self) -> str:
        return f"<explore.{type(self).__name__.lower()}: {self.describe()}>"

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
        return {"module": type(self).__name__.lower(), "state": {k: _plain(v) for k, v in states.items()}}

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict, dict]:
        data, metadata = super()._repr_mimebundle_(**options)
        figure, picture = self.still(), io.BytesIO()
        figure.savefig(picture, format="png", dpi=100, metadata={"Software": None})
        plt.close(figure)
        data["image/png"] = base64.b64encode(picture.getvalue()).decode()
        data["text/plain"] = repr(self)
        data[START] = self.start()
        metadata["image/png"] = {"alt": self.describe()}
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
    if isinstance(value, float):
        rounded = round(value, DIGITS)
        return int(rounded) if rounded.is_integer() else rounded
    return value


def short(names: Sequence[str]) -> list[str]:
    """Labels that fit beside a picture of fixed size."""
    return [name if len(name) <= 12 else name[:11] + "…" for name in names]


def finite(name: str, value: Tensor) -> Tensor:
    """``value`` if it has no NaN and no infinity in it; in a drawing, they would be gaps without an error."""
    if not value.is_floating_point():
        expect.fail(
            TypeError, name, "floating-point numbers", str(value.dtype), f"Did you mean {name}.float()?"
        )
    if not value.isfinite().all():
        expect.fail(ValueError, name, "finite numbers", "NaN or infinity", "Is a row fully hidden?")
    return value


def labels(name: str, given: Sequence[str] | None, stem: str, count: int) -> list[str]:
    """``count`` texts: those given, or "key 0", "key 1" and so on."""
    if given is None:
        return [f"{stem} {i}" for i in range(count)]
    if isinstance(given, str) or not all(isinstance(label, str) for label in given):
        expect.fail(TypeError, name, "a list of texts", type(given).__name__, "Did you mean text.split()?")
    if len(given) != count:
        expect.fail(ValueError, name, f"{count} labels", len(given))
    return list(given)
