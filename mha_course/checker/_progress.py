"""Which exercises are solved: one small file on the learner's own machine, and the table that shows it.

The file is first written beside its place, under a name that only one kernel can have at a time, and then
replaces the old one. Nothing here stops ``check``: if the file cannot be read or written, one line says why.
It is never sent anywhere. ``MHA_LAB_PROGRESS=0`` switches all of it off.
"""

import html
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path

import mha_lab
from mha_course.checker.report import Report, link, points, present
from mha_course.exercises import Exercise, ordered

VARIABLE = "MHA_LAB_PROGRESS"
# The variable that names the folder of a user's data, and the place in the home folder if it is not set.
FOLDERS = {"win32": ("APPDATA", "AppData/Roaming"), "darwin": ("", "Library/Application Support")}
ELSEWHERE = ("XDG_DATA_HOME", ".local/share")
PATIENCE = 1.0  # seconds to wait for another kernel that is writing
ABANDONED = 10.0  # seconds after which the kernel that began to write is not there any more
PROBLEMS = (OSError, ValueError, RuntimeError)  # RuntimeError: there is no home folder
OFF = "Progress is switched off ({variable}={value})."
KEPT = "Kept in {path}; progress(reset=True) forgets it. This is mha_lab {version}."
NOT_KEPT = "Your progress is not kept: {why}."
NOT_KEPT_BY = "Your progress is not kept: {why}. This is mha_lab {version}."
NOT_FORGOTTEN = "Your progress is not forgotten: {why}."
FORGOTTEN = "Forgotten: {count} solved exercise.", "Forgotten: {count} solved exercises."  # one, or several
NOTHING_FORGOTTEN = "Nothing was kept, so nothing is forgotten."
DELETED = "The damaged file is deleted."
DAMAGED = "{path} is damaged; progress(reset=True) deletes it"
BUSY = "another notebook is writing {path}"
SOLVED = "{solved} of {all} exercises solved, {earned:g} of {points}"
ALL_SOLVED = "You have solved all exercises."
NEXT = "Next: {name}, {points}"
BAR = 10  # letters
LEFT = "text-align: left"

_said: set[str] = set()  # so that a kernel says it once, and not after each right answer


@dataclass(frozen=True)
class Progress:
    """What is solved: the names of the exercises with the day of each, the points, and all that there are.

    The table has been shown already, so as the last value of a cell it shows nothing.
    """

    solved: dict[str, str]
    points: int | float
    possible: int | float

    def __repr__(self) -> str:
        return ""

    def _ipython_display_(self) -> None:
        pass


@dataclass(frozen=True)
class _Chapter:
    """A line of the table."""

    name: str
    points: int | float
    possible: int | float
    solved: tuple[str, ...]

    @property
    def title(self) -> str:
        """``03_splitting_heads`` as ``03 Splitting heads``."""
        number, _, words = self.name.partition("_")
        return f"{number} {words.replace('_', ' ').capitalize()}"

    @property
    def earned(self) -> str:
        return f"{self.points:g} of {points(self.possible)}"

    @property
    def bar(self) -> str:
        """Full only if all is solved, and empty only if nothing is."""
        full = max(int(BAR * self.points / self.possible), self.points > 0)
        return "#" * full + "." * (BAR - full)


@dataclass(frozen=True)
class _Table:
    """The solved exercises by chapter, what comes next, and where all this is kept."""

    headline: str
    chapters: tuple[_Chapter, ...]
    next: Exercise | None
    where: str

    def __str__(self) -> str:
        titles = max(len(chapter.title) for chapter in self.chapters)
        earned = max(len(chapter.earned) for chapter in self.chapters)
        lines = [self.headline, ""]
        for chapter in self.chapters:
            lines.append(f"{chapter.title:<{titles}}  {chapter.earned:<{earned}}  {chapter.bar}")
            indent = " " * 3
            solved = ", ".join(chapter.solved)
            lines += textwrap.wrap(solved, 79, initial_indent=indent, subsequent_indent=indent)
        lines += ["", self._next()]
        if self.next:
            lines.append(f'Read "{self.next.section}" in {self.next.chapter}.ipynb')
        return "\n".join([*lines, self.where])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heads = "".join(f'<th style="{LEFT}">{head}</th>' for head in ("Chapter", "Points", "", "Solved"))
        rows = "".join(self._row(chapter) for chapter in self.chapters)
        parts = [f"<strong>{html.escape(self.headline)}</strong>"]
        parts.append(f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>")
        lines = [html.escape(self._next())]
        if self.next:
            lines.append(f"Read {link(self.next.section, self.next.chapter)}")
        return f"<div>{''.join(parts)}{'<br>'.join([*lines, html.escape(self.where)])}</div>"

    def _next(self) -> str:
        if self.next is None:
            return ALL_SOLVED
        return NEXT.format(name=self.next.name, points=points(self.next.points))

    def _row(self, chapter: _Chapter) -> str:
        bar = f'<progress aria-hidden="true" value="{chapter.points}" max="{chapter.possible}"></progress>'
        cells = [f'<a href="{chapter.name}.ipynb">{html.escape(chapter.title)}</a>', chapter.earned, bar]
        cells.append(html.escape(", ".join(chapter.solved)))
        return "<tr>" + "".join(f'<td style="{LEFT}">{cell}</td>' for cell in cells) + "</tr>"


def progress(*, reset: bool = False) -> Progress:
    """Show the solved exercises, the points by chapter, and what comes next.

    What comes next is the first unsolved exercise, in the order of the chapters.

    Args:
        reset: forget all that is solved, and say how many exercises that were.

    Returns:
        a ``Progress``, with the numbers that are shown.
    """
    exercises = ordered()
    possible = sum(exercise.points for exercise in exercises)
    if _is_off():
        present(Report(OFF.format(variable=VARIABLE, value=os.environ[VARIABLE])))
        return Progress({}, 0, possible)
    if reset:
        present(Report(_forget()))
        return Progress({}, 0, possible)
    try:
        days = _read(_path())
        where = KEPT.format(path=_shown(_path()), version=mha_lab.__version__)
    except PROBLEMS as error:
        days, where = {}, NOT_KEPT_BY.format(why=_why(error), version=mha_lab.__version__)
    done = {exercise.name: days[exercise.name] for exercise in exercises if exercise.name in days}
    earned = sum(exercise.points for exercise in exercises if exercise.name in done)
    present(
        _Table(
            SOLVED.format(solved=len(done), all=len(exercises), earned=earned, points=points(possible)),
            tuple(_chapters(exercises, done)),
            next((exercise for exercise in exercises if exercise.name not in done), None),
            where,
        )
    )
    return Progress(done, earned, possible)


def following(exercise: Exercise) -> Exercise | None:
    """The first exercise after this one that is not known to be solved."""
    try:
        done = set() if _is_off() else _read(_path()).keys()
    except PROBLEMS:
        done = set()
    exercises = ordered()
    place = [each.name for each in exercises].index(exercise.name)
    return next((each for each in exercises[place + 1 :] if each.name not in done), None)


def record(exercise: Exercise) -> str:
    """Keep that this exercise is solved; returns one line if it cannot be kept, else an empty text."""
    if _is_off():
        return ""
    try:
        path = _path()
        if exercise.name in _read(path):
            return ""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(path) as new:
            solved = _load(path)
            solved.setdefault(exercise.name, {"date": date.today().isoformat(), "points": exercise.points})
            with new.open("w", encoding="utf-8") as file:
                json.dump({"solved": solved}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
    except PROBLEMS as error:
        said = NOT_KEPT.format(why=_why(error))
        if said not in _said:
            _said.add(said)
            return said
    return ""


def _forget() -> str:
    """Delete the file, and say what was in it."""
    try:
        path = _path()
        if not path.exists():
            return NOTHING_FORGOTTEN
        with _alone(path) as new:
            try:
                count = len(_read(path))
            except _Damaged:
                count = None
            path.unlink(missing_ok=True)
            new.unlink()
    except PROBLEMS as error:
        return NOT_FORGOTTEN.format(why=_why(error))
    _said.clear()
    return DELETED if count is None else FORGOTTEN[count != 1].format(count=count)


def _chapters(exercises: list[Exercise], done: dict[str, str]) -> Iterator[_Chapter]:
    for name, group in groupby(exercises, lambda exercise: exercise.chapter):
        of = list(group)
        solved = [exercise for exercise in of if exercise.name in done]
        earned = sum(exercise.points for exercise in solved)
        possible = sum(exercise.points for exercise in of)
        yield _Chapter(name, earned, possible, tuple(exercise.name for exercise in solved))


# The file


class _Damaged(ValueError):
    """The file is not what ``record`` wrote."""


def _is_off() -> bool:
    return os.environ.get(VARIABLE, "").strip().lower() in ("0", "off")


def _path() -> Path:
    variable, usual = FOLDERS.get(sys.platform, ELSEWHERE)
    given = Path(os.environ.get(variable, ""))
    return (given if given.is_absolute() else Path.home() / usual) / "mha_lab" / "progress.json"


def _load(path: Path) -> dict[str, dict]:
    """What the file says, by the names of exercises; some may be of another version of this package."""
    try:
        said = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        said = None
    solved = said.get("solved") if isinstance(said, dict) else None
    if isinstance(solved, dict) and all(
        isinstance(one, dict) and isinstance(one.get("date"), str) for one in solved.values()
    ):
        return solved
    raise _Damaged(DAMAGED.format(path=_shown(path)))


def _read(path: Path) -> dict[str, str]:
    """The day of each solved exercise."""
    return {name: one["date"] for name, one in _load(path).items()}


@contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """The file that will replace ``path``, for one kernel at a time: it must be gone at the end."""
    new, until = path.with_suffix(".new"), time.monotonic() + PATIENCE
    while True:
        try:
            os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            break
        except FileExistsError:
            with suppress(FileNotFoundError):
                if abs(time.time() - new.stat().st_mtime) > ABANDONED:
                    new.unlink()
            if time.monotonic() > until:
                raise TimeoutError(BUSY.format(path=_shown(path))) from None
            time.sleep(0.01)
    try:
        yield new
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _why(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if not error.filename:
        return error.strerror
    return f"{error.strerror}: {_shown(Path(os.fsdecode(error.filename)))}"


def _shown(path: Path) -> str:
    """The path without the name of the user, and without what cannot be printed."""
    with suppress(RuntimeError, ValueError):
        path = Path("~") / path.relative_to(Path.home())
    return str(path).encode("utf-8", "replace").decode()
