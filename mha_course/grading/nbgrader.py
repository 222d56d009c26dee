"""What nbgrader calls when it autogrades: two preprocessors, and the configuration that puts them in place.

nbgrader would run a submission in a kernel with the rights of the grader, and read the points from what
that kernel prints. Here, the submission runs inside a sandbox, and only the results of its functions come
out; whether they are right is decided outside.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import select
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from nbgrader import preprocessors as nbgrader
from nbgrader.api import Gradebook
from traitlets import Bunch, Enum, Int, TraitError, Unicode, validate
from traitlets.config import Config

from mha_course.checker.diagnosis import Diagnosis, diagnose
from mha_course.checker.report import Report, make, points
from mha_course.checker.runner import PATIENCE, SECONDS, read
from mha_course.exercises import Exercise, Rng, find, names
from mha_course.grading import functions, limits
from mha_course.grading.functions import Definition, definitions
from mha_course.grading.intake import BECAUSE_OF, LEFT_OUT, MAX_CELLS, NOT_RUN, is_left_out
from mha_course.grading.needed import needed
from mha_course.grading.sandbox import IMAGE, KINDS, Worker, why_not
from mha_course.grading.source import looked_at, syntax_error
from mha_course.grading.worker import (
    MAX_LINE,
    MAX_OUTPUTS,
    MAX_PICTURE,
    MAX_SHOWN,
    MAX_TEXT,
    MAX_TRIES,
    TOO_MUCH,
    encode_problem,
)

MAX_RUNS = 6
MAX_BYTES = 32 * 2**20  # that a submission may write, in all its runs
MAX_PIXELS = 2**24  # of one picture: a browser takes four bytes for each
MAX_ALL_PIXELS = 2**27
PNG = re.compile(rb"\x89PNG\r\n\x1a\n....IHDR(....)(....)", re.S)
# Characters of a page that one character may count as: what becomes an entity or an element takes time.
COSTS = dict.fromkeys("<>&\"'", 20) | {"\x1b": 200}
BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")
NO_PICTURE = "A picture was left out: it is too large, or not a PNG.\n"
KEPT = "kernelspec", "language_info"  # of a notebook's metadata; some of the rest runs when it is opened
OUTCOME = "mha_lab"  # of an output's metadata: the outcome of an exercise, and its points
ANSWER = "mha_lab_answer"  # of the same: the code that a report may show
BECAUSE = "because of "  # begins an outcome: the mistake is in another exercise, which this one calls
BRIEF_SECONDS = 60.0  # kept for a last run, of imports and definitions only
SLACK = 15.0  # seconds without a word, on top of what a step may take, until a worker counts as blocked


def configure(c: Config) -> None:
    """Set nbgrader up for the chapters: ``configure(get_config())`` in ``nbgrader_config.py``.

    A release keeps the stubs as they are (nbgrader would replace them with its own), and autograding
    goes through ``OwnCells`` and ``GradeApart``.
    """
    c.GenerateAssignment.preprocessors = [
        nbgrader.IncludeHeaderFooter,
        nbgrader.LockCells,
        nbgrader.ClearOutput,
        nbgrader.CheckCellMetadata,
        nbgrader.ComputeChecksums,
        nbgrader.SaveCells,
    ]
    c.Autograde.sanitize_preprocessors = [
        OwnCells,
        nbgrader.ClearOutput,
        nbgrader.DeduplicateIds,
        nbgrader.OverwriteKernelspec,
        nbgrader.OverwriteCells,
        nbgrader.CheckCellMetadata,
    ]
    c.Autograde.autograde_preprocessors = [
        GradeApart,
        nbgrader.LimitOutput,
        nbgrader.SaveAutoGrades,
        nbgrader.AssignLatePenalties,
        nbgrader.CheckCellMetadata,
    ]


def holds(sanitize: list, autograde: list) -> bool:
    """Whether these are exactly the preprocessors that ``configure`` sets: others may run what they read."""
    wanted = Config()
    configure(wanted)
    return (sanitize, autograde) == (
        wanted.Autograde.sanitize_preprocessors,
        wanted.Autograde.autograde_preprocessors,
    )


class OwnCells(nbgrader.NbGraderPreprocessor):
    """Takes the learner's code from a submission, and everything that decides points from the gradebook.

    Points, checks, ids and locks of the submission are dropped, not compared. Whatever a learner split,
    merged, copied, moved or deleted, each check is there once, as it was handed out, and all their code
    is kept. A learner's own texts are shown as typed: Markdown may contain code that a browser runs, and a
    teacher opens it.
    """

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """See the class."""
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as gradebook:
            notebook = gradebook.find_notebook(about["notebook"], about["assignment"])
            points = {cell.name: cell.max_score for cell in (*notebook.grade_cells, *notebook.task_cells)}
            answered = {cell.name for cell in notebook.solution_cells}
            tasks = {cell.name for cell in notebook.task_cells}
            left = {c.name: _handed_out(c, points, answered, tasks) for c in notebook.source_cells}
        types = {name: cell.cell_type for name, cell in left.items()}
        source = _chapter(self, resources)
        texts = {cell.source for cell in source.cells if cell.cell_type == "markdown"}
        code = {cell.source for cell in source.cells if cell.cell_type == "code"}
        # The type of their other cells decides what they are.
        odd = [c for c in nb.cells if c.cell_type != "code" or _name(c, types) in types.keys() - answered]
        looked = _looked_at([cell for cell in odd if cell.source not in texts | code])
        cells: list[NotebookNode] = []
        for cell in nb.cells:
            name, kind = _name(cell, types), cell.cell_type
            found = looked.get((cell.source, kind == "code"), False)
            blocks = found if isinstance(found, list) else []
            if isinstance(found, limits.TooHard):
                cells.append(new_markdown_cell(LEFT_OUT.format(f"it {found}")))
                continue
            if cell.source in code or found is True:  # its type was changed, by a slip
                kind = "code"
            elif blocks:
                kind = "code"
                cells.append(_plain(cell, "markdown", texts))
            elif name not in answered:
                kind = types.get(name, kind)
            *before, theirs = map(new_code_cell, blocks) if blocks else [_plain(cell, kind, texts)]
            cells += before
            if name is None:
                cells.append(theirs)
            elif name not in answered:  # a check or a task: the text is ours; what they wrote over it is code
                if cell.source != _source_of(left.get(name)) and kind == "code":
                    cells.append(theirs)
                cells += [left.pop(name)] if name in left else []
            else:
                if name in left:  # else a copy, or the other half of one that was split
                    theirs.metadata = left.pop(name).metadata
                cells.append(theirs)
        nb.cells = cells + [cell for name, cell in left.items() if name not in answered or name in points]
        nb.metadata = from_dict({k: v for k, v in source.metadata.items() if k in KEPT})
        nb.nbformat_minor = 5  # Colab saves an older one, without ids
        for i, cell in enumerate(nb.cells):
            cell.id = f"cell-{i}"
        return nb, resources


def _name(cell: NotebookNode, known: Container[str]) -> str | None:
    """The name that a cell was handed out with, if it has one."""
    mark = cell.metadata.get("nbgrader", {})
    name = mark.get("grade_id") if isinstance(mark, dict) else None
    return name if isinstance(name, str) and name in known else None


def _looked_at(cells: list[NotebookNode]) -> dict[tuple[str, bool], Any]:
    """What ``looked_at`` says of a student's own texts, by the text and whether it is code.

    Together they give no more cells than a notebook may have.
    """
    own = list(dict.fromkeys((cell.source, cell.cell_type == "code") for cell in cells))
    found = dict(zip(own, limits.each(lambda one: looked_at(*one), own), strict=True))
    room = MAX_CELLS
    for cell in cells:
        one = cell.source, cell.cell_type == "code"
        blocks = found.get(one)
        room -= len(blocks) if isinstance(blocks, list) else 0
        if room < 0 and blocks:
            found[one] = limits.TooHard(f"and other texts have more than {MAX_CELLS} blocks of code")
    return found


def _chapter(preprocessor: nbgrader.NbGraderPreprocessor, resources: ResourcesDict) -> NotebookNode:
    """The chapter that was handed out."""
    about = resources["nbgrader"]
    folders = preprocessor.parent.parent.coursedir  # of the exporter's converter
    folder = Path(folders.format_path(folders.source_directory, ".", about["assignment"]))
    return nbformat.read(folder / f"{about['notebook']}.ipynb", as_version=4)


def _plain(cell: NotebookNode, kind: str, texts: set[str]) -> NotebookNode:
    """A learner's cell with nothing but its text."""
    if kind == "code":
        return new_code_cell(cell.source)
    ours = cell.source in texts or is_left_out(cell.source)
    return new_markdown_cell(cell.source if ours else _as_typed(cell.source))


def _source_of(cell: NotebookNode | None) -> str | None:
    """A cell's text, if there is a cell."""
    return None if cell is None else cell.source


def _as_typed(text: str) -> str:
    """A fence that the text cannot close."""
    fence = "`" * max([3, *(len(found) + 1 for found in re.findall("`+", text))])
    return f"{fence}text\n{text}\n{fence}"


def _handed_out(cell: Any, points: dict[str, float], answered: set[str], tasks: set[str]) -> NotebookNode:
    """A marked cell as the gradebook knows it."""
    mark = {
        "schema_version": 3,
        "grade_id": cell.name,
        "grade": cell.name in points and cell.name not in tasks,
        "solution": cell.name in answered,
        "locked": cell.locked,
        "task": cell.name in tasks,
    }
    if cell.name in points:
        mark["points"] = points[cell.name]
    new_cell = new_code_cell if cell.cell_type == "code" else new_markdown_cell
    return new_cell(cell.source, metadata={"nbgrader": mark})


@dataclass
class Room:
    """What a submission may still write and show: one budget for all its runs and cells."""

    bytes: int = MAX_BYTES
    shown: int = MAX_SHOWN  # characters of a page
    pixels: int = MAX_ALL_PIXELS

    def shows(self, text: str) -> bool:
        """Whether this still fits on the page; then it takes its room."""
        taken = len(text) + sum(cost * text.count(odd) for odd, cost in COSTS.items())
        fits = taken <= self.shown
        self.shown -= taken if fits else 0
        return fits

    def draws(self, picture: str) -> bool:
        """Whether this is a PNG of a sensible size for which there is room, by its header."""
        try:
            header = PNG.match(base64.b64decode("".join(picture[:1000].split())[:64]))
        except ValueError:
            return False
        size = int.from_bytes(header[1]) * int.from_bytes(header[2]) if header else 0
        fits = 0 < size <= min(MAX_PIXELS, self.pixels)
        self.pixels -= size if fits else 0
        return fits


@dataclass
class Step:
    """A code cell to run, or the place of a check.

    ``said`` is what the cell printed; ``None`` if the worker never reached it.
    """

    cell: NotebookNode
    check: str = ""
    source: str = ""  # what is run of the cell
    said: Any = None
    hard: str = ""  # why it cannot be read; then it is not run
    left_out: bool = False
    brief: bool = False  # only its imports and definitions were run

    def request(self, skip: list[str], brief: bool) -> dict:
        """The request to the worker; it does not try the functions in ``skip`` again.

        If ``brief``, also of a cell that is left out otherwise.
        """
        if self.check:
            return {"check": self.check, "skip": skip}
        source = "" if self.hard or (self.left_out and not brief) else self.source
        return {"run": source, "skip": skip, "shown": self.said is not None}


@dataclass
class Check:
    """A check: its cell, its random problems, and the outcome of each function with its name.

    ``tried`` has the step that defined it, and the worker's messages; ``None`` if it ended the worker.
    ``fixed`` has, for the same steps, the other exercises that are called, and the messages if these are
    the solutions.
    """

    cell: NotebookNode
    exercise: Exercise
    seed: int = field(default_factory=lambda: secrets.randbits(48))
    unread: str = ""  # what Python says of a cell that should define it
    tried: dict[int, Any] = field(default_factory=dict)
    fixed: dict[int, tuple[list[str], Any]] = field(default_factory=dict)

    @cached_property
    def problems(self) -> list[tuple]:
        """The problems on which every function with that name is tried."""
        return list(self.exercise.problems(Rng(self.seed)))

    def request(self) -> dict:
        """The request: the problems, and the seed for the functions in them, which cannot be sent."""
        return {"seed": self.seed, "sent": [encode_problem(problem) for problem in self.problems]}

    @cached_property
    def diagnoses(self) -> dict[int, Diagnosis]:
        """What is to be said of each function, by the step that defined it; nothing of a stub."""
        tried = sorted(self.tried.items())  # a later run may have tried an earlier one
        found = {i: self._diagnose(messages) for i, messages in tried if messages is not None}
        return {i: diagnosis for i, diagnosis in found.items() if diagnosis is not None}

    @cached_property
    def right_with(self) -> dict[int, tuple[list[str], Diagnosis]]:
        """The functions that are right with the solutions of others: by step, which they call."""
        calling = {
            i: (called, said) for i, (called, said) in self.fixed.items() if called and i in self.diagnoses
        }
        tried = {i: (called, self._diagnose(said)) for i, (called, said) in calling.items()}
        return {i: found for i, found in tried.items() if _passes(found[1])}

    def blames(self, wrong: set[str]) -> list[str]:
        """The ``wrong`` exercises with whose solutions the function that is judged would be right."""
        called, _ = self.right_with.get(next(reversed(self.diagnoses), -1), ([], None))
        return [name for name in called if name in wrong and None not in self.tried.values()]

    def judge(self, right: Container[str] = ()) -> tuple[Report, int | float, str]:
        """One right definition earns the points; else the report is about the last that is not a stub.

        So does one that is right with the solutions of what it calls, if the student's own are ``right``:
        when it was tried, the names may have stood for something else, such as a stub.

        Returns:
            the report, the points, and the outcome: ``right``, ``untouched``, ``missing``, ``syntax-error``,
            ``ends-python``, or the name of the mistake.
        """
        attempts = list(self.diagnoses.values())
        passed = [diagnosis for diagnosis in attempts if _passes(diagnosis)]
        if right:
            passed += [found for called, found in self.right_with.values() if all(n in right for n in called)]
        if passed:
            return make(self.exercise, passed[-1]), self.exercise.points, "right"
        nothing = f"{self.exercise.name}: {{}}, 0 of {points(self.exercise.points)}."
        if None in self.tried.values():
            return (
                Report(nothing.format("your function ended or blocked Python"), state="wrong"),
                0,
                "ends-python",
            )
        if self.unread and not attempts:
            return (
                Report(nothing.format("it has a syntax error"), (self.unread,), state="wrong"),
                0,
                "syntax-error",
            )
        if not self.tried:
            missing = f"there is no function {self.exercise.name}; did its cell fail?"
            return Report(nothing.format(missing), state="wrong"), 0, "missing"
        last = attempts[-1] if attempts else None
        return make(self.exercise, last), 0, last.name if last else "untouched"

    def _diagnose(self, messages: Any) -> Diagnosis | None:
        messages = messages if isinstance(messages, list) else []
        messages = (messages + [None] * len(self.problems))[: len(self.problems)]
        try:
            outcomes = [read(message) for message in messages]
            return diagnose(self.exercise, self.exercise.trials(self.problems, outcomes))
        except Exception:  # a strange result must not cost the learner other exercises
            return Diagnosis("wrong", "Your results could not be compared with what is expected.")


class GradeApart(nbgrader.NbGraderPreprocessor):
    """Replaces nbgrader's ``Execute``: runs the submission inside a sandbox, and decides outside of it.

    An exercise is tried whenever a cell has defined its function, and at its check. A cell
    that kills the worker, or cannot be stopped, is left out, and the rest is run once more. In the end, there
    is a last, brief run if a cell was left out or if time is short: it runs imports and definitions only, of
    all cells. So a cell that ends Python by mistake, or takes long, costs no function. (One that is meant to
    harm later cells of its own notebook can do so.)
    """

    isolation = Enum(KINDS, "bubblewrap", help="the sandbox of a submission").tag(config=True)
    image = Unicode(IMAGE, help="the container image for podman and docker").tag(config=True)
    cell_seconds = Int(20, min=1, help="a cell is stopped when it has computed for so long").tag(config=True)
    seconds = Int(300, min=1, help="a submission is stopped after this time by the clock").tag(config=True)

    seed = Unicode("", help="decides the problems of each exercise; random if empty").tag(config=True)

    @validate("image")
    def _no_option(self, proposal: Bunch) -> str:
        if not proposal.value or proposal.value.startswith("-"):
            raise TraitError(f"GradeApart.image: expected the name of an image, got {proposal.value!r}")
        return proposal.value

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """See the class."""
        if missing := why_not(self.isolation, self.image):
            raise RuntimeError(f"nothing was graded, for lack of a sandbox: {missing}. See docs/grading.md")
        chapter = [cell.source for cell in _chapter(self, resources).cells] if resources else []
        steps: list[Step] = []
        checks: dict[str, Check] = {}
        for cell in nb.cells:
            if cell.cell_type != "code":
                continue
            cell.outputs, cell.execution_count = [], None
            mark = cell.metadata.get("nbgrader", {})
            if not mark.get("grade") or mark.get("solution"):
                steps.append(Step(cell))
            elif (name := mark["grade_id"].removeprefix("check-")) in names():
                exercise = replace(find(name), points=mark["points"])  # the teacher's points
                checks[name] = Check(cell, exercise, **self._seed(name))
                steps.append(Step(cell, check=name))
            else:
                cell.outputs = [_not_graded()]
        runs = [step for step in steps if not step.check]
        theirs = _read([step.cell.source for step in runs], chapter)
        for step, source, hard in zip(runs, theirs.needed, theirs.hard, strict=True):
            step.source, step.hard = source, hard
        end = time.monotonic() + self.seconds
        short = end - min(BRIEF_SECONDS, self.seconds / 2)
        room = Room()
        for _ in range(MAX_RUNS):
            whole = self._run(steps, checks, short, room)
            over = not whole and time.monotonic() >= short
            if whole or over or room.bytes <= 0:
                break
        if room.bytes > 0 and (not whole or any(step.left_out for step in runs)):
            self._run(steps, checks, end, room, brief=True)
        for step in runs:
            step.cell.outputs = _outputs(step, room)
        for name, check in checks.items():
            check.unread = _unread(name, runs, theirs.errors)
        code = functions.answers(theirs.functions, handed_out_functions(tuple(chapter)), checks)
        for name, (report, earned, outcome, notes) in judged(checks).items():
            notes += ["The time for this submission was over."] * (over and not earned)
            about = {OUTCOME: [outcome, earned], ANSWER: functions.short(code.get(name, ""))}
            checks[name].cell.outputs = _shown(report, earned, about, notes)
        return nb, resources

    def _seed(self, name: str) -> dict[str, int]:
        if not self.seed:
            return {}
        return {"seed": int.from_bytes(hashlib.sha256(f"{self.seed} {name}".encode()).digest()[:6])}

    def _run(
        self, steps: list[Step], checks: dict[str, Check], end: float, room: Room, brief: bool = False
    ) -> bool:
        """Run all steps; ``False`` if one ended the worker, or the time is over.

        A step that ended the worker is left out the next time. If ``brief``, only imports and definitions
        are run.
        """
        request = {
            "steps": [step.request(_tried_at(i, checks), brief) for i, step in enumerate(steps)],
            "exercises": {name: check.request() for name, check in checks.items()},
            "seconds": self.cell_seconds,
            "brief": brief,
            "room": MAX_SHOWN - len(json.dumps([step.said for step in steps if step.said])),
        }
        silence = PATIENCE * max(self.cell_seconds, SECONDS) + SLACK
        i, name = 0, None  # what the worker is doing
        with Worker(self.isolation, self.image, f"mha-lab-{secrets.token_hex(8)}") as worker:
            with contextlib.suppress(BrokenPipeError):
                worker.process.stdin.write(json.dumps(request).encode())
                worker.process.stdin.close()
            for line in _lines(worker.process.stdout.fileno(), end, silence, room):
                if line.get("end"):
                    return True
                step, trying, tried = line.get("step"), line.get("trying"), line.get("tried")
                if type(step) is not int or not 0 <= step < len(steps):
                    break  # not our worker's words
                i, name = step, trying if isinstance(trying, str) else None
                if "outputs" in line and steps[i].said is None:
                    steps[i].said = None if brief else line["outputs"]
                    steps[i].brief = brief
                if isinstance(tried, str) and tried in checks and len(checks[tried].tried) < MAX_TRIES:
                    checks[tried].tried[i] = line.get("messages") or []
                    calls = line.get("calls") if isinstance(line.get("calls"), list) else []
                    checks[tried].fixed[i] = [n for n in checks if n in calls], line.get("fixed")
        if time.monotonic() >= end:
            return False  # what was running is not to blame
        if name in checks:
            checks[name].tried[i] = None
        elif steps and not brief:
            steps[i].left_out = True
        return not steps


def _passes(diagnosis: Diagnosis | None) -> bool:
    """Whether nothing is wrong; ``None`` is a stub."""
    return diagnosis is not None and diagnosis.name is None


def judged(checks: dict[str, Check]) -> dict[str, tuple[Report, int | float, str, list[str]]]:
    """For each exercise the report, the points, the outcome, and notes for the learner.

    The outcomes are those of ``Check.judge``. If a function is right but for a mistake in another exercise,
    which it calls, the outcome names that one, so that one mistake counts once.
    """
    found, right, more = {}, set(), {""}
    while more:
        found |= {name: check.judge(right) for name, check in checks.items() if name not in right}
        more = {name for name, (_, _, outcome) in found.items() if outcome == "right"} - right
        right |= more
    wrong = found.keys() - right
    blamed = {name: checks[name].blames(wrong) for name in wrong}
    whole = {}
    for name, (report, earned, outcome) in found.items():
        notes = []
        if guilty := blamed.get(name):
            first = [other for other in guilty if not blamed[other]] or guilty
            which = " and ".join(first)
            outcome = BECAUSE + which
            notes = [f"{name} calls {which}. If you correct {which}, {name} is right."]
        whole[name] = report, earned, outcome, notes
    return whole


def _tried_at(i: int, checks: dict[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if i in check.tried]


def _lines(pipe: int, end: float, silence: float, room: Room) -> Iterator[dict]:
    """JSON objects from a pipe, until it closes, falls silent, has used up its room, or the time is over."""
    parts = []
    while room.bytes > 0:
        left = min(end - time.monotonic(), silence)
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return
        chunk = os.read(pipe, 1 << 20)
        if not chunk:
            return
        room.bytes -= len(chunk)
        parts.append(chunk)
        if b"\n" not in chunk and sum(map(len, parts)) <= MAX_LINE:
            continue
        *lines, rest = b"".join(parts).split(b"\n")
        parts = [rest]
        if max(map(len, (*lines, rest))) > MAX_LINE:
            return
        for line in lines:
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                return
            if not isinstance(said, dict):
                return
            yield said


class Read(NamedTuple):
    """What was read of a submission's cells.

    ``needed`` is what to run of each, ``errors`` why it cannot be read, and ``hard`` why it is not run,
    or an empty text; ``functions`` are those that the student's own cells define.
    """

    needed: list[str]
    errors: list[str]
    hard: list[str]
    functions: list[Definition]


def _read(cells: list[str], chapter: list[str]) -> Read:
    """Read the cells in a child; if it cannot be said what is needed of the chapter, that is all."""
    given = {*chapter}
    own = [cell not in given for cell in cells]
    theirs = [cell for cell, mine in zip(cells, own, strict=True) if mine]

    def read(cell: str | None) -> list:
        return needed(cells, own, names()) if cell is None else [syntax_error(cell), definitions(cell)]

    ran, *found = limits.each(read, [None, *theirs])
    errors, hard, defined = {}, {}, []
    for cell, one in zip(theirs, found, strict=True):
        if isinstance(one, limits.TooHard):
            errors[cell] = hard[cell] = LEFT_OUT.format(f"it {one}")
        else:
            errors[cell] = one[0]
            defined += [Definition(*function) for function in one[1]]
    ran = cells if isinstance(ran, limits.TooHard) else ran
    return Read(ran, *([why.get(cell, "") for cell in cells] for why in (errors, hard)), defined)


@lru_cache
def handed_out_functions(chapter: tuple[str, ...]) -> list[Definition]:
    """The functions of a chapter, from the texts of its cells: the same for all submissions."""
    return [function for cell in chapter for function in definitions(cell)]


def _unread(name: str, runs: list[Step], errors: list[str]) -> str:
    """The line and the reason, if Python cannot read the last cell that defines this function."""
    said = ""
    for step, error in zip(runs, errors, strict=True):
        mark = step.cell.metadata.get("nbgrader", {}).get("grade_id")
        defined = rf"^[ \t]*(async[ \t]+)?def[ \t]+{name}\b|^{name}[ \t]*="
        if error and (mark == name or re.search(defined, step.cell.source, re.M)):
            said = error
    return said


def _not_graded() -> NotebookNode:
    why = "GradeApart grades the exercises of mha_lab only; give these points by hand"
    return new_output("error", ename="NotGraded", evalue=why, traceback=[f"NotGraded: {why}"])


def _shown(
    report: Report, earned: int | float, about: dict[str, Any], notes: list[str]
) -> list[NotebookNode]:
    """The outputs of a check: the report, the notes, and the points as nbgrader reads them."""
    text, page = str(report), report._repr_html_()
    page = re.sub(r'href="\d\d_\w+\.ipynb#', 'href="#', page)  # feedback is one page
    data = {"text/plain": _clean(text), "text/html": _clean(page)}
    outputs = [new_output("display_data", data=data, metadata=about)]
    if notes:
        outputs.append(new_output("stream", name="stdout", text="\n".join([*notes, ""])))
    number = {"text/plain": repr(float(earned))}
    return [*outputs, new_output("execute_result", data=number, execution_count=1)]


def _outputs(step: Step, room: Room) -> list[NotebookNode]:
    """The outputs that a worker reports, if they are text or a picture of a sensible size, and fit in."""
    if step.hard:
        return [new_output("stream", name="stdout", text=f"{step.hard}\n")]
    outputs, lost = [], {}
    for output in step.said[:MAX_OUTPUTS] if isinstance(step.said, list) else []:
        if not isinstance(output, dict):
            continue
        if isinstance(text := output.get("stream"), str):
            text = _clean(text[:MAX_TEXT])
            if room.shows(text):
                outputs.append(new_output("stream", name="stdout", text=text))
            else:
                lost[TOO_MUCH] = None
        shown = output.get("display")
        if isinstance(shown, dict):
            data = {}
            if isinstance(text := shown.get("text/plain"), str):
                text = _clean(text[:MAX_TEXT])
                if room.shows(text):
                    data["text/plain"] = text
                else:
                    lost[TOO_MUCH] = None
            picture = shown.get("image/png")
            if isinstance(picture, str) and len(picture) <= MAX_PICTURE and BASE64.fullmatch(picture):
                if not room.draws(picture):
                    lost[NO_PICTURE] = None
                elif room.shows(picture):
                    data["image/png"] = picture
                else:
                    lost[TOO_MUCH] = None
            if data:
                outputs.append(new_output("display_data", data=data))
    outputs += [new_output("stream", name="stdout", text=why) for why in lost]
    if step.left_out or step.said is None:
        why = f"{NOT_RUN[step.brief]}: {BECAUSE_OF[not step.left_out]}.\n"
        outputs.append(new_output("stream", name="stdout", text=why))
    return outputs


def _clean(text: str) -> str:
    """The text without halves of surrogate pairs, which cannot be written to a file."""
    return text.encode("utf-8", "replace").decode()
