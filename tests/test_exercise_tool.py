"""`make exercise` and `make exercise-check`, in a copy of the repository."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.notebooks.chapters import ROOT
from tools import exercise
from tools.exercise import TRIES

PARTS = ("mha_lab", "mha_course", "tests", "tools", "bench", "notebooks", "docs")
FILES = ("pyproject.toml", "constraints.txt", "README.md", "CITATION.cff", "Makefile")


@pytest.mark.parametrize(
    ("name", "chapter", "says"),
    [
        ("double_rows", "33", "no chapter"),
        ("2x", "03", "cannot be a function"),
        ("split_heads", "03", "already"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_sentence(name, chapter, says, capsys):
    assert exercise.main(["new", name, chapter]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_a_new_exercise_is_whole_and_a_broken_one_is_told_what_to_do(tmp_path):
    for part in PARTS:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", ".ipynb*"))
    for file in FILES:
        shutil.copy(ROOT / file, tmp_path)

    def run(*command):
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=3600,
        )
        return done.returncode, done.stdout + done.stderr

    code, said = run("tools.exercise", "new", "double_rows", "02")
    assert code == 0, said
    order = (tmp_path / "mha_course" / "exercises" / "order.txt").read_text().split()
    assert "double_rows" in order  # a right answer is told what comes next
    for tries in (tmp_path / "tests" / "check" / "tries").glob("02_double_rows_?.txt"):
        tries.write_text(tries.read_text() * 3)  # twelve are asked for
    for command in (
        ("tools.notebooks", "run", "02"),
        ("tools.sync",),
        ("tests.check.matrix", "row", "double_rows"),
    ):
        code, said = run(*command)
        assert code == 0, said
    said = run("tools.exercise", "check", "double_rows")[1]
    assert said.endswith("double_rows: all is right\n"), said[-2000:]

    tries.write_text(TRIES.format(name="double_rows").replace("| wrong: as it came", "| right"))
    module = tmp_path / "mha_course" / "exercises" / "double_rows.py"
    more = '"added-to-itself": Mistake("Your function adds `x` to itself.", STEP, (lambda x: x + x,)),'
    more += '"typed": Mistake("Your numbers are negative.", STEP, ()),'
    module.write_text(module.read_text().replace("},\n)", f"{more}\n    }},\n)") + "import os\n")
    code, said = run("tools.exercise", "check", "double_rows")
    assert code == 1
    to_do = [line.removeprefix("TO DO: ") for line in said.splitlines() if line.startswith("TO DO: ")]
    claims = "tests/check/claims/ch02.py"
    assert to_do[0] == (
        f'add to {claims}: CLAIMS[("double_rows", "typed")] = lambda problem, expected, got: ...'
    )
    assert to_do[1].startswith("write more first tries: there are 8, ")
    assert to_do[2].startswith("added-to-itself: on 8 of 8 sets of problems, ")
    typed = "tests/check/tries/02_double_rows_a.txt, tests/check/tries/02_double_rows_b.txt"
    assert to_do[3] == (
        "do what the failed test above says, in one of "
        f"mha_course/exercises/double_rows.py, {typed}, {claims}"
    )
    assert "run: make format" in to_do
