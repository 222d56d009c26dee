"""A real hub with two students, as in hub/load_test.py: lesson, grading, feedback and three faults."""

import subprocess

import pytest

from tests.hub.running import ADA, BOB, FOLDER, TEACHER, needs_hub, running
from tests.notebooks.chapters import ROOT

pytestmark = [pytest.mark.hub, needs_hub]


@pytest.fixture
def hub(tmp_path):
    with running(tmp_path, ADA, BOB) as started:
        yield started


def test_two_students_learn_submit_and_get_their_feedback_whatever_is_killed(hub):
    python = str(hub.folder / "env" / "bin" / "python")
    program = [python, str(ROOT / "hub" / "load_test.py"), "--students=2", "--arrive=1", "--faults"]
    program += [f"--hub={FOLDER}", f"--url={hub.url}", f"--teacher={TEACHER}"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=3600)
    print(done.stdout)  # hub/README.md has these seconds: pytest -s
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "2 of 2 students ran 01 and 03 to the end and submitted",
        "of others' files, 0 could be read",
        "failed: 0",
        "the hub is killed: 0 of 2 cells lost",
        "the proxy is killed: 0 of 2 cells lost",
        "its kernel was ended; 0 of 1 cells of others lost; its server gave it a new kernel",
    ):
        assert line in done.stdout
