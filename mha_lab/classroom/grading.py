"""What nbgrader calls when it autogrades: two preprocessors, and the configuration that puts them in place.

nbgrader would run a submission in a kernel with the rights of the grader, and read the points from what
that kernel prints. Here the submission runs inside walls, and only the results of its functions come out;
whether they are right is decided on this side.
"""

import contextlib
import json
import os
import re
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from nbgrader import preprocessors as nbgrader
from nbgrader.api import Gradebook
from traitlets import Enum, Float, Unicode
from traitlets.config import Config

from mha_lab.check.diagnose import verdict
from mha_lab.check.exercise import Draw, Exercise, find, names
from mha_lab.check.report import Report, make, points
from mha_lab.check.sandbox import PATIENCE, SECONDS, read
from mha_lab.classroom.isolation import IMAGE, KINDS, command, tear_down, why_not
from mha_lab.classroom.worker import encode_problem

MOST_RUNS = 6
MOST_BYTES = 256 * 2**20  # that a submission may say
SLACK = 15.0  # seconds without a word, on top of what a step may take, until a worker counts as blocked


def configure(c: Config) -> None:
    """Set nbgrader up for the chapters: ``configure(get_config())`` in ``nbgrader_config.py``.

    A release keeps the stubs as they are (nbgrader would replace them by its own), and autograding
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


class OwnCells(nbgrader.NbGraderPreprocessor):
    """Takes the learner's code from a submission, and everything that decides points from the gradebook.

    Points, check cells, ids and locks of the submission are dropped, not compared: whatever a learner
    deleted, copied or edited, the result has each graded cell once, as it was handed out. A
    learner's own texts are shown as typed: Markdown may hold what a browser runs, and a teacher opens it.
    """

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """See the class."""
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as gradebook:
            notebook = gradebook.find_notebook(about["notebook"], about["assignment"])
            graded = {cell.name: cell.max_score for cell in notebook.grade_cells}
            answered = {cell.name for cell in notebook.solution_cells}
            left = {cell.name: _handed_out(cell, graded, answered) for cell in notebook.source_cells}
        known = set(left)
        texts = self._texts(about["assignment"], about["notebook"])
        cells: list[NotebookNode] = []
        for cell in nb.cells:
            mark = cell.metadata.get("nbgrader", {})
            name = mark.get("grade_id") if isinstance(mark, dict) else None
            cell.metadata = from_dict({})
            if cell.cell_type != "code" and cell.source not in texts:
                cell = new_markdown_cell(_as_typed(cell.source))
            if not isinstance(name, str) or name not in known:
                cells.append(cell)  # a text, or a cell of the learner's own
            elif name in answered and name in left and cell.cell_type == left[name].cell_type:
                cells.append(left.pop(name))
                cells[-1].source = cell.source
                cells += [left.pop(check)] if (check := f"check-{name}") in left else []
        # What the learner deleted: first the answers, as they were handed out, then their checks.
        nb.cells = cells + sorted(left.values(), key=lambda cell: cell.metadata.nbgrader.grade)
        nb.nbformat_minor = 5  # Colab saves an older one, without ids
        for i, cell in enumerate(nb.cells):
            cell.id = f"cell-{i}"
        return nb, resources

    def _texts(self, assignment: str, notebook: str) -> set[str]:
        """The texts that were handed out."""
        folders = self.parent.parent.coursedir  # of the exporter's converter
        folder = Path(folders.format_path(folders.source_directory, ".", assignment))
        cells = nbformat.read(folder / f"{notebook}.ipynb", as_version=4).cells
        return {cell.source for cell in cells if cell.cell_type == "markdown"}


def _as_typed(text: str) -> str:
    """A fence that the text cannot close."""
    fence = "`" * max([3, *(len(found) + 1 for found in re.findall("`+", text))])
    return f"{fence}text\n{text}\n{fence}"


def _handed_out(cell: Any, graded: dict[str, float], answered: set[str]) -> NotebookNode:
    """A marked cell as the gradebook knows it."""
    mark = {
        "schema_version": 3,
        "grade_id": cell.name,
        "grade": cell.name in graded,
        "solution": cell.name in answered,
        "locked": cell.locked,
        "task": False,
    }
    if cell.name in graded:
        mark["points"] = graded[cell.name]
    new_cell = new_code_cell if cell.cell_type == "code" else new_markdown_cell
    return new_cell(cell.source, metadata={"nbgrader": mark})


@dataclass
class Step:
    """A code cell: something to run, or an exercise to check on fresh problems.

    ``said`` is what the worker said of it; ``None`` where it never got there.
    """

    cell: NotebookNode
    exercise: Exercise | None = None
    problems: list[tuple] = field(default_factory=list)
    said: Any = None
    left_out: bool = False

    def request(self) -> dict:
        """For the worker."""
        if self.left_out:
            return {"run": ""}
        if self.exercise is None:
            return {"run": self.cell.source}
        return {"check": self.exercise.name, "problems": [encode_problem(p) for p in self.problems]}


class GradeApart(nbgrader.NbGraderPreprocessor):
    """In the place of nbgrader's ``Execute``: runs the submission inside walls, decides outside of them.

    A cell that kills the worker, or that cannot be stopped, is left out and the rest is run once more,
    so it costs its learner nothing but that cell.
    """

    isolation = Enum(KINDS, "bubblewrap", help="the walls around a submission").tag(config=True)
    image = Unicode(IMAGE, help="the container image for podman and docker").tag(config=True)
    cell_seconds = Float(20.0, help="a cell of a submission is stopped when it has computed for so long").tag(
        config=True
    )
    seconds = Float(180.0, help="a whole submission is stopped after this time by the clock").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """See the class."""
        if missing := why_not(self.isolation, self.image):
            raise RuntimeError(f"nothing was graded, for want of isolation: {missing}. See docs/teaching.md")
        steps = [_step(cell) for cell in nb.cells if cell.cell_type == "code"]
        steps = [step for step in steps if step is not None]
        end = time.monotonic() + self.seconds
        for _ in range(MOST_RUNS):
            lost = self._run(steps, end)
            if lost is None or time.monotonic() >= end:
                break
            steps[lost].left_out = True
        for step in steps:
            _write(step)
        return nb, resources

    def _run(self, steps: list[Step], end: float) -> int | None:
        """Run all steps; the number of the one that the worker did not survive, if any."""
        request = {"steps": [step.request() for step in steps], "seconds": self.cell_seconds}
        name = f"mha-lab-{secrets.token_hex(8)}"
        worker = subprocess.Popen(
            command(self.isolation, self.image, name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        begun, silence = 0, PATIENCE * max(self.cell_seconds, SECONDS) + SLACK
        try:
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.write(json.dumps(request).encode())
                worker.stdin.close()
            for line in _lines(worker.stdout.fileno(), end, silence):
                if line.get("end"):
                    return None
                i = line.get("step")
                if type(i) is not int or not begun <= i < len(steps):
                    break  # not our worker's words
                begun = i
                if not steps[i].left_out and steps[i].said is None:
                    steps[i].said = line.get("outputs" if steps[i].exercise is None else "messages")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            worker.stdout.close()
            tear_down(self.isolation, name)
        return begun if steps else None


def _lines(pipe: int, end: float, silence: float) -> Iterator[dict]:
    """JSON objects from a pipe, until it closes, falls silent, says too much, or the time is over."""
    parts, read_in_all = [], 0
    while read_in_all < MOST_BYTES:
        left = min(end - time.monotonic(), silence)
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return
        chunk = os.read(pipe, 1 << 20)
        if not chunk:
            return
        read_in_all += len(chunk)
        parts.append(chunk)
        if b"\n" not in chunk:
            continue
        *lines, rest = b"".join(parts).split(b"\n")
        parts = [rest]
        for line in lines:
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                return
            if not isinstance(said, dict):
                return
            yield said


def _step(cell: NotebookNode) -> Step | None:
    """What to do with a code cell; its old outputs go."""
    cell.outputs, cell.execution_count = [], None
    mark = cell.metadata.get("nbgrader", {})
    if not mark.get("grade") or mark.get("solution"):
        return Step(cell)
    name = mark["grade_id"].removeprefix("check-")
    if name not in names():
        why = "GradeApart grades the exercises of mha_lab only; give these points by hand"
        cell.outputs = [new_output("error", ename="NotGraded", evalue=why, traceback=[f"NotGraded: {why}"])]
        return None
    exercise = replace(find(name), points=mark["points"])  # what the teacher made it worth
    return Step(cell, exercise, list(exercise.problems(Draw())))


def _write(step: Step) -> None:
    """The cell's outputs, and for an exercise the points, from what was said of it."""
    if step.exercise is None:
        step.cell.outputs = _outputs(step.said)
        if step.left_out or step.said is None:
            text = "This cell ended or blocked Python, and was left out.\n"
            text = text if step.left_out else "The time was over before this cell.\n"
            step.cell.outputs.append(new_output("stream", name="stdout", text=text))
        return
    report, earned = _judge(step)
    page = report._repr_html_().replace(
        f'href="{step.exercise.chapter}.ipynb#', 'href="#'
    )  # feedback is one page
    data = {"text/plain": str(report), "text/html": page}
    step.cell.outputs = [
        new_output("display_data", data=data),
        new_output("execute_result", data={"text/plain": repr(float(earned))}, execution_count=1),
    ]


def _judge(step: Step) -> tuple[Report, int | float]:
    exercise, said = step.exercise, step.said
    nothing = f"{exercise.name}: {{}}, 0 of {points(exercise.points)}"
    if step.left_out:
        return Report(nothing.format("your function ended or blocked Python")), 0
    if not isinstance(said, list):
        return Report(nothing.format("the time was over before this check")), 0
    if not said:
        return Report(nothing.format(f"there is no function {exercise.name}")), 0
    said = (said + [None] * len(step.problems))[: len(step.problems)]
    finding = verdict(exercise, step.problems, [read(message) for message in said])
    passed = finding is not None and finding.slug is None
    return make(exercise, finding), exercise.points if passed else 0


def _outputs(said: Any) -> list[NotebookNode]:
    """The outputs that a worker claims, as far as they are text or a picture."""
    outputs = []
    for output in said if isinstance(said, list) else []:
        if not isinstance(output, dict):
            continue
        if isinstance(text := output.get("stream"), str):
            outputs.append(new_output("stream", name="stdout", text=text))
        shown = output.get("display")
        if isinstance(shown, dict):
            data = {kind: shown[kind] for kind in ("text/plain", "image/png") if type(shown.get(kind)) is str}
            if re.fullmatch(r"[A-Za-z0-9+/=\s]*", data.get("image/png", "")):
                outputs.append(new_output("display_data", data=data))
    return outputs
