"""Is a stored picture the same as a new drawing? A pytest plugin beside nbval: ``-p tools.pictures``.

nbval compares a picture's description. It is made from the numbers, so another colour does not change it.
This plugin also compares the pictures, if they were drawn by the same matplotlib on the same kind of machine.

Training makes the rounding of one processor's last bit larger at each step, so that no two kinds of processor
draw the same trained weights. A cell that draws them has the tag ``trained``: only its text is compared.
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
MAX_DIFFERENCE = 0.002  # of the mean over all pixels, each from 0 to 1; a changed colour gives 0.01 and more


def same(one: str, other: str) -> bool:
    """Whether two pictures, PNG as base64, look alike."""
    if one == other:
        return True
    a, b = (imread(io.BytesIO(base64.b64decode(png))) for png in (one, other))
    return a.shape == b.shape and float(np.abs(a - b).mean()) < MAX_DIFFERENCE


def all_same(outputs: Iterable, others: Iterable) -> bool:
    """The same for all pictures of two lists of a cell's outputs, in order."""
    drawn, stored = (
        [output["data"]["image/png"] for output in given if "image/png" in output.get("data", {})]
        for given in (outputs, others)
    )
    return len(drawn) == len(stored) and all(map(same, drawn, stored))


def pytest_configure() -> None:
    """Each cell that nbval compares is compared once more."""
    texts_are_same = plugin.IPyNbCell.compare_outputs

    def compare(cell, drawn, stored, skip_compare=None):
        if not texts_are_same(cell, drawn, stored, skip_compare):
            return False
        trained = TRAINED in cell.cell.metadata.get("tags", [])
        if COMPARABLE and not trained and not all_same(drawn, stored):
            cell.comparison_traceback.append("the stored picture is not what is drawn now: run make refresh")
            return False
        return True

    plugin.IPyNbCell.compare_outputs = compare
