"""A class of simulated students on the hub that `make hub` runs: `python hub/load_test.py`, as root there.

Nothing is mocked. Each student logs in with the form, waits for the server, pulls the chapters, runs
chapters 01 and 03 in real kernels with first tries typed in, and submits 03 through the exchange. The
teacher collects, grades and returns; each student fetches the feedback and tries to read that of others.
"""

import argparse
import asyncio
import csv
import json
import os
import pwd
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlencode

import aiohttp
import limits
import start
from aiohttp.abc import AbstractResolver
from yarl import URL

TRIES = Path(__file__).resolve().parent.parent / "tests" / "check" / "tries"
MEMORY = "STUDENT_MEMORY", "TEACHER_MEMORY"  # settings of make hub, of which 0 is no limit
LIMIT = aiohttp.ClientTimeout(total=600)
COUNT = "import time\nfor i in range(20):\n    print(i, flush=True)\n    time.sleep(0.5)"
GREEDY = "held = []\nfor _ in range(80):\n    held.append(bytearray(b'x' * 2**26))"
SNOOP = """
import json, os
from pathlib import Path
seen = []
for path in map(Path, json.loads({!r})):
    try:
        seen += [str(path)] * (len(os.listdir(path) if path.is_dir() else path.read_bytes()) > 0)
    except OSError:
        pass
print(json.dumps(seen))
"""


def first_tries(chapter: str) -> dict[str, list[tuple[bool, str]]]:
    """``{exercise: [(right, what a reader typed)]}``, from the files that test ``check``."""
    found: dict[str, list[tuple[bool, str]]] = {}
    for path in sorted(TRIES.glob(f"{chapter}_*.txt")):
        for block in path.read_text(encoding="utf-8").split("# %% ")[1:]:
            header, _, source = block.partition("\n")
            exercise, _, verdict = header.partition(" | ")
            found.setdefault(exercise.strip(), []).append((verdict.startswith("right"), source.strip()))
    return found


class Here(AbstractResolver):
    """All names lead to this machine, where the hub is."""

    async def resolve(self, host, port=0, family=socket.AF_INET):
        found = {"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET}
        return [found | {"proto": 0, "flags": socket.AI_NUMERICHOST}]

    async def close(self):
        """Nothing is open."""


def browser(limit: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
    """What makes requests and keeps cookies."""
    jar, connector = aiohttp.CookieJar(unsafe=True), aiohttp.TCPConnector(resolver=Here())
    return aiohttp.ClientSession(cookie_jar=jar, connector=connector, timeout=limit)


def home(url: str, name: str, one_name: bool = False) -> str:
    """The address of somebody's server: at a name of its own, or at the one name of the hub."""
    hub = URL(url)
    return str((hub if one_name else hub.with_host(f"{name}.{hub.host}")) / "user" / name)


class Died(Exception):
    """The kernel ended in the middle of a cell."""


class Student:
    """One browser: cookies, requests through the proxy, and a connection to one kernel at a time."""

    def __init__(self, number: int, name: str, password: str, url: str, one_name: bool = False) -> None:
        self.number, self.name, self.password = number, name, password
        self.url, self.home, self.course = url, home(url, name, one_name), "attention"
        self.web = browser(LIMIT)
        self.seconds: dict[str, float] = {}
        self.requests, self.failed = 0, []
        self.socket, self.kernel, self.key = None, "", uuid.uuid4().hex
        self.expected: dict[str, bool] = {}  # whether what was typed for an exercise is right

    async def ask(self, method: str, path: str, **options):
        """A request that must succeed: JSON or text; what fails is counted."""
        self.requests += 1
        where = (self.url if path.startswith("/hub") else self.home) + path
        cookies = self.web.cookie_jar.filter_cookies(URL(where))
        headers = {"X-XSRFToken": cookies["_xsrf"].value} if "_xsrf" in cookies else {}
        try:
            async with self.web.request(method, where, headers=headers, **options) as answer:
                body = await answer.text()
                if answer.status >= 400:
                    raise aiohttp.ClientError(f"{answer.status} {body[:200]}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failed.append(f"{self.name} {method} {path[:60]}: {error!r}")
            raise
        return json.loads(body) if body.startswith(("{", "[")) else body

    async def begin(self) -> None:
        """Log in, get the server, and pull the chapters."""
        start = time.monotonic()
        page = await self.ask("GET", "/hub/login")
        token = re.search(r'name="_xsrf" value="([^"]+)"', page)[1]
        form = {"username": self.name, "password": self.password, "_xsrf": token}
        page = await self.ask("POST", "/hub/login?next=/hub/spawn", data=form)
        if 'name="password"' in page:
            raise PermissionError(f"{self.name}: the password was refused")
        self.seconds["log in"] = time.monotonic() - start
        while not (user := await self.ask("GET", f"/hub/api/users/{self.name}")).get("server"):
            if not user["pending"]:
                raise RuntimeError(f"{self.name}: the server did not start; ~/.server.log says why")
            await asyncio.sleep(1)
        await self.ask("GET", "/tree")  # the way through the hub's OAuth to the server's own cookie
        self.seconds["server"] = time.monotonic() - start
        self.start = start

    async def open(self, chapter: str) -> dict:
        """A chapter with first tries typed in, saved, and a kernel for it."""
        names = [
            entry["name"] for entry in (await self.ask("GET", f"/api/contents/{self.course}"))["content"]
        ]
        self.chapter = next(name for name in names if name.startswith(chapter))
        self.path = f"{self.course}/{self.chapter}/{self.chapter}.ipynb"
        model = await self.ask("GET", f"/api/contents/{self.path}")
        typed = first_tries(chapter)
        for cell in model["content"]["cells"]:
            mark = cell["metadata"].get("nbgrader", {})
            if mark.get("solution") and (found := typed.get(mark["grade_id"])):
                self.expected[mark["grade_id"]], cell["source"] = found[self.number % len(found)]
        saved = {"type": "notebook", "format": "json", "content": model["content"]}
        await self.ask("PUT", f"/api/contents/{self.path}", json=saved)
        about = {"path": self.path, "type": "notebook", "name": self.chapter, "kernel": {"name": "python3"}}
        self.session = await self.ask("POST", "/api/sessions", json=about)
        self.kernel = self.session["kernel"]["id"]
        await self.connect()
        return model["content"]

    async def connect(self) -> None:
        """The kernel's websocket; after a break the server sends what was missed, as in JupyterLab."""
        jar = self.web.cookie_jar.filter_cookies(URL(f"{self.home}/"))
        query = urlencode({"session_id": self.key, "_xsrf": jar["_xsrf"].value})
        address = f"{self.home}/api/kernels/{self.kernel}/channels?{query}"
        self.socket = await self.web.ws_connect(address, max_msg_size=0, heartbeat=30)

    async def run(self, source: str, seconds: float = 300) -> tuple[str, str]:
        """What a cell printed and showed, and the name of its error if it failed."""
        number = uuid.uuid4().hex
        header = {"msg_id": number, "msg_type": "execute_request", "session": self.key, "username": self.name}
        content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}}
        content |= {"allow_stdin": False, "stop_on_error": False}
        message = {"header": header | {"version": "5.3"}, "parent_header": {}, "metadata": {}}
        message |= {"content": content, "channel": "shell", "buffers": []}
        try:
            await self.socket.send_json(message)
        except aiohttp.ClientError:  # this program did not answer the server's pings for some minutes
            await self.connect_again()
            await self.socket.send_json(message)
        printed, error, replied, idle = [], "", False, False
        async with asyncio.timeout(seconds):
            while not (replied and idle):
                got = await self.socket.receive()
                if got.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR):
                    await self.connect_again()
                    continue
                if got.type != aiohttp.WSMsgType.TEXT:
                    continue
                said = json.loads(got.data)
                kind, content = said["msg_type"], said["content"]
                if kind == "status" and content["execution_state"] in ("restarting", "dead"):
                    raise Died(self.name)
                if said["parent_header"].get("msg_id") != number:
                    continue
                replied |= kind == "execute_reply"
                idle |= kind == "status" and content["execution_state"] == "idle"
                if kind == "stream":
                    printed.append(content["text"])
                elif kind in ("display_data", "execute_result"):
                    printed.append(content["data"].get("text/plain", ""))
                elif kind == "error":
                    error = content["ename"]
        return "".join(printed), error

    async def connect_again(self) -> None:
        """As often as needed; a proxy that does not know the server yet may not answer at all."""
        for _ in range(60):
            with suppress(aiohttp.ClientError, TimeoutError):
                async with asyncio.timeout(5):
                    return await self.connect()
            await asyncio.sleep(0.5)
        raise ConnectionError(f"{self.name}: no connection to the kernel")

    async def do(self, chapter: str) -> None:
        """All cells of a chapter in order. What readers typed may fail, and so may the cells below it."""
        begun = time.monotonic()
        notebook = await self.open(chapter)
        sources = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for i, source in enumerate(sources):
            await self.run("".join(source))
            if i == 0 and "first cell" not in self.seconds:
                self.seconds["first cell"] = time.monotonic() - self.start
        self.seconds[f"chapter {chapter}"] = time.monotonic() - begun

    async def close(self) -> None:
        """Shut the kernel down, as the menu of JupyterLab does."""
        await self.socket.close()
        await self.ask("DELETE", f"/api/sessions/{self.session['id']}")

    async def exchange(self, action: str) -> None:
        """A button of nbgrader's list of assignments."""
        about = {"course_id": "attention", "assignment_id": self.chapter}
        said = await self.ask("POST", f"/assignments/{action}", data=about)
        if not said["success"]:
            raise RuntimeError(f"{self.name}: {action}: {said}")

    async def feedback(self) -> str:
        """The page of feedback, read through the hub."""
        folder = f"{self.course}/{self.chapter}/feedback"
        for _ in range(2):
            listing = await self.ask("GET", f"/api/contents/{quote(folder)}")
            folder = listing["content"][0]["path"]
        return (await self.ask("GET", f"/api/contents/{quote(folder)}?format=text"))["content"]


class Hub:
    """What root knows of the running hub."""

    def __init__(self, folder: Path, url: str, teacher: str, one_name: bool = False) -> None:
        self.folder, self.url, self.teacher, self.one_name = folder, url, teacher, one_name
        self.course = Path(f"~{teacher}").expanduser() / "course"

    def students(self, many: int) -> list[Student]:
        """The first of the class list, without the teacher."""
        with (self.folder / "state" / "passwords.csv").open(encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row[0] != self.teacher][:many]
        return [
            Student(i, name, password, self.url, self.one_name) for i, (name, password) in enumerate(rows)
        ]

    async def teach(self, *command: str) -> str:
        """A command of the teacher, in the teacher's account, course folder and limits."""
        python = self.folder / "env" / "bin" / "python"
        words = [
            shutil.which("runuser"),
            "-u",
            self.teacher,
            "--",
            str(python),
            "-W",
            "ignore",
            "-m",
            *command,
        ]
        places = {
            "HOME": str(self.course.parent),
            "PATH": f"{python.parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        memory = {name: os.environ.get(name) or start.SETTINGS[name] for name in MEMORY}
        entries = []
        if "0" not in memory.values():
            most = limits.in_bytes(memory["TEACHER_MEMORY"])
            entries = limits.group(self.teacher, most, float(os.cpu_count()))
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=self.course,
            env=places,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: limits.enter(entries),
        )
        said = (await process.communicate())[0].decode()
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}: {said[-1500:]}")
        return said

    def kill(self, part: str) -> None:
        """End the hub or the proxy without a warning."""
        os.kill(int((self.folder / "state" / f"{part}.pid").read_text()), 9)


def memory(name: str) -> dict[str, float]:
    """MB that a student's processes use now. PSS counts a page that n processes share as 1/n page."""
    uid, found = pwd.getpwnam(name).pw_uid, {"kernel RSS": 0.0, "kernel PSS": 0.0, "all PSS": 0.0}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid != uid:
                continue
            lines = dict(
                re.findall(r"^(\w+):\s+(\d+) kB", (folder / "smaps_rollup").read_text(), re.MULTILINE)
            )
            found["all PSS"] += int(lines["Pss"]) / 1024
            if b"ipykernel" in (folder / "cmdline").read_bytes():
                found["kernel RSS"] = max(found["kernel RSS"], int(lines["Rss"]) / 1024)
                found["kernel PSS"] = max(found["kernel PSS"], int(lines["Pss"]) / 1024)
    return found


async def lesson(student: Student, wait: float) -> None:
    """What one student does, from the click to the submission."""
    await asyncio.sleep(wait)
    await student.begin()
    await student.do("01")
    await student.close()
    await student.do("03")
    await student.exchange("submit")


async def privacy(hub: Hub, students: list[Student]) -> int:
    """How many files or folders of others somebody can read; each path is tried, as if it were known."""
    inbound, seen = hub.folder / "exchange" / "attention" / "inbound", 0
    for student in students:
        paths = [hub.course, inbound, inbound.parent / "feedback", hub.folder / "state"]
        for other in students:
            if other is not student:
                paths += [Path(f"~{other.name}").expanduser(), hub.course / "feedback" / other.name]
                paths += [hub.folder / "private" / str(pwd.getpwnam(other.name).pw_uid)]
                paths += [
                    path for folder in inbound.glob(f"{other.name}+*") for path in [folder, *folder.glob("*")]
                ]
        printed, error = await student.run(SNOOP.format(json.dumps([str(path) for path in paths])))
        if error:
            raise RuntimeError(error)
        seen += len(json.loads(printed))
        other = students[students.index(student) - 1]
        async with student.web.get(f"{other.home}/api/contents") as answer:
            seen += other is not student and answer.status < 400
    return seen


async def returned(hub: Hub, students: list[Student]) -> dict[str, float]:
    """Collect, grade, return; and whether everybody got the own page and the points that were earned."""
    seconds, chapter = {}, students[0].chapter
    for title, command in {
        "collect": ["mha_course.grading", "collect", str(hub.course), "03"],
        "grade": ["mha_course.grading", "grade", str(hub.course), "03"],
        "return": ["nbgrader", "release_feedback", chapter, "--log-level=WARN"],
    }.items():
        begun = time.monotonic()
        await hub.teach(*command)
        seconds[title] = time.monotonic() - begun
    with (hub.course / "grades.csv").open(encoding="utf-8") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    wrong = []
    for student in students:
        await student.exchange("fetch_feedback")
        page = hub.course / "feedback" / student.name / chapter / f"{chapter}.html"
        if await student.feedback() != page.read_text(encoding="utf-8"):
            wrong.append(f"{student.name} got another page")
        for name, right in student.expected.items():
            if name in rows[student.name] and (float(rows[student.name][name] or 0) > 0) != right:
                wrong.append(f"{student.name}: {name} should be {right}")
    if wrong:
        raise AssertionError(wrong)
    return seconds


async def faults(hub: Hub, students: list[Student]) -> dict[str, str]:
    """Kill the hub, kill the proxy, fill one student's memory, while cells count; no line may be lost."""
    found, whole = {}, "".join(f"{i}\n" for i in range(20))
    for part in ("hub", "proxy"):
        cells = [asyncio.create_task(student.run(COUNT)) for student in students]
        await asyncio.sleep(3)
        hub.kill(part)
        begun = time.monotonic()
        async with browser(aiohttp.ClientTimeout(total=5)) as web:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with web.get(f"{hub.url}/hub/login") as answer:
                        if answer.status == 200:
                            break
                await asyncio.sleep(0.2)
        back = time.monotonic() - begun
        gaps = sum(printed != whole for printed, _ in await asyncio.gather(*cells))
        lost = sum([(await student.run("print(i)"))[0] != "19\n" for student in students])
        for student in students:
            await student.ask("GET", "/hub/home")
            await student.ask("GET", "/api/status")
        said = f"{lost} of {len(students)} cells lost, {gaps} pages miss a printed line"
        found[f"the {part} is killed"] = f"{said}; login page back after {back:.0f} s"
    greedy, *others = students
    cells = [asyncio.create_task(student.run(COUNT)) for student in others]
    try:
        await greedy.run(GREEDY)
        found["a kernel fills the memory"] = "it was not stopped"
    except Died:
        lost = sum(printed != whole for printed, _ in await asyncio.gather(*cells))
        said = f"its kernel was ended; {lost} of {len(others)} cells of others lost"
        await greedy.connect_again()
        for _ in range(20):
            with suppress(Died, TimeoutError):
                printed, _ = await greedy.run("print(6 * 7)", seconds=15)
                if printed == "42\n":
                    said += "; its server gave it a new kernel"
                    break
            await asyncio.sleep(1)  # a new kernel is not there at once
        found["a kernel fills the memory"] = said
    return found


def table(rows: dict[str, list[float]], unit: str) -> None:
    """Median, 95th percentile and largest of each row, as Markdown."""
    print(f"\n| | median | 95th percentile | largest |  {unit}\n| --- | --- | --- | --- |")
    for title, values in rows.items():
        high = sorted(values)[min(len(values) - 1, round(0.95 * len(values)))]
        print(f"| {title} | {statistics.median(values):.0f} | {high:.0f} | {max(values):.0f} |")


async def main(given: argparse.Namespace) -> int:
    hub = Hub(Path(given.hub), given.url, given.teacher, given.one_name)
    students = hub.students(given.students)
    if len(students) < given.students:
        sys.exit(f"the class list has {len(students)} students, not {given.students}")
    ends = await asyncio.gather(
        *(lesson(student, i * given.arrive / len(students)) for i, student in enumerate(students)),
        return_exceptions=True,
    )
    for student, end in zip(students, ends, strict=True):
        if end is not None:
            print(f"{student.name} did not finish: {end!r}", *student.failed, sep="\n  ")
    done = [student for student, end in zip(students, ends, strict=True) if end is None]
    print(f"\n{len(done)} of {len(students)} students ran 01 and 03 to the end and submitted", flush=True)
    if not done:
        return 1
    table({title: [student.seconds[title] for student in done] for title in done[0].seconds}, "seconds")
    used = [memory(student.name) for student in done]
    table({title: [one[title] for one in used] for title in used[0]}, "MB a student")
    for title, seconds in (await returned(hub, done)).items():
        print(f"the teacher, {title}: {seconds:.0f} s")
    readable = await privacy(hub, done)
    print(f"each student read the own feedback; of others' files, {readable} could be read")
    broken = sum(len(student.failed) for student in students)
    print(f"requests: {sum(student.requests for student in students)}, failed: {broken}", flush=True)
    if given.faults:
        for title, said in (await faults(hub, done)).items():
            print(f"{title}: {said}", flush=True)
    for student in students:
        await student.web.close()
    return int(bool(readable or broken or len(done) < len(students)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, default=30)
    parser.add_argument("--arrive", type=float, default=60, help="seconds in which they all come")
    parser.add_argument("--faults", action="store_true", help="then kill the hub, the proxy and a kernel")
    parser.add_argument("--hub", default="/srv/mha-hub")
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--one-name", action="store_true", help="the hub was started with ONE_NAME=yes")
    parser.add_argument("--teacher", default="teacher")
    sys.exit(asyncio.run(main(parser.parse_args())))
