"""Grading several at a time, stopping at any point, and going on."""

import csv
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.api import Gradebook

from mha_course.grading import apart, intake, record
from mha_course.grading.__main__ import CONFIGURATION, main
from mha_course.grading.course import digest, settings
from tests.grading.test_by_hand import cell
from tests.grading.test_points import solved
from tests.grading.test_round import needs_walls, run
from tests.notebooks.chapters import ROOT

pytestmark = pytest.mark.grading
NAME = "03_small"
STUDENTS = [f"s{i}" for i in range(4)]
# The second is wrong for random problems only, so that its page of feedback shows one.
WRONG = """def split_heads(x, num_heads):
    batch, n, _ = x.shape
    return x.view(batch, n, num_heads, -1).transpose(1, 2) if batch == 1 else x
"""
ANSWERS = [solved("split_heads"), WRONG]


def work(folder, name):
    """What a process does in these tests: it leaves a mark when it begins and when it ends."""
    (folder / f"{name} begins").touch()
    if name == "hangs":
        time.sleep(3600)
    if name == "fails":
        raise ValueError("no")
    if name == "dies":
        os._exit(3)
    deadline = time.monotonic() + 20
    while name.startswith("pair") and len(list(folder.glob("pair* begins"))) < 2:
        assert time.monotonic() < deadline, "it is alone, or this machine is too slow: 20 seconds"
        time.sleep(0.01)
    (folder / f"{name} ends").touch()


def test_each_process_is_alone_and_several_run_at_a_time(tmp_path):
    """Two wait for each other, so they must run together; a third that hangs stops nobody."""
    names = ["hangs", "fails", "dies", "pair 1", "pair 2", "last"]
    found = dict(apart.each(partial(work, tmp_path), names, jobs=3, seconds=2))
    assert found.pop("hangs") == "it was stopped after 2 seconds"
    assert found.pop("fails") == "ValueError: no"
    assert found.pop("dies") == "the process that graded it ended"
    assert found == dict.fromkeys(["pair 1", "pair 2", "last"], "")
    assert {path.name for path in tmp_path.glob("* ends")} == {"pair 1 ends", "pair 2 ends", "last ends"}


def test_no_more_run_than_may(tmp_path):
    for name, _ in apart.each(partial(work, tmp_path), ["a", "b", "c"], jobs=1, seconds=20):
        begun = {path.name[0] for path in tmp_path.glob("* begins")}
        assert begun == set("abc"[: "abc".index(name) + 1])


def test_what_runs_ends_with_the_one_that_started_it(tmp_path):
    program = (
        "from functools import partial\nfrom pathlib import Path\nfrom mha_course.grading import apart\n"
        "from tests.grading.test_going_on import work\n"
        f"list(apart.each(partial(work, Path({str(tmp_path)!r})), ['hangs'], jobs=1, seconds=60))"
    )
    main = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    wait_for(lambda: (tmp_path / "hangs begins").exists())
    children = f"/proc/{main.pid}/task/{main.pid}/children"
    with open(children) as file:  # noqa: PTH123  not a file that Path can read in one go
        (child,) = map(int, file.read().split())
    main.kill()
    main.wait(timeout=60)
    wait_for(lambda: not os.path.exists(f"/proc/{child}"))  # noqa: PTH110


def test_ctrl_c_while_a_process_is_forked_is_not_lost(tmp_path):
    """Python ignores what is raised in the functions that it calls at a fork, such as those of `logging`."""
    program = (
        "import os, signal, sys\nfrom functools import partial\nfrom pathlib import Path\n"
        "from mha_course.grading import apart\nfrom tests.grading.test_going_on import work\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        f"list(apart.each(partial(work, Path({str(tmp_path)!r})), ['hangs', 'last'], jobs=1, seconds=60))"
    )
    main = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert main.stderr.endswith("KeyboardInterrupt\n")
    assert not (tmp_path / "last begins").exists()


GIB = 2**30
# The files of Linux in which the limits of a process stand, in both versions of control groups.
ONE = {
    "proc/self/cgroup": "4:memory:/hub/ada\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB),
    "sys/fs/cgroup/memory/memory.stat": "cache 1",
    "sys/fs/cgroup/memory/hub/ada/memory.limit_in_bytes": str(2 * GIB),
    "sys/fs/cgroup/memory/hub/ada/memory.usage_in_bytes": str(GIB),
    "sys/fs/cgroup/memory/hub/ada/memory.stat": f"inactive_file 7\ntotal_inactive_file {GIB // 4}",
}
TWO = {
    "proc/self/cgroup": "0::/hub/ada\n",
    "sys/fs/cgroup/hub/memory.max": str(2 * GIB),
    "sys/fs/cgroup/hub/memory.current": str(GIB),
    "sys/fs/cgroup/hub/memory.stat": f"active_file {GIB // 4}",
    "sys/fs/cgroup/hub/ada/memory.max": "max",
    "sys/fs/cgroup/hub/ada/memory.current": str(GIB),
}
MACHINE = {"proc/meminfo": f"MemTotal: {2**24} kB\nMemAvailable: {2**23} kB\n"}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        (MACHINE, 8 * GIB),
        (MACHINE | ONE, GIB + GIB // 4),
        (MACHINE | TWO, GIB + GIB // 4),
        (ONE | {"proc/meminfo": "MemAvailable: 1024 kB"}, 2**20),
    ],
)
def test_no_more_run_at_a_time_than_the_memory_allows(tmp_path, files, free):
    for place, text in files.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    assert apart.free_memory(tmp_path) == free
    assert apart.at_once(10**6, tmp_path) == (10**6 if free is None else free // apart.NEEDS)
    assert apart.at_once(1, tmp_path) == (free is None or free >= apart.NEEDS)


def wait_for(happened):
    deadline = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < deadline, "it did not happen, or this machine is too slow: 300 seconds"
        time.sleep(0.02)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """One exercise, handed in by four students, right and wrong in turn."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "course"
    (folder / "source" / NAME).mkdir(parents=True)
    (folder / "nbgrader_config.py").write_text(CONFIGURATION)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    stub = cell(new_code_cell, "def split_heads(x, num_heads): ...", "split_heads", solution=True)
    check = cell(new_code_cell, "", "check-split_heads", grade=True, locked=True, points=1)
    notebook = new_notebook(cells=[stub, check], metadata={"kernelspec": kernel})
    nbformat.write(notebook, folder / "source" / NAME / f"{NAME}.ipynb")
    assert settings(folder).generate_assignment(NAME)["success"]
    for i, student in enumerate(STUDENTS):
        submit(folder, student, ANSWERS[i % 2])
    return folder


def submit(folder, student, answer):
    released = nbformat.read(folder / "release" / NAME / f"{NAME}.ipynb", as_version=4)
    released.cells[0].source = answer
    file = folder / "submitted" / student / NAME / f"{NAME}.ipynb"
    file.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(released, file)


def started(folder, jobs=2):
    command = [sys.executable, "-m", "mha_course.grading", "grade", str(folder), NAME, f"--jobs={jobs}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A test that runs in the background of a shell ignores Ctrl-C, and so would what it starts.
    return subprocess.Popen(
        command, cwd=ROOT, **pipes, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )


def kept(folder):
    """When each record was written: it is the last thing that happens to a submission."""
    return {path.stem: path.stat().st_mtime_ns for path in (folder / record.FOLDER).rglob("*.json")}


def scores(folder):
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        return {one.student_id: one.score for one in gradebook.assignment_submissions(NAME)}


@needs_walls
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_goes_on(course, how):
    """What was graded stays and is not graded again; in the end all is as after a run of one at a time."""
    serial = course.with_name("serial")
    (course / ".secret").write_bytes(b"x" * 32)
    shutil.copytree(course, serial)
    first = started(course)
    wait_for(lambda: kept(course))
    first.send_signal(how)
    _, said = first.communicate(timeout=600)
    if how == signal.SIGINT:
        assert (first.returncode, said.splitlines()) == (
            130,
            [
                f"stopped: {len(kept(course))} of 4 submissions are graded and kept. To grade the other "
                f"{4 - len(kept(course))}, run the same command again"
            ],
        )
    before = kept(course)
    assert 1 <= len(before) < len(STUDENTS)
    done = run("grade", course, "03")
    assert done.returncode == 0, done.stderr
    after = kept(course)
    assert sorted(after) == STUDENTS
    assert {student: after[student] for student in before} == before
    assert {line.split(":")[0] for line in done.stdout.splitlines() if line.endswith(": graded")} == {
        *after
    } - {*before}
    assert scores(course) == dict(zip(STUDENTS, [1, 0] * 2, strict=True))

    assert run("grade", serial, NAME, "--jobs=1").returncode == 0
    assert (serial / "grades.csv").read_bytes() == (course / "grades.csv").read_bytes()
    for student in STUDENTS:
        page = f"feedback/{student}/{NAME}/{NAME}.html"
        assert (serial / page).read_bytes() == (course / page).read_bytes()


@pytest.fixture
def small_group():
    """What moves a process into a control group of Linux with 1 GiB, as the hub does it."""
    limits = runpy.run_path(str(ROOT / "hub" / "limits.py"))
    name = f"test-{os.getpid()}"
    try:
        entries = limits["group"](name, GIB, float(os.cpu_count()))
    except OSError:
        pytest.skip("control groups cannot be written here")
    yield partial(limits["enter"], entries)
    for entry in entries:
        Path(entry).parent.rmdir()


@needs_walls
def test_in_a_small_server_fewer_are_graded_at_a_time_and_too_little_memory_is_one_line(
    course, small_group, monkeypatch, capsys
):
    command = [sys.executable, "-m", "mha_course.grading", "grade", str(course), NAME, "--jobs=16"]
    done = subprocess.run(
        command, cwd=ROOT, preexec_fn=small_group, capture_output=True, text=True, check=False, timeout=1800
    )
    assert (done.returncode, sorted(kept(course))) == (0, STUDENTS), done.stdout + done.stderr
    assert re.search(r"^[12] at a time, not 16, because there is no memory for more$", done.stdout, re.M)
    shutil.rmtree(course / record.FOLDER)
    monkeypatch.setattr(apart, "free_memory", lambda *_: apart.NEEDS - 1)
    assert main(["grade", str(course), NAME]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "nothing was graded: a submission needs 300 MB of memory, and only 299 MB are free."
    )


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 8 MB of which most is taken."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if (
        not shutil.which("mount")
        or subprocess.run(mount, capture_output=True, check=False, timeout=60).returncode
    ):
        pytest.skip("no small disk can be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=60)


@needs_walls
def test_a_full_disk_is_one_sentence_and_when_there_is_room_the_rest_is_graded(course, small_disk):
    course = shutil.copytree(course, small_disk / "course")
    (small_disk / "filler").write_bytes(bytes(shutil.disk_usage(small_disk).free - 700_000))
    done = run("grade", course, NAME, "--jobs=1")
    before = kept(course)
    assert done.returncode in (1, 2), done.stdout
    assert len(before) < len(STUDENTS)
    told = [line for line in done.stderr.splitlines() if line.startswith("not graded")]
    assert told == [f"not graded: {s!a}: {intake.FULL}" for s in STUDENTS if s not in before]
    (small_disk / "filler").unlink()
    done = run("grade", course, NAME, "--jobs=1")
    assert done.returncode == 0, done.stderr
    assert {student: kept(course)[student] for student in before} == before
    assert scores(course) == dict(zip(STUDENTS, [1, 0] * 2, strict=True))


@needs_walls
def test_what_a_platform_says_is_kept_if_a_file_cannot_be_graded_and_no_comment_is_without_words(course):
    for student in STUDENTS:
        shutil.rmtree(course / "submitted" / student)
    submit(course, "maier_2", "def split_heads(x, num_heads): ...")
    submit(course, "Bo_7", ANSWERS[0])
    submit(course, "Cy_8", ANSWERS[0])
    (course / "submitted" / "Cy_8" / NAME / f"{NAME}.ipynb").write_bytes(b"")
    came = {"Bo_7": ["", "another file"], "Cy_8": ["", digest(b""), "late"]}
    (course / "received.json").write_text(json.dumps({NAME: came}))
    done = run("grade", course, NAME)
    assert f"not graded: 'Cy_8': '{NAME}/{NAME}.ipynb': it is empty" in done.stderr
    with (course / "grades.csv").open(encoding="utf-8", newline="") as file:
        late = {line["student_id"]: line["late"] for line in csv.DictReader(file)}
    assert late == {"Bo_7": "", "Cy_8": "yes", "maier_2": ""}
    with (course / "grades-canvas.csv").open(encoding="utf-8", newline="") as file:
        numbers = {line[0]: line[1] for line in list(csv.reader(file))[2:]}
    assert numbers == {"Bo": "7", "Cy": "8", "maier_2": ""}
    page = (course / "feedback" / "maier_2" / NAME / f"{NAME}.html").read_text(encoding="utf-8")
    assert "No response." in page
    assert ">Comment<" not in page
    assert 'href="#comment' not in page


@needs_walls
def test_odd_names_and_files_are_graded_like_the_others(course):
    """Names that nbgrader, the tables and the pages must take, each with a file of an unusual name."""
    files = {
        "'t Hooft_1": f"{NAME}/Copy of {NAME}.ipynb",
        "علی\u200cرضا_2": f"{NAME}_final.ipynb",
        "Jean\u00a0Luc": f"{NAME.upper()}/homework.ipynb.txt",
    }
    submit(course, "s0", ANSWERS[0])
    usual = course / "submitted" / "s0" / NAME / f"{NAME}.ipynb"
    for student, name in files.items():
        file = course / "submitted" / student / name
        file.parent.mkdir(parents=True)
        shutil.copy(usual, file)
    for student in STUDENTS:
        shutil.rmtree(course / "submitted" / student)
    done = run("grade", course, NAME)
    assert done.returncode == 0, done.stderr
    assert scores(course) == dict.fromkeys(files, 1)
    assert "look at this" not in done.stdout
    assert "'homework.ipynb.txt' counts: there is no notebook with the name" in done.stdout.replace(
        f"{NAME.upper()}/", ""
    )
    with (course / "grades.csv").open(encoding="utf-8", newline="") as file:
        assert {line["student_id"] for line in csv.DictReader(file)} == {*files}
    for student in files:
        assert (course / "feedback" / student / NAME / f"{NAME}.html").is_file()
        assert student in (course / "summary.txt").read_text(encoding="utf-8")


@needs_walls
def test_only_what_changed_is_graded_again(course):
    """A new file, points that are no longer in the gradebook, and a disk that was full."""
    shutil.rmtree(course / "submitted" / "s3")
    # In the place of one record, a folder that cannot be replaced by a file.
    blocked = record.place(course, NAME, "s0")
    (blocked / "x").mkdir(parents=True)
    done = run("grade", course, NAME)
    assert done.returncode == 1
    assert "not graded: 's0'" in done.stderr
    shutil.rmtree(blocked)
    before = kept(course)
    assert sorted(before) == ["s1", "s2"]
    submit(course, "s1", ANSWERS[0])
    done = run("grade", course, NAME)
    assert (done.returncode, kept(course)["s2"]) == (0, before["s2"])
    assert "1 of 3 submissions were graded before and have not changed" in done.stdout
    assert f"{NAME}: graded: 2, kept from before: 1, nothing handed in: 0, could not be" in done.stdout
    assert "handed in again, and graded again: s1" in done.stdout
    assert "again: s0" not in done.stdout
    assert scores(course) == {"s0": 1, "s1": 1, "s2": 1}
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        gradebook.remove_submission(NAME, "s2")
    run("grade", course, NAME)
    assert kept(course)["s2"] > before["s2"]
    assert scores(course)["s2"] == 1
    shutil.rmtree(course / "submitted" / "s2")
    done = run("grade", course, NAME)
    gone = "look at this: the folder of s2 is no longer in submitted/; the gradebook has 1 points"
    assert [line for line in done.stdout.splitlines() if line.startswith("look at this")] == [gone]
    assert "graded: 0, kept from before: 3," in done.stdout
    lines = (course / "grades.csv").read_text().splitlines()
    assert [line.split('","')[5] for line in lines[1:]] == [
        "graded", "graded, handed in again", "graded before, and no longer in submitted/",
    ]  # fmt: skip
