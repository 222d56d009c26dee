"""Takes submissions from nbgrader's exchange, or from a platform's zip file: one file of each student.

This is like nbgrader's own collect, but nothing that a student chose is used as a path or as a time, and an
error in one submission stops no other.
"""

import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from nbgrader.exchange.default import ExchangeCollect

from mha_course.grading import intake, platforms, shapes
from mha_course.grading.course import (
    RECEIVED,
    SUBMISSION_SECRET,
    Stop,
    digest,
    locked,
    received,
    settings,
    write,
)


def collect(course: Path, chapter: str) -> int:
    """Write everybody's latest submission into the course's folder, and record its time.

    Returns:
        0 if everything was taken; else 1, with a line for each that was not.
    """
    api = settings(course)
    exchange = ExchangeCollect(coursedir=api.coursedir, parent=api)
    inbound = Path(exchange.root, api.coursedir.course_id, "inbound")
    if not inbound.is_dir():
        raise Stop(f"there is no {inbound}: has anybody submitted, and is c.Exchange.root right?")
    sent: dict[str, list[tuple[shapes.Picked, str]]] = {}
    refused, chapters = 0, [path.name for path in (course / "source").iterdir()]
    with locked(course):
        record = received(course)
        for name in sorted(path.name for path in inbound.iterdir()):
            student, *rest = name.rsplit("+", 3)
            if len(rest) != 3 or rest[0] != chapter:
                continue
            try:
                if reason := intake.bad_name(student):
                    raise intake.Refused(reason)
                picked = shapes.pick(intake.files(inbound, name), chapter, chapters)
                if exchange.check_owner and _account(picked.owner) != student:
                    raise intake.Refused(f"it belongs to the account {_account(picked.owner)!a}")
                sent.setdefault(student, []).append((picked, _secret(inbound, name)))
            except (intake.Refused, OSError) as reason:
                print(f"not collected: {name!a}: {reason}", file=sys.stderr)
                refused += 1
        kept = len(sent)
        for student, of_one in sent.items():
            picked, key = max(of_one, key=lambda one: (shapes.is_whole(one[0].data), one[0].changed))
            try:
                _keep(course / "submitted", student, chapter, picked.data)
            except OSError as reason:
                print(f"not collected: {student!a}: {reason.strerror}", file=sys.stderr)
                refused, kept = refused + 1, kept - 1
                continue
            if any(other.changed > picked.changed for other, _ in of_one):
                print(f"of the submissions of {student!a}, the newest that is whole counts")
            elif picked.why:
                print(shapes.counts(student, picked))
            moment = datetime.fromtimestamp(picked.changed, UTC)
            record.setdefault(chapter, {})[student] = [
                moment.isoformat(),
                digest(picked.data),
                *([key] if key else []),
            ]
        write(course / RECEIVED, json.dumps(record, indent=1).encode())
    print(f"{kept} collected into {course / 'submitted'}" + f", {refused} refused" * bool(refused))
    return int(refused > 0)


def collect_zip(course: Path, chapter: str, file: Path) -> int:
    """The same from a zip file of Moodle or Canvas.

    Returns:
        0 if everything was taken; else 1, with a line for each that was not.
    """
    settings(course)
    kept, refused, chapters = 0, 0, [path.name for path in (course / "source").iterdir()]
    with locked(course):
        record = received(course)
        try:
            for sent in platforms.submissions(file):
                try:
                    if sent.reason:
                        raise intake.Refused(sent.reason)
                    picked = shapes.pick(sent.files, chapter, chapters)
                    _keep(course / "submitted", sent.student, chapter, picked.data)
                except (intake.Refused, OSError) as reason:
                    why = getattr(reason, "strerror", None) or reason
                    print(f"not collected: {sent.student!a}: {why}", file=sys.stderr)
                    refused += 1
                    continue
                kept += 1
                if picked.why:
                    print(shapes.counts(sent.student, picked))
                # The platform's clock is not in the file: only whether it says that this was late.
                late = ["late"] * (picked.path in sent.late)
                record.setdefault(chapter, {})[sent.student] = ["", digest(picked.data), *late]
        except intake.Refused as reason:
            raise Stop(f"{file}: {reason}") from None
        write(course / RECEIVED, json.dumps(record, indent=1).encode())
    print(f"{kept} collected into {course / 'submitted'}" + f", {refused} refused" * bool(refused))
    return int(refused > 0)


def _keep(submitted: Path, student: str, chapter: str, data: bytes) -> None:
    """Write a notebook to its place; no folder in its path may be a link."""
    folder = submitted
    for part in (student, chapter):
        folder.mkdir(exist_ok=True)
        folder = folder / part
        if folder.is_symlink():
            raise NotADirectoryError(0, f"{os.fspath(folder)!a} is a link")
    folder.mkdir(exist_ok=True)
    write(folder / f"{chapter}.ipynb", data)


def _secret(inbound: Path, name: str) -> str:
    """What nbgrader names a student's page of feedback after, if it is what nbgrader's submit writes."""
    try:
        said = intake.read(inbound, name, SUBMISSION_SECRET)[0].decode("ascii", "replace")
    except intake.Refused:
        return ""
    return said if re.fullmatch(r"[0-9a-f]{128}", said) else ""


def _account(number: int) -> str:
    import pwd  # there is no exchange on Windows

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
