"""What grading one submission costs: processor time of ``make grade`` for chapter 03, all answers right.

``MHA_LAB_BEFORE=FOLDER python -m bench submission`` measures another checkout in turns with this one. What
runs in the sandbox is not counted: it is killed at the end, and nobody waits for it.
"""

import inspect
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

from bench.side_by_side import verdict
from mha_course.exercises import find, names

ROUNDS = 5
CHAPTER = "03_splitting_heads"
HERE = Path(__file__).parents[1]


def _cpu(root: Path, *command: str | Path) -> float:
    """Seconds that a checkout's grader computes, with the processes that it waits for."""
    package = "mha_course" if (root / "mha_course").exists() else "mha_lab"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", f"{package}.grading", *map(str, command)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _handed_out(root: Path, course: Path) -> None:
    """A course of this checkout, with one submission."""
    _cpu(root, "layout", course, CHAPTER[:2])
    notebook = nbformat.read(course / "release" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)
    for cell in notebook.cells:
        if (name := cell.metadata.get("nbgrader", {}).get("grade_id")) in names():
            cell.source = inspect.getsource(find(name).answer)
    file = course / "submitted" / "ada" / CHAPTER / f"{CHAPTER}.ipynb"
    file.parent.mkdir(parents=True)
    nbformat.write(notebook, file)


def report() -> None:
    """One submission, graded for the first time: this checkout and the one before."""
    before = os.environ.get("MHA_LAB_BEFORE")
    roots = [HERE, Path(before).resolve()] if before else [HERE]
    taken: list[list[float]] = [[] for _ in roots]
    with tempfile.TemporaryDirectory() as folder:
        given = [Path(folder, f"given-{number}") for number in range(len(roots))]
        for root, course in zip(roots, given, strict=True):
            _handed_out(root, course)
        for turn in range(ROUNDS + 1):  # the first compiles, and is thrown away
            for root, course, seconds in zip(roots, given, taken, strict=True):
                fresh = shutil.copytree(course, Path(folder, f"{course.name}-{turn}"))
                seconds.append(_cpu(root, "grade", fresh, CHAPTER, "--jobs=1"))
    here, *others = [statistics.median(some[1:]) for some in taken]
    print(f"grading one submission of chapter 03: {here:.1f} s of a processor, median of {ROUNDS} rounds")
    for other in others:
        print(f"this checkout / {roots[1]}: {here / other:.3f}  {verdict(here / other, 1.0)}")
