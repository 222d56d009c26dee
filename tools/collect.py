"""Takes what was submitted through nbgrader's exchange: from each student one regular file."""

import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from nbgrader.apps import NbGraderAPI
from nbgrader.exchange.default import ExchangeCollect

from mha_lab.classroom import intake
from tools.course import RECEIVED, Stop, digest, received, settings


def collect(course: Path, chapter: str) -> int:
    """nbgrader's collect, of copies that hold one regular file each."""
    api = settings(course)
    exchange = Path(ExchangeCollect(coursedir=api.coursedir, parent=api).root)
    inbound = exchange / api.coursedir.course_id / "inbound"
    if not inbound.is_dir():
        raise Stop(f"there is no {inbound}: has anybody submitted, and is c.Exchange.root right?")
    times, refused = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / api.coursedir.course_id / "inbound"
        staged.mkdir(parents=True)
        for name in sorted(path.name for path in inbound.iterdir()):
            student, *rest = name.rsplit("+", 3)
            if len(rest) != 3 or rest[0] != chapter:
                continue
            try:
                if reason := intake.bad_name(student):
                    raise intake.Refused(reason)
                data, changed = intake.read(inbound, name, f"{chapter}.ipynb")
            except intake.Refused as reason:
                print(f"not collected: {name!a}: {reason}", file=sys.stderr)
                refused += 1
                continue
            if (owner := _owner(inbound / name)) != student:
                print(f"look at this: {name!a} belongs to the account {owner!a}", file=sys.stderr)
            moment = datetime.fromtimestamp(changed, UTC)
            copy = staged / f"{student}+{chapter}+{moment:%Y-%m-%d %H:%M:%S.%f} UTC+{rest[2]}"
            copy.mkdir()
            (copy / f"{chapter}.ipynb").write_bytes(data)
            (copy / "timestamp.txt").write_text(f"{moment:%Y-%m-%d %H:%M:%S.%f} UTC", encoding="utf-8")
            times[student] = max(times.get(student, ("", "")), (moment.isoformat(), digest(data)))
        api.config.Exchange.root = folder
        api.config.ExchangeCollect.check_owner = False  # done above: these are our own copies
        done = NbGraderAPI(config=api.config).collect(chapter)
    if not done["success"]:
        raise Stop(f"nbgrader could not collect:\n{done.get('log') or done.get('error')}")
    record = received(course)
    record[chapter] = record.get(chapter, {}) | times
    (course / RECEIVED).write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"{len(times)} collected into {course / 'submitted'}" + f", {refused} refused" * bool(refused))
    return int(refused > 0)


def _owner(path: Path) -> str:
    import pwd  # there is no exchange on Windows

    number = path.lstat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
