"""What is said of a submission that nbgrader could not grade."""

import shutil

import pytest

from mha_course.grading import intake
from mha_course.grading.submission import _done

pytestmark = pytest.mark.grading
FULL = "OSError: [Errno 28] No space left on device"
ABOVE = "nbgrader.converters.base.NbGraderException: Please see the the above traceback for details"
SAID = [
    (
        {"error": f"Traceback\n{ABOVE}", "log": f"[ERROR] failed\nTraceback\n  x = 1\n{FULL}\n[ERROR] done"},
        intake.FULL,
    ),
    (
        {"error": f"Traceback\n{ABOVE}", "log": "sqlite3.OperationalError: database or disk is full"},
        intake.FULL,
    ),
    ({"error": f"Traceback\n{ABOVE}"}, ABOVE),
    ({"log": ""}, "nbgrader says nothing"),
]


@pytest.mark.parametrize(("result", "reason"), SAID, ids=range(len(SAID)))
def test_the_cause_is_said_and_not_where_to_look_for_it(result, reason):
    with pytest.raises(intake.Refused) as refused:
        _done({"success": False} | result)
    assert str(refused.value) == reason


def test_a_full_disk_is_named_even_if_nbgrader_could_not_write_that(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**30, 2**30 - 1, 1))
    with pytest.raises(intake.Refused, match="the disk is full"):
        _done({"success": False, "log": "[ERROR] Please see the the above traceback for details"})
