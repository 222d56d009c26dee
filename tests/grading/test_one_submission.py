"""One submission, graded in its sandbox: what ``make test`` keeps of the tests of a class."""

import subprocess
import sys

import pytest
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.v4 import new_code_cell, new_notebook

from mha_course.exercises import find
from mha_course.grading.__main__ import CONFIGURATION
from mha_course.grading.nbgrader import GradeApart
from tests.grading.test_round import needs_walls

SPLIT = "def split_heads(x, num_heads):\n    return x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)"
MERGE = "def merge_heads(x):\n    return x.flatten(-2)  # without transpose"


@needs_walls
@pytest.mark.unchecked  # a wrong answer passes wrong arguments
def test_a_right_and_a_wrong_answer():
    checks = [
        new_code_cell(
            f"check({name})",
            metadata={"nbgrader": {"grade": True, "grade_id": f"check-{name}", "points": find(name).points}},
        )
        for name in ("split_heads", "merge_heads")
    ]
    notebook = new_notebook(cells=[*map(new_code_cell, [SPLIT, MERGE]), *checks])
    GradeApart(isolation="bubblewrap").preprocess(notebook, ResourcesDict())
    earned = [float(check.outputs[-1].data["text/plain"]) for check in checks]
    assert earned == [find("split_heads").points, 0]
    assert "split_heads is right" in checks[0].outputs[0].data["text/plain"]


def test_a_new_course_has_settings_that_the_grader_takes(tmp_path):
    """Also with all that this package has installed for other programs of Jupyter."""
    (tmp_path / "nbgrader_config.py").write_text(CONFIGURATION)
    load = (
        "import sys; from pathlib import Path; from mha_course.grading.course import settings; "
        "settings(Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", load, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
