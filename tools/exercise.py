"""A new exercise, and all checks of one: ``python -m tools.exercise new NAME 03`` or ``... check NAME``.

``new`` writes a small exercise that works, at every place that an exercise has: its file, two files of first
tries, its cells behind the chapter's last exercise, its line in each list. You then replace their content and
move the cells. ``check`` runs every check that can fail because of an exercise.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from tools import sync
from tools.notebooks import MERGED, exercise_of, merge, to_text
from tools.sync import ROOT, chapter_paths

MODULE = '''"""Chapter {number}: say in a few words what is asked."""

from mha_course.exercises import Exercise, Mistake

STEP = "{step}"


def {name}(x):
    """``(..., n)`` to ``(..., n)``: say what comes back."""
    return 2 * x


def _problems(rng):
    yield (rng.normal(2, 3),)  # the smallest comes first: the report shows it
    for lead in ((), (2,)):
        yield (rng.normal(*lead, *rng.primes(2)),)  # sizes that all differ


EXERCISE = Exercise(
    answer={name},
    chapter="{chapter}",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={{
        "not-doubled": Mistake("Your function returns `x` as it came.", STEP, (lambda x: x,)),
    }},
)
'''
TRIES = """# %% {name} | right
def {name}(x):
    return x + x

# %% {name} | wrong: as it came
def {name}(x):
    return x
"""
TEXT = """### Exercise: {name} · easy, 4 minutes

`x` is `(..., n)`. Return `(..., n)`: say what is asked.

Example: `{name}(torch.ones(2))` is `tensor([2., 2.])`.

<details><summary>Hint 1</summary>

A question that points the way.

<details><summary>Hint 2</summary>

A smaller step.

<details><summary>Hint 3</summary>

Nearly the answer.

</details></details></details>"""
STUB = '''def {name}(x):
    """(..., n) to (..., n)."""
    raise NotImplementedError'''


def new(name: str, number: str) -> int:
    """Write the skeleton; of the existing files, only the chapter changes."""
    chapters = [path for path in chapter_paths(ROOT / "notebooks") if path.name.startswith(number)]
    module = ROOT / "mha_course" / "exercises" / f"{name}.py"
    if len(chapters) != 1:
        return _stop(f"no chapter {number!r}: say CHAPTER=03, for instance")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return _stop(f"{name!r} cannot be a function's name: say NAME=double_rows, for instance")
    if module.exists():
        return _stop(f"there is an exercise {name} already: {module.relative_to(ROOT)}")
    (path,) = chapters
    notebook = nbformat.read(path, as_version=4)
    texts = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    words = {"name": name, "number": number, "chapter": path.stem}
    words["step"] = re.search(r"^## (1 .+)$", texts, re.MULTILINE)[1]
    last = max(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code" and exercise_of(cell))
    written = {module: MODULE} | {
        ROOT / "tests" / "check" / "tries" / f"{number}_{name}_{reader}.txt": TRIES for reader in "ab"
    }
    for file, template in written.items():
        file.write_text(template.format(**words), encoding="utf-8")
    notebook.cells[last + 1 : last + 1] = [
        new_markdown_cell(TEXT.format(**words), id=f"{name}-text"),
        new_code_cell(STUB.format(**words), id=f"{name}-stub"),
        new_code_cell(f"check({name})", id=f"{name}-check"),
    ]
    path.write_text(to_text(notebook), encoding="utf-8", newline="\n")
    sync.main([])
    print("Written. Now replace what is in")
    for file in (*written, path):
        print(f"  {file.relative_to(ROOT)}")
    print("then run:")
    print(
        f"  make notebooks CHAPTER={number}\n  make sync\n  .venv/bin/python -m tests.check.matrix row {name}"
    )
    print(f"  make exercise-check NAME={name}")
    return 0


def check(name: str) -> int:
    """Run the checks of this exercise; 0 if all is right, else a line for each thing to do."""
    module = ROOT / "mha_course" / "exercises" / f"{name}.py"
    if not module.exists():
        return _stop(
            f"there is no {module.relative_to(ROOT)}: make exercise NAME={name} CHAPTER=03 writes one"
        )
    from mha_course.exercises import find

    chapter = find(name).chapter
    tries = sorted((ROOT / "tests" / "check" / "tries").glob(f"{chapter[:2]}*.txt"))
    typed = [file for file in tries if f"# %% {name} |" in file.read_text(encoding="utf-8")]
    claims = ROOT / "tests" / "check" / "claims" / f"ch{chapter[:2]}.py"
    edited = ", ".join(str(file.relative_to(ROOT)) for file in (module, *typed, claims))
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ours = ["tests/check/test_exercises.py", "tests/check/test_corpus.py", "tests/check/test_mutants.py"]
    nbval = ["-W", "default", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=300"]
    steps = {
        f"do what the failed test above says, in one of {edited}": [*pytest, *ours, "-k", name],
        f"change its cells in notebooks/{chapter}.ipynb": [
            *pytest, "tests/notebooks/test_structure.py", "-k", chapter,
        ],
        f"run: make notebooks CHAPTER={chapter[:2]}": [*pytest, *nbval, str(MERGED / f"{chapter}.ipynb")],
        f"run: .venv/bin/python -m tests.check.matrix row {name}": [
            sys.executable, "-m", "tests.check.matrix", "same", name,
        ],
        f"give each sentence above a row in tests/reasons/{chapter[:2]}.toml, or another wording": [
            sys.executable, "-m", "tools.reasons", chapter[:2],
        ],
        "run: make sync": [sys.executable, "-m", "tools.sync", "check"],
        "run: make format, and change what make lint still names": [
            sys.executable, "-m", "ruff", "check", "--quiet", ".",
        ],
        "run: make format": [sys.executable, "-m", "ruff", "format", "--check", "--quiet", "."],
        "run: make format, it also cleans chapters": [sys.executable, "-m", "tools.notebooks", "check"],
        "remove the import that make lint names": [str(Path(sys.executable).with_name("lint-imports"))],
    }  # fmt: skip
    merge([ROOT / "notebooks" / f"{chapter}.ipynb"])
    ran = {what: subprocess.run(command, cwd=ROOT, timeout=3600) for what, command in steps.items()}
    mistakes = [sys.executable, "-m", "tests.check.stability", "quick", name]
    looked = subprocess.run(mistakes, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=3600)
    stopped = f"correct the error above, in one of {edited}"
    to_do = (looked.stdout.splitlines() or [stopped]) if looked.returncode else []
    to_do += [what for what, done in ran.items() if done.returncode]
    print("\n".join(f"TO DO: {what}" for what in to_do) or f"{name}: all is right")
    return int(bool(to_do))


def _stop(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 2


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["new", "check"])
    parser.add_argument("name")
    parser.add_argument("chapter", nargs="?", default="")
    given = parser.parse_args(arguments)
    return new(given.name, given.chapter) if given.command == "new" else check(given.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
