"""A course for nbgrader from the chapters: ``python -m tools.classroom layout FOLDER``.

``layout`` writes the configuration, copies each chapter to ``source/`` as an assignment, and makes the
release version. ``collect`` takes submissions from nbgrader's exchange. ``grade`` autogrades one
chapter for everybody, writes feedback and ``grades.csv``.

nbgrader never sees a folder that a student has filled: from each, one file is copied into ``checked/``, and
each submission is graded in a separate process with a time limit.
"""

import argparse
import re
import sys
import warnings
from pathlib import Path

from tools.collect import collect
from tools.course import Stop, settings
from tools.grade import grade

CHAPTERS = Path(__file__).parents[1] / "notebooks"
CHAPTER_LINK = re.compile(r"\]\((\.\./\d\d_\w+/\d\d_\w+\.ipynb)")
CONFIGURATION = '''"""nbgrader's settings for this course; `nbgrader --help-all` lists what else there is."""

from mha_lab.grading.nbgrader import configure

c = get_config()
configure(c)

c.CourseDirectory.course_id = "attention"
# The sandbox of a submission: "bubblewrap" (Linux), "podman" or "docker".
c.GradeApart.isolation = "bubblewrap"
# Where students fetch and submit, if not through a learning platform:
# c.Exchange.root = "/srv/nbgrader/exchange"
'''


def assignment(chapter: str) -> str:
    """A chapter's file with links for its new place: each assignment has a folder of its own."""
    chapter = re.sub(r"\]\((\d\d_\w+)\.ipynb", r"](../\1/\1.ipynb", chapter)
    return re.sub(r"\[(\w+)\]\(\.\./\w+\.md\)", r"\1", chapter)


def layout(course: Path) -> int:
    """Create the folder, or bring an existing one up to date with the chapters."""
    course.mkdir(parents=True, exist_ok=True)
    configuration = course / "nbgrader_config.py"
    if not configuration.exists():
        configuration.write_text(CONFIGURATION, encoding="utf-8")
    api = settings(course)
    for chapter in sorted(CHAPTERS.glob("*.ipynb")):
        source = course / "source" / chapter.stem / chapter.name
        source.parent.mkdir(parents=True, exist_ok=True)
        before = source.read_bytes() if source.exists() else None
        source.write_text(assignment(chapter.read_text(encoding="utf-8")), encoding="utf-8")
        done = api.generate_assignment(chapter.stem, force=True)
        if not done["success"]:
            if before is not None:
                source.write_bytes(before)
            raise Stop(
                f"nbgrader could not make release/{chapter.stem}:\n{done.get('log') or done.get('error')}"
            )
        print(f"release/{chapter.stem}", flush=True)
    print(
        f"Hand out what is under {course / 'release'}; collect into {course / 'submitted'}/STUDENT/CHAPTER/."
    )
    return 0


def _chapter(given: str) -> str:
    if not given:
        raise Stop("say which chapter: CHAPTER=03_splitting_heads")
    if not re.fullmatch(r"\w+", given):
        raise Stop(f"{given!a} is not the name of a chapter")
    return given


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("layout", "collect", "grade"):
        command = commands.add_parser(name)
        command.add_argument("course")
        if name != "layout":
            command.add_argument("chapter", help="such as 03_splitting_heads")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of nbgrader's own code
    for stream in (sys.stdout, sys.stderr):  # a name may have a character that the terminal cannot show
        stream.reconfigure(errors="backslashreplace")
    try:
        if not given.course:
            raise Stop("say which folder: COURSE=../attention")
        course = Path(given.course).resolve()
        if given.command == "layout":
            return layout(course)
        return {"collect": collect, "grade": grade}[given.command](course, _chapter(given.chapter))
    except Stop as reason:
        print(reason, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; what was graded stays", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
