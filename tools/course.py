"""A course's folder: nbgrader with its settings, and what is remembered beside the gradebook."""

import hashlib
import json
import os
import sys
from functools import cache
from pathlib import Path

from nbgrader import preprocessors
from nbgrader.apps import NbGrader, NbGraderAPI
from nbgrader.converters import Autograde

from mha_lab.classroom import grading

RECEIVED = "received.json"  # when a submission came through the exchange, by the system's clock


class Stop(Exception):
    """One sentence that says why nothing is done."""


@cache
def settings(course: Path) -> NbGraderAPI:
    """nbgrader with the course's settings, if they hold the walls.

    Raises:
        Stop: the settings cannot be loaded, or submissions would run without our preprocessors.
    """
    if not (course / "nbgrader_config.py").is_file():
        raise Stop(
            f"there is no nbgrader_config.py in {course}; make it with: make classroom COURSE={course}"
        )
    os.chdir(course)
    os.environ["TRAITLETS_APPLICATION_RAISE_CONFIG_FILE_ERROR"] = "1"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    app = NbGrader()
    try:
        app.load_config_file()
    except Exception as error:
        raise Stop(f"{course}/nbgrader_config.py cannot be loaded: {error!r}") from None
    api = NbGraderAPI(config=app.config)
    api.log.setLevel("WARNING")
    used = Autograde(coursedir=api.coursedir, parent=api)
    first, then = list(used.sanitize_preprocessors), list(used.autograde_preprocessors)
    if (
        grading.OwnCells not in first
        or grading.GradeApart not in then
        or preprocessors.Execute in first + then
    ):
        raise Stop(
            f"{course}/nbgrader_config.py does not call configure(c) of mha_lab.classroom.grading, or "
            "undoes it: submissions would run with your rights. Nothing was done"
        )
    folders = Path(api.coursedir.root).resolve(), Path(api.coursedir.directory_structure)
    if folders != (course, Path("{nbgrader_step}", "{student_id}", "{assignment_id}")):
        raise Stop(
            f"{course}/nbgrader_config.py sets another root or directory_structure than nbgrader's own"
        )
    return api


def digest(data: bytes) -> str:
    """By which a file is known again."""
    return hashlib.sha256(data).hexdigest()


def received(course: Path) -> dict[str, dict[str, list[str]]]:
    """``{chapter: {student: [when, digest of the file]}}``."""
    file = course / RECEIVED
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
