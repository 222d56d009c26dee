"""What a teacher adds to a chapter and grades by hand: a text to write, and a task."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook

from mha_course.grading.__main__ import CONFIGURATION
from mha_course.grading.course import settings
from tests.grading.test_points import solved
from tests.grading.test_round import needs_walls, run

pytestmark = [pytest.mark.grading, needs_walls]
NAME = "own"


def cell(new, source, name, **marks):
    plain = {"schema_version": 3, "grade": False, "solution": False, "locked": False, "task": False}
    return new(source, metadata={"nbgrader": plain | {"grade_id": name} | marks})


def assignment():
    """One exercise of a chapter, a text to write (3 points), and a task with a cell of its own (2 points)."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [
        cell(new_code_cell, "def split_heads(x, num_heads): ...", "split_heads", solution=True),
        cell(new_code_cell, "", "check-split_heads", grade=True, locked=True, points=1),
        cell(new_markdown_cell, "Write here.", "essay", grade=True, solution=True, points=3),
        cell(new_markdown_cell, "Draw a heatmap below.", "draw", task=True, locked=True, points=2),
        new_code_cell("# your heatmap"),
    ]
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def test_points_by_hand_stay(tmp_path, monkeypatch):
    """Cells and points survive grading and a second submission; the exercise is graded each time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nbgrader_config.py").write_text(CONFIGURATION)
    source = tmp_path / "source" / NAME / f"{NAME}.ipynb"
    source.parent.mkdir(parents=True)
    nbformat.write(assignment(), source)
    assert settings(tmp_path).generate_assignment(NAME)["success"]
    released = nbformat.read(tmp_path / "release" / NAME / f"{NAME}.ipynb", as_version=4)
    handed_in = tmp_path / "submitted" / "ada" / NAME / f"{NAME}.ipynb"
    handed_in.parent.mkdir(parents=True)

    def submit(answer, essay):
        for cell, text in zip(released.cells, (answer, None, essay, "My own task.", "6 * 7"), strict=True):
            cell.source = cell.source if text is None else text
        nbformat.write(released, handed_in)
        done = run("grade", tmp_path, NAME)
        assert done.returncode == 0, done.stderr
        with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
            notebook = gradebook.find_submission_notebook(NAME, NAME, "ada")
            return {grade.name: (grade.score, grade.needs_manual_grade) for grade in notebook.grades}

    first = submit("def split_heads(x, num_heads):\n    return x", "Heads are slices.")
    assert first == {"check-split_heads": (0, False), "essay": (0, True), "draw": (0, True)}
    graded = nbformat.read(tmp_path / "autograded" / "ada" / NAME / f"{NAME}.ipynb", as_version=4)
    texts = [cell.source for cell in graded.cells]
    assert any("Heads are slices." in text for text in texts)
    assert texts.count("Draw a heatmap below.") == 1  # the task as the teacher wrote it
    assert "6 * 7" in texts
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        for name, points in {"essay": 3, "draw": 2}.items():
            grade = gradebook.find_grade(name, NAME, NAME, "ada")
            grade.manual_score, grade.needs_manual_grade = points, False
        gradebook.db.commit()
    again = submit(solved("split_heads"), "Heads are slices of the columns.")
    earned = {name: points for name, (points, _) in again.items()}
    assert earned == {"check-split_heads": 1, "essay": 3, "draw": 2}
    (line,) = (tmp_path / "grades.csv").read_text().splitlines()[1:]
    assert line.endswith(',1.0,"right",3.0,"by hand",2.0,"by hand",6.0,0.0,6.0,6.0')

    # Points for an exercise that is wrong, typed into Formgrader's field: they stay, too.
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        gradebook.find_grade("check-split_heads", NAME, NAME, "ada").manual_score = 0.5
        gradebook.find_comment("split_heads", NAME, NAME, "ada").manual_comment = "Well begun."
        gradebook.db.commit()
    # Nothing was handed in: the page is written again, and nothing is graded.
    page = tmp_path / "feedback" / "ada" / NAME / f"{NAME}.html"
    line, kept = (
        "points or comments by hand, and a new page of feedback: ada",
        "graded: 0, kept from before: 1,",
    )
    for new in (True, False):
        done = run("grade", tmp_path, NAME)
        assert (line in done.stdout, kept in done.stdout) == (new, True)
        assert "Content-Security-Policy" in page.read_text()
        assert "(Score: 0.5 / 1.0)" in page.read_text()
        assert "Well begun." in page.read_text()
    wrong = submit("def split_heads(x, num_heads):\n    return x", "Heads are slices.")
    assert wrong["check-split_heads"][0] == 0.5  # nbgrader asks to look at it again
    (line,) = (tmp_path / "grades.csv").read_text().splitlines()[1:]
    assert ',0.5,"not-cut; by hand",' in line
    assert re.search(r"(?m)^ada +x\* +3\* +2\* +5\.5", (tmp_path / "summary.txt").read_text())
