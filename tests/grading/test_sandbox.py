"""The sandbox: how it is made, and what is said if it cannot be started."""

import ctypes
import ctypes.util
import errno
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mha_course
from mha_course.exercises import Rng, find
from mha_course.grading import sandbox, syscalls
from mha_course.grading.worker import encode_problem
from tests.grading.test_round import needs_walls
from tests.notebooks.chapters import ROOT

pytestmark = pytest.mark.grading
# Of system calls.
NUMBERS = {
    "x86_64": {"keyctl": 250, "add_key": 248, "clone": 56},
    "aarch64": {"keyctl": 219, "add_key": 217, "clone": 220},
}.get(platform.machine())
needs_numbers = pytest.mark.skipif(
    NUMBERS is None, reason=f"the numbers of system calls are not known here for {platform.machine()}"
)


def said(kind, source, exercises):
    """What the worker says of one cell, line by line."""
    request = {"steps": [{"run": source, "skip": []}], "exercises": exercises, "seconds": 20}
    with sandbox.Worker(kind) as worker:
        lines, _ = worker.process.communicate(json.dumps(request).encode(), timeout=600)
    first, *lines, last = [json.loads(line) for line in lines.splitlines()]
    assert (first, last) == ({"step": 0}, {"end": sandbox.fingerprint()})
    return lines


def inside(source):
    """What one cell prints inside bubblewrap."""
    (output,) = said("bubblewrap", source, {})[0]["outputs"]
    return output["stream"]


def test_only_known_kinds():
    with pytest.raises(ValueError, match="expected one of bubblewrap, podman, docker, none, got chroot"):
        sandbox.command("chroot")


@needs_walls
def test_inside_bubblewrap(monkeypatch):
    """An unprivileged user, alone with this Python, with nowhere to write but /tmp, and no way out."""
    source = """
import os, pathlib, socket
def tries(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__
print([
    os.getuid(), os.getgid(), "SECRET" not in os.environ, os.getcwd(),
    tries(lambda: pathlib.Path("/usr/here").write_text("")),
    tries(lambda: pathlib.Path("/tmp/here").write_text("x")),
    tries(lambda: os.setuid(0)),
    tries(lambda: socket.create_connection(("192.0.2.1", 80), timeout=1)),
    tries(lambda: socket.getaddrinfo("example.org", 80)),
    os.path.exists("/proc"), os.path.exists("/sys"), os.environ["MHA_LAB_QUICK"],
])
"""
    monkeypatch.setenv("SECRET", "teacher's")
    user, tried = [65534, 65534, True, "/tmp"], ["OSError", 1, "OSError", "OSError", "gaierror"]
    assert eval(inside(source)) == [*user, *tried, False, False, "1"]
    assert not Path("/tmp/here").exists()


@needs_walls
def test_no_path_of_the_host_is_told():
    source = """
import os, sys, mha_lab
print([os.listdir("/"), os.listdir("/package"), sys.executable, sys.path, mha_lab.__file__, sys.argv])
"""
    printed = inside(source)
    assert str(ROOT) not in printed
    assert str(Path(sys.prefix)) not in printed
    found, package, *_ = eval(printed)
    system = {"bin", "dev", "etc", "lib", "lib32", "lib64", "tmp", "usr"}
    assert set(found) <= system | {"package", "packages", "python"}
    assert sorted(package) == ["mha_course", "mha_lab"]


@needs_walls
def test_one_place_to_write_to_and_it_is_small():
    source = """
import os
for folder in ("/", "/dev", "/dev/shm", "/etc", "/package", "/packages", "/python", "/usr", "/tmp"):
    try:
        with open(f"{folder}/x", "wb") as file:
            for _ in range(300):
                file.write(bytes(2**20))
        print(folder, "all")
    except OSError as error:
        print(folder, error.errno)
"""
    found = dict(line.split() for line in inside(source).splitlines())
    assert (found.pop("/tmp"), found.pop("/dev/shm")) == (str(errno.ENOSPC),) * 2
    assert set(found.values()) <= {str(errno.EROFS), str(errno.ENOENT)}


@needs_walls
@needs_numbers
def test_no_more_rights_inside():
    """No user namespace in which one would be root, and so no mount; no key of the teacher's."""
    libc, keyctl, add_key = ctypes.CDLL(None), NUMBERS["keyctl"], NUMBERS["add_key"]
    made = libc.syscall(keyctl, 1, None) > 0 and libc.syscall(add_key, b"user", b"mha-lab", b"s", 1, -3) > 0
    search = f"libc.syscall({keyctl}, 10, -3, b'user', b'mha-lab', 0)"
    assert not made or eval(search) > 0
    source = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print([{search} > 0, libc.unshare(0x10000000), libc.mount(b"proc", b"/tmp", b"proc", 0, None)])
"""
    assert eval(inside(source)) == [False, -1, -1]


@needs_walls
@needs_numbers
def test_the_kernel_is_asked_for_little():
    """Memory of no process, other processes, ways around the filter: the kernel says no."""
    source = """
import ctypes, fcntl, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def error(action):
    try:
        if action() >= 0:
            return 0
    except OSError as reason:
        return reason.errno
    return ctypes.get_errno()
print([
    error(lambda: os.memfd_create("x")),
    error(lambda: libc.shmget(0, 4096, 0o1600)),
    error(lambda: libc.msgget(0, 0o1600)),
    error(lambda: libc.ptrace(0, 0, None, None)),  # PTRACE_TRACEME, which is free where ptrace is
    error(lambda: libc.syscall(425, 8, None)),  # io_uring_setup, on every architecture
    error(lambda: libc.unshare(0x10000000)),
    error(lambda: libc.syscall(keyctl, 0, -3, 0)),
    error(lambda: libc.vmsplice(os.pipe()[1], None, 0, 0)),
    error(lambda: libc.inotify_init()),
    error(lambda: libc.flock(os.open("/usr/bin/env", os.O_RDONLY), 2)),
    error(lambda: fcntl.fcntl(os.open("/usr", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS)),
    error(lambda: fcntl.lockf(os.open("/usr/bin/env", os.O_RDONLY), fcntl.LOCK_SH)),
    error(lambda: os.setxattr("/tmp", "user.x", b"x")),
    [error(lambda: libc.syscall(number, None, None, 0, 0)) for number in (435, 457, 458, 467, 4000)],
    error(lambda: libc.syscall(clone, 0x10000000 | 17, None, None, None, None)),
    [error(lambda: socket.socket(family, socket.SOCK_RAW).fileno()) for family in (3, 9, 16, 17, 38, 40)],
    [error(lambda: socket.socketpair(family)[0].fileno()) for family in (2, 16, 40)],
    [error(lambda: socket.socket(family).fileno()) for family in (socket.AF_UNIX, socket.AF_INET)],
    [error(lambda: pair.fileno()) for pair in socket.socketpair()],
    error(lambda: fcntl.fcntl(1, fcntl.F_GETFD)),
    os.waitstatus_to_exitcode(os.system("true")),
])
"""
    no, unknown = errno.EPERM, errno.ENOSYS
    expected = [no] * 10 + [unknown] * 2 + [no, [unknown] * 5, unknown, [unknown] * 6, [unknown] * 3]
    found = eval(inside(f"clone, keyctl = {NUMBERS['clone']}, {NUMBERS['keyctl']}{source}"))
    assert found == [*expected, [0, 0], [0, 0], 0, 0]


@needs_walls
@pytest.mark.skipif(not sandbox._counts_apart(), reason="this Linux counts all processes of a user")
def test_processes_are_counted():
    source = """
import os, time
made = 0
try:
    while made < 2000:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError as error:
    print(made, error.errno)
"""
    made, error = map(int, inside(source).split())
    assert (200 < made < 256, error) == (True, errno.EAGAIN)


@needs_walls
def test_what_outlives_its_parent_is_ended(monkeypatch):
    """As if something inside had taken back that it ends with bubblewrap."""
    whole, mark = sandbox.command, f"6{os.getpid():06}.25"
    monkeypatch.setattr(sandbox, "command", lambda *a: [w for w in whole(*a) if w != "--die-with-parent"])
    source = f"import subprocess\nsubprocess.Popen(['sleep', '{mark}'], start_new_session=True)"

    def alive():
        commands = "cat /proc/[0-9]*/cmdline 2>/dev/null"
        return mark.encode() in subprocess.run(commands, shell=True, capture_output=True, timeout=60).stdout

    request = {
        "steps": [
            {"run": source, "skip": []},
            {"run": "while True: pass", "skip": []},
        ]
    }
    with sandbox.Worker("bubblewrap") as worker:
        worker.process.stdin.write(json.dumps(request | {"exercises": {}, "seconds": 30}).encode())
        worker.process.stdin.close()
        while b'"step": 1' not in worker.process.stdout.readline():
            pass
        assert alive()
    deadline = time.monotonic() + 60
    while alive():
        assert time.monotonic() < deadline, "it was not ended, or this machine is too slow: 60 seconds"
        time.sleep(0.05)


@needs_walls
def test_a_tested_function_does_not_tell_who_it_is():
    """As in ``check``: neither its name nor its identity gives away whether a layer leaks."""
    source = """
import mha_course.exercises._leaks as leaks
def leaks_future(attention, n, d_model):
    same = [name for name, one in vars(leaks).items() if one is attention]
    raise ValueError([attention.__name__, attention.__qualname__, same])
"""
    problems = [encode_problem(problem) for problem in find("leaks_future").problems(Rng(3))]
    lines = said("none", source, {"leaks_future": {"seed": 3, "sent": problems}})
    (messages,) = filter(None, (line.get("messages") for line in lines))
    texts = {message["value"]["text"] for message in messages}
    assert texts == {"ValueError\n['attention', 'attention', []]"}


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_a_container_has_the_same_walls(engine):
    """No engine runs on the machines that gate changes, so only the command is looked at."""
    command = sandbox.command(engine, "image")
    options, (image, *program) = command[: command.index("image")], command[command.index("image") :]
    assert options[:5] == [engine, "run", "--rm", "--interactive", "--name=mha-lab"]
    walls = "--network=none --read-only --user=65534:65534 --cap-drop=ALL --pids-limit=256"
    walls += " --memory=6g --shm-size=64m --tmpfs=/tmp:size=256m USER=student"
    assert {*walls.split(), "--security-opt=no-new-privileges"} <= set(options)
    assert not any(option.startswith(("-v", "--volume", "--mount", "--privileged")) for option in options)
    assert (image, program) == ("image", ["python", "-m", "mha_course.grading.worker"])
    containerfile = (Path(mha_course.__file__).parent / "grading" / "Containerfile").read_text()
    for file in containerfile.split("COPY ")[1].split(" /")[0].split():
        assert (ROOT / file).is_file()


def test_a_container_is_ended_by_its_name(monkeypatch, tmp_path):
    """A stand-in for an engine that writes down what it is asked."""
    engine = tmp_path / "podman"
    engine.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with sandbox.Worker("podman", "image", "mha-lab-1") as worker:
        worker.process.wait(timeout=60)
    started, ended = (tmp_path / "asked").read_text().splitlines()
    assert "--name=mha-lab-1" in started
    assert ended == "rm --force mha-lab-1"


@pytest.fixture
def bwrap(monkeypatch, tmp_path):
    """Alone on the path, and asked anew."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "bwrap").touch(mode=0o755)
    syscalls.program.cache_clear()
    sandbox.why_not.cache_clear()
    yield tmp_path / "bwrap"
    monkeypatch.undo()
    syscalls.program.cache_clear()
    sandbox.why_not.cache_clear()


def test_what_is_missing_is_said_in_a_line(bwrap, monkeypatch):
    assert sandbox.why_not("none") == ""
    assert sandbox.why_not("podman").startswith("podman is not installed")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    assert sandbox.why_not("bubblewrap").startswith("libseccomp is not installed")


def test_why_bubblewrap_does_not_run_is_said_in_a_line(bwrap):
    shell = shutil.which("sh", path="/bin:/usr/bin")
    bwrap.write_text(f"#!{shell}\necho 'no namespaces for you' >&2; exit 1\n")
    assert sandbox.why_not("bubblewrap") == "bwrap does not run here: no namespaces for you"


def test_the_worker_speaks_its_language_without_walls_too():
    source = "import matplotlib.pyplot as plt\nprint('hello')\nplt.plot([1, 2]); plt.show()\n6 * 7"
    outputs = said("none", source, {})[0]["outputs"]
    assert outputs[0] == {"stream": "hello\n"}
    assert outputs[-1]["display"]["text/plain"] == "42"
    (output,) = said("none", "1 / 0", {})[0]["outputs"]
    assert output["stream"].strip() == "ZeroDivisionError: division by zero"
    assert sys.executable == sandbox.command("none")[0]
