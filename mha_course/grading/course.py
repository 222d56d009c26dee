"""A course's folder: nbgrader with its settings, and the records beside the gradebook."""

import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from nbgrader.apps import NbGrader, NbGraderAPI
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from traitlets import TraitError

from mha_course.grading import nbgrader as grading

# Settings of nbgrader that must not change.
OURS = [f"{step}_directory" for step in ("source", "release", "submitted", "autograded", "feedback")]
OURS += ["directory_structure", "student_id", "student_id_exclude", "notebook_id"]
# Settings that a course may have (``None``: all of this part). Any other may let a submission out of its
# sandbox, or give points for nothing.
ALLOWED = {
    "Application": None,
    "AssignLatePenalties": None,
    "Autograde": {"sanitize_preprocessors", "autograde_preprocessors", "create_student"},
    "ClearHiddenTests": None,
    "ClearSolutions": None,
    "CourseDirectory": None,
    "GenerateAssignment": {"preprocessors", "create_assignment"},
    "GradeApart": {"isolation", "image", "cell_seconds", "seconds"},
    "IncludeHeaderFooter": None,
    "LimitOutput": {"max_lines", "max_traceback"},
    "NbGrader": None,
    "TemplateExporter": {"extra_template_basedirs"},  # set by what this package installs for nbconvert
}
RECEIVED = "received.json"  # when a submission arrived in the exchange, by the system's clock
SUBMISSION_SECRET = "submission_secret.txt"  # in the exchange; `nbgrader release_feedback` needs it
SECRET = ".secret"  # from which the problems of a submission are drawn
PATIENCE = 15  # seconds that the processes of a run that was killed may take to end


class Stop(Exception):
    """Nothing is done; the message says why, in one sentence."""


@cache
def settings(course: Path) -> NbGraderAPI:
    """nbgrader with the course's settings, if they keep the sandbox.

    Raises:
        Stop: the settings cannot be loaded, or submissions would run without our preprocessors.
    """
    if set(str(course)) & set("[]*?{}"):
        raise Stop(f"nbgrader cannot work in a folder with one of []*?{{}} in its path: {course}")
    if not (course / "nbgrader_config.py").is_file():
        raise Stop(
            f"there is no nbgrader_config.py in {course}; make it with: make classroom COURSE={course}"
        )
    os.chdir(course)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    app = NbGrader()
    app.raise_config_file_errors = True
    try:
        app.load_config_file()
    except (Exception, SystemExit) as error:
        raise Stop(f"{course}/nbgrader_config.py cannot be loaded: {error!r}") from None
    for part, chosen in app.config.items():
        allowed = None if part.startswith("Exchange") else ALLOWED.get(part, set())
        if allowed is not None and (strange := sorted(set(chosen) - allowed)):
            raise Stop(
                f"{course}/nbgrader_config.py sets c.{part}.{strange[0]}: delete that line, or grade this "
                "course with nbgrader itself, without a sandbox"
            )
    try:
        grading.GradeApart(config=app.config)
        api = NbGraderAPI(config=app.config)
        api.log.setLevel("WARNING")
        used = Autograde(coursedir=api.coursedir, parent=api)
    except (TraitError, ValueError) as error:
        raise Stop(f"{course}/nbgrader_config.py: {' '.join(str(error).split())}") from None
    if not grading.holds(list(used.sanitize_preprocessors), list(used.autograde_preprocessors)):
        raise Stop(
            f"{course}/nbgrader_config.py does not call configure(c) of mha_course.grading.nbgrader, or "
            "changes its preprocessors: submissions would run with your rights. Nothing was done"
        )
    if Path(api.coursedir.root).resolve() != course:
        raise Stop(f"{course}/nbgrader_config.py sets another root than its own folder")
    usual = CourseDirectory()
    for setting in OURS:
        if getattr(api.coursedir, setting) != getattr(usual, setting):
            raise Stop(f"{course}/nbgrader_config.py sets c.CourseDirectory.{setting}; leave it as it was")
    return api


@contextmanager
def locked(course: Path) -> Iterator[None]:
    """Until the end, nobody else collects or grades in this course."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with (course / ".lock").open("w") as file:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    said = f"somebody is collecting or grading in {course}; wait until that is done"
                    raise Stop(said) from None
                time.sleep(0.2)
        yield


def write(file: Path, data: bytes) -> None:
    """The whole content or nothing, whatever happens meanwhile."""
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(data)
    part.replace(file)


def digest(data: bytes) -> str:
    """The hash by which a file is recognised."""
    return hashlib.sha256(data).hexdigest()


def secret(course: Path) -> bytes:
    """Random bytes that stay the same for this course."""
    file = course / SECRET
    if not file.exists():
        write(file, secrets.token_bytes(32))
        file.chmod(0o600)
    return file.read_bytes()


def received(course: Path) -> dict[str, dict[str, list[str]]]:
    """``{chapter: {student: [when, digest of the file]}}``.

    Then ``late`` if a platform says so, or the submission's secret if it came from the exchange.
    """
    file = course / RECEIVED
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except ValueError:
        raise Stop(
            f"{file} cannot be read: delete it, and submissions from the exchange have no time"
        ) from None
