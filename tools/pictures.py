"""Is a stored picture the same as a new drawing? A pytest plugin beside nbval: ``-p tools.pictures``.

nbval compares a picture's description. It is made from the numbers, so another colour does not change it.
This plugin also compares the pictures, if they were drawn by the same matplotlib on the same kind of machine.

Each step of a training makes a difference in the last bit larger, so that two kinds of processor end with
other weights. A cell that shows trained weights has the tag ``trained``: only what it prints is compared.
"""

import base64
import io
import platform
import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.image import imread
from nbval import plugin

PINNED = re.search(r"(?m)^matplotlib==(.+)$", Path("constraints.txt").read_text(encoding="utf-8"))[1]
COMPARABLE = mpl.__version__ == PINNED and platform.system() == "Linux" and platform.machine() == "x86_64"
TRAINED = "trained"
# The mean difference of pixels, each from 0 to 1, in any square of 32 by 32. Rounding changes a shade by one
# step, or moves a line a little: 0.0001. Another colour for the thin lines of one tensor gives 0.05.
MAX_DIFFERENCE, TILE = 0.002, 32


def same(one: str, other: str) -> bool:
    """Whether two pictures, PNG as base64, look alike."""
    if one == other:
        return True
    a, b = (imread(io.BytesIO(base64.b64decode(png))) for png in (one, other))
    if a.shape != b.shape:
        return False
    difference = np.abs(a - b).mean(axis=-1)
    difference = np.pad(difference, [(0, -size % TILE) for size in difference.shape])  # whole squares
    down, right = (size // TILE for size in difference.shape)
    squares = difference.reshape(down, TILE, right, TILE).mean(axis=(1, 3))
    return bool(squares.max() <= MAX_DIFFERENCE)


def all_same(outputs: Iterable, others: Iterable) -> bool:
    """The same for all pictures of two lists of a cell's outputs, in order."""
    drawn, stored = (
        [output["data"]["image/png"] for output in given if "image/png" in output.get("data", {})]
        for given in (outputs, others)
    )
    return len(drawn) == len(stored) and all(map(same, drawn, stored))


def pytest_configure() -> None:
    """Each cell that nbval compares is compared once more."""
    from mha_course.explore._widget import START  # not above: a plugin is loaded before jaxtyping can check

    texts_are_same = plugin.IPyNbCell.compare_outputs

    def compare(cell, drawn, stored, skip_compare=None):
        trained = TRAINED in cell.cell.metadata.get("tags", [])
        if trained:
            skip_compare = (*(skip_compare or cell.parent.skip_compare), "text/plain", START)
        if not texts_are_same(cell, drawn, stored, skip_compare):
            return False
        if COMPARABLE and not trained and not all_same(drawn, stored):
            cell.comparison_traceback.append("the stored picture is not what is drawn now: run make refresh")
            return False
        return True

    plugin.IPyNbCell.compare_outputs = compare
