"""A course for nbgrader from the chapters: ``python -m mha_course.grading layout FOLDER``.

``layout`` writes the configuration, copies each chapter to ``source/`` as an assignment, and makes the
release version. ``collect`` takes submissions from nbgrader's exchange, or from a zip file of Moodle or
Canvas. ``grade`` autogrades one chapter for everybody, and writes feedback, tables and a report. ``report``
writes only the report, from what was graded.

nbgrader never sees a folder that a student has filled: from each, one file is copied into ``checked/``, and
each submission is graded in a separate process with a time limit.
"""

import argparse
import re
import sys
import warnings
from pathlib import Path

from mha_course.grading.collect import collect, collect_zip
from mha_course.grading.course import Stop, settings
from mha_course.grading.grade import grade, report_on

TO_CHAPTER = re.compile(r"\[([^\[\]]+)\]\(\d\d_\w+\.ipynb(?:#[^)\s]*)?\)")
CHAPTER_LINK = re.compile(r"\]\((\.\./\d\d_\w+/\d\d_\w+\.ipynb)")
CONFIGURATION = '''"""nbgrader's settings for this course; `nbgrader --help-all` lists what else there is."""

from mha_course.grading.nbgrader import configure

c = get_config()
configure(c)

c.CourseDirectory.course_id = "attention"
# The sandbox of a submission: "bubblewrap" (Linux), "podman" or "docker".
c.GradeApart.isolation = "bubblewrap"
# Where students fetch and submit, if not through a learning platform:
# c.Exchange.root = "/srv/nbgrader/exchange"
'''


def assignment(chapter: str, alone: bool = False) -> str:
    """A chapter's file with links for its new place: each assignment has a folder of its own.

    Handed out alone, it has text in the place of links to other chapters.
    """
    if alone:
        chapter = TO_CHAPTER.sub(r"\1", chapter)
    chapter = re.sub(r"\]\((\d\d_\w+)\.ipynb", r"](../\1/\1.ipynb", chapter)
    return re.sub(r"\[(\w+)\]\(\.\./\w+\.md\)", r"\1", chapter)


def layout(course: Path, chapters: Path, only: str = "") -> int:
    """Create the folder, or bring an existing one up to date with the ``chapters``, or ``only`` one."""
    if not (found := sorted(chapters.glob("[0-9][0-9]_*.ipynb"))):
        raise Stop(f"there is no chapter in {chapters}: say where they are with --chapters")
    if only and len(found := [path for path in found if path.name.startswith(only)]) != 1:
        raise Stop(f"{only!a} is not one of the chapters in {chapters}: say, for example, CHAPTER=03")
    course.mkdir(parents=True, exist_ok=True)
    configuration = course / "nbgrader_config.py"
    if not configuration.exists():
        configuration.write_text(CONFIGURATION, encoding="utf-8")
    api = settings(course)
    for chapter in found:
        source = course / "source" / chapter.stem / chapter.name
        source.parent.mkdir(parents=True, exist_ok=True)
        before = source.read_bytes() if source.exists() else None
        text = assignment(chapter.read_text(encoding="utf-8"), alone=bool(only))
        source.write_text(text, encoding="utf-8")
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


def _chapter(course: Path, given: str) -> str:
    """The assignment whose name is or begins with what was given."""
    if not given:
        raise Stop("say which chapter: CHAPTER=03")
    names = sorted(path.parent.name for path in (course / "source").glob("*/*.ipynb"))
    found = [name for name in names if name == given] or [name for name in names if name.startswith(given)]
    if len(found) != 1:
        raise Stop(f"{given!a} is not a chapter of {course}; its chapters are: {', '.join(names) or 'none'}")
    return found[0]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("layout", "collect", "grade", "report"):
        command = commands.add_parser(name)
        command.add_argument("course")
        if name == "layout":
            command.add_argument(
                "--chapters", type=Path, default=Path("notebooks"), help="the notebooks' folder"
            )
            command.add_argument("chapter", nargs="?", default="", help="such as 03; all if none")
        else:
            command.add_argument("chapter", help="such as 03")
            if name == "grade":
                command.add_argument("--jobs", type=int, default=0, help="submissions at a time")
            elif name == "collect":
                command.add_argument("--zip", default="", help="a zip file of Moodle or Canvas")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of nbgrader's own code
    for stream in (sys.stdout, sys.stderr):  # a name may have a character that the terminal cannot show
        stream.reconfigure(errors="backslashreplace")
    try:
        if not given.course:
            raise Stop("say which folder: COURSE=../attention")
        course = Path(given.course).resolve()
        file = Path(given.zip).resolve() if getattr(given, "zip", "") else None  # before nbgrader's chdir
        if given.command == "layout":
            return layout(course, given.chapters.resolve(), given.chapter)
        settings(course)  # says if this is no course
        chapter = _chapter(course, given.chapter)
        if given.command == "grade":
            return grade(course, chapter, given.jobs)
        if given.command == "report":
            return report_on(course, chapter)
        return collect_zip(course, chapter, file) if file else collect(course, chapter)
    except Stop as reason:
        print(reason, file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        print(stopped.args[0] if stopped.args else "stopped; run the same command again", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
