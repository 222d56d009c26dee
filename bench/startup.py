"""How long a learner waits: for the import, and for a chapter to run."""

import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

from bench.side_by_side import ratio, seconds, verdict
from tools.notebooks import FOLDER, execute

ROUNDS = 15
MAX_BYTES = 500_000
MAX_SECONDS = 360  # all chapters together, on 2 cores
TRAINS = {"07": 60, "08": 60, "10": 110}  # chapters that train or measure, by their number


def python(program: str) -> None:
    """Run the program in a fresh interpreter."""
    subprocess.run([sys.executable, "-c", program], check=True)


def report_import() -> None:
    """Time the whole process, with and without this package."""
    middle, low, high = ratio(lambda: python("import mha_lab"), lambda: python("import torch"), ROUNDS)
    print(
        f"import mha_lab / import torch: {middle:.3f} ({low:.3f} to {high:.3f}), median of {ROUNDS} rounds  "
        + verdict(middle, 1.05)
    )


def report_chapters() -> None:
    """Each chapter in a fresh kernel, next to a kernel that only imports torch and seaborn."""
    with tempfile.TemporaryDirectory() as folder:
        cell = nbformat.v4.new_code_cell("import torch, seaborn")
        empty = nbformat.v4.new_notebook(cells=[cell])
        seconds(lambda: execute(empty, Path(folder)))
        start = min(seconds(lambda: execute(empty, Path(folder))) for _ in range(3))
        most = 2 * start + 5
        print(f"a kernel that imports torch and seaborn: {start:.1f} s")
        print(f"asked of a chapter that trains nothing: at most {most:.1f} s and 500 kB")
        total = 0.0
        for path in sorted(FOLDER.glob("*.ipynb")):
            notebook = nbformat.read(path, as_version=4)
            taken = seconds(lambda notebook=notebook: execute(notebook, Path(folder)))
            total += taken
            size = path.stat().st_size
            good = taken <= TRAINS.get(path.stem[:2], most) and size < MAX_BYTES
            print(
                f"{path.stem:32} {taken:5.1f} s  {size / 1000:4.0f} kB  {'ok' if good else 'MISSED'}",
                flush=True,
            )
        print(f"{'all':32} {total:5.1f} s  " + verdict(total, MAX_SECONDS))
