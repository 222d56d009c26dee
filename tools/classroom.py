"""A course for nbgrader from the chapters: ``python -m tools.classroom layout FOLDER``.

``layout`` writes the configuration, copies each chapter to ``source/`` as an assignment, and makes the
release version. ``grade`` autogrades one chapter for everybody, writes feedback and ``grades.csv``. Both
only call nbgrader, with its configuration errors made fatal: with its own settings it would run
submissions without any isolation.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

CHAPTERS = Path(__file__).parents[1] / "notebooks"
CHAPTER_LINK = re.compile(r"\]\((\.\./\d\d_\w+/\d\d_\w+\.ipynb)")
CONFIGURATION = '''"""nbgrader's settings for this course; `nbgrader --help-all` lists what else there is."""

from mha_lab.classroom.grading import configure

c = get_config()
configure(c)

c.CourseDirectory.course_id = "attention"
# The walls around a submission: "bubblewrap" (Linux), "podman" or "docker".
c.GradeApart.isolation = "bubblewrap"
# Where students fetch and submit, if not through a learning platform:
# c.Exchange.root = "/srv/nbgrader/exchange"
'''


RELEASE = """
import sys
from nbgrader.apps import NbGrader, NbGraderAPI

app = NbGrader()
app.load_config_file()
for chapter in sys.argv[1:]:
    done = NbGraderAPI(config=app.config).generate_assignment(chapter, force=True)
    print(f"release/{chapter}" if done["success"] else done["log"], flush=True)
    if not done["success"]:
        sys.exit(1)
"""


def nbgrader(course: Path, *arguments: str) -> int:
    """Run one of nbgrader's commands in the course's folder."""
    return python(course, "-m", "nbgrader", *arguments, "--log-level=WARN")


def python(course: Path, *arguments: str) -> int:
    """Run this Python in the course's folder, with what nbgrader wants around it."""
    environment = dict(os.environ)
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")
    environment["TRAITLETS_APPLICATION_RAISE_CONFIG_FILE_ERROR"] = "1"
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=course, env=environment, check=False).returncode


def assignment(chapter: str) -> str:
    """A chapter's file with links for its new place: each assignment has a folder of its own."""
    chapter = re.sub(r"\]\((\d\d_\w+)\.ipynb", r"](../\1/\1.ipynb", chapter)
    return re.sub(r"\[(\w+)\]\(\.\./\w+\.md\)", r"\1", chapter)


def layout(course: Path) -> int:
    """Lay the folder out, or bring an existing one up to date with the chapters."""
    course.mkdir(parents=True, exist_ok=True)
    configuration = course / "nbgrader_config.py"
    if not configuration.exists():
        configuration.write_text(CONFIGURATION, encoding="utf-8")
    chapters = sorted(CHAPTERS.glob("*.ipynb"))
    for chapter in chapters:
        source = course / "source" / chapter.stem / chapter.name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(assignment(chapter.read_text(encoding="utf-8")), encoding="utf-8")
    # All in one process: nbgrader needs some seconds to start, and a moment for a chapter.
    if python(course, "-c", RELEASE, *(chapter.stem for chapter in chapters)):
        return 1
    print(
        f"Hand out what is under {course / 'release'}; collect into {course / 'submitted'}/STUDENT/CHAPTER/."
    )
    return 0


def grade(course: Path, chapter: str) -> int:
    """Points, feedback and a table. A submission that cannot be read does not stop the others."""
    failed = nbgrader(course, "autograde", chapter, "--force")
    failed |= nbgrader(course, "generate_feedback", chapter, "--force")
    failed |= nbgrader(course, "export", "--to", "grades.csv")
    print((course / "grades.csv").read_text(encoding="utf-8"))
    print(f"feedback: {course / 'feedback'}/STUDENT/{chapter}/{chapter}.html")
    if failed:
        print("not every submission was graded; nbgrader's words are above", file=sys.stderr)
    return failed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("layout", "grade"):
        command = commands.add_parser(name)
        command.add_argument("course", type=Path)
        if name == "grade":
            command.add_argument("chapter", help="such as 03_splitting_heads")
    given = parser.parse_args(arguments)
    if given.command == "layout":
        return layout(given.course.resolve())
    return grade(given.course.resolve(), given.chapter)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
