"""The sandbox of a submission: no network, no gradebook, no home folder, an empty file system to write to.

``bubblewrap`` makes it from Linux namespaces, without root and without a service. ``podman`` and
``docker`` make it from a throwaway container of the image in ``Containerfile``. ``none`` is for
notebooks that you wrote yourself.
"""

import hashlib
import json
import os
import platform
import re
import select
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import mha_course
import mha_lab
from mha_course.grading import syscalls

KINDS = ("bubblewrap", "podman", "docker", "none")
IMAGE = "mha-lab-grader"
OURS = [Path(package.__file__).parent for package in (mha_lab, mha_course)]
WORKER = ["-m", "mha_course.grading.worker"]
MEMORY = 4 * 2**30  # bytes that a process may use on top of what it starts with
PROCESSES = 256  # of a submission at one time
SHARED = 64 * 2**20  # bytes in /dev/shm, as in Docker: processes of `multiprocessing` share them
FILES = 256  # that a process may have open: each socket and pipe takes memory of the kernel
NOBODY = 65534
PATH = "/usr/local/bin:/usr/bin:/bin"
# What a Python process needs from the machine, without any home folder. There is no /proc: it would
# show the machine's settings, the paths of the host and the environment of bubblewrap.
SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
ENVIRONMENT = {
    "HOME": "/tmp",
    "IPYTHONDIR": "/tmp/ipython",
    "LANG": "C.UTF-8",
    "LOGNAME": "student",
    "MHA_LAB_QUICK": "1",  # chapters 07, 10, 12 and 14 train for a few steps only
    "MPLBACKEND": "agg",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "OMP_NUM_THREADS": "1",
    "PATH": PATH,
    "PIP_NO_INDEX": "1",  # there is no network; else `%pip install` tries for ten seconds
    "PYTHONDONTWRITEBYTECODE": "1",
    "USER": "student",
}


def command(kind: str, image: str = IMAGE, name: str = "mha-lab", filter: int = -1) -> list[str]:
    """The command that runs the worker inside the sandbox.

    ``name`` is the container's, if there is one; bubblewrap reads the filter of system calls from ``filter``,
    an open file.

    Raises:
        ValueError: ``kind`` is not one of ``KINDS``.
    """
    if kind == "bubblewrap":
        return _bubblewrap(filter)
    if kind in ("podman", "docker"):
        return _container(kind, image, name)
    if kind == "none":
        return [sys.executable, *WORKER]
    raise ValueError(f"isolation: expected one of {', '.join(KINDS)}, got {kind}.")


def _bubblewrap(filter: int) -> list[str]:
    places = _places()
    inside = {Path(path): path for path in SYSTEM if Path(path).exists()}
    walls = ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv"]
    if _version() >= (0, 8):
        walls += ["--disable-userns"]
    walls += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "grader", "--cap-drop", "ALL"]
    walls += ["--seccomp", str(filter), "--dev", "/dev", "--size", str(256 * 2**20), "--tmpfs", "/tmp"]
    walls += ["--size", str(SHARED), "--tmpfs", "/dev/shm"]
    before: list[str] = []
    if os.geteuid() == 0:
        # Root of these namespaces would be root of the machine. So root lays the folders out where
        # everybody can read them, and then a user without rights makes the sandbox.
        before = ["bwrap", "--unshare-pid", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
        before += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--tmpfs", "/tmp"]
        for folder in ("/etc", "/package", "/packages"):
            before += ["--perms", "0755", "--dir", folder]
        before += _bind(inside | places)
        before += ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        places = {Path(place): place for place in places.values()}
    walls += [*_bind(inside | places), "--remount-ro", "/dev", "--remount-ro", "/"]
    variables = ENVIRONMENT | {"LD_LIBRARY_PATH": "/python/lib", "PYTHONPATH": _python_path()}
    for variable, value in variables.items():
        walls += ["--setenv", variable, value]
    limit = ["prlimit", f"--nofile={FILES}", *([f"--nproc={PROCESSES}"] if _counts_apart() else [])]
    return [*before, *walls, "--chdir", "/tmp", *limit, _inside(Path(sys.executable).resolve()), *WORKER]


def _counts_apart() -> bool:
    """Since Linux 5.14 processes are counted for each user namespace; before that, for all of a user's."""
    return tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2]) >= (5, 14)


def _bind(places: dict[Path, str]) -> list[str]:
    return [word for path, place in places.items() for word in ("--ro-bind", str(path), place)]


def _places() -> dict[Path, str]:
    """This Python, its packages and ours, and their places inside, which show no path of the host."""
    folders = {Path(sys.base_prefix).resolve(): "/python"}
    for i, path in enumerate(map(Path, site.getsitepackages())):
        folders[path.resolve()] = f"/packages/{i}"
    folders |= {folder.resolve(): f"/package/{folder.name}" for folder in OURS}
    kept: dict[Path, str] = {}
    for path, place in folders.items():
        if path.exists() and not any(path.is_relative_to(other) for other in (Path("/usr"), *kept)):
            kept[path] = place
    return kept


def _inside(path: Path) -> str:
    """The place of the host's file inside."""
    for folder, place in _places().items():
        if path.is_relative_to(folder):
            return str(place / path.relative_to(folder))
    return str(path)


def _python_path() -> str:
    folders = [OURS[0].resolve(), *(Path(p).resolve() for p in site.getsitepackages())]
    package, *packages = map(_inside, folders)
    return os.pathsep.join([str(Path(package).parent), *packages])


@cache
def _version() -> tuple[int, ...]:
    said = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(part) for part in said.split()[-1].split(".") if part.isdigit()) if said else (0,)


def _container(engine: str, image: str, name: str) -> list[str]:
    walls = [engine, "run", "--rm", "--interactive", f"--name={name}", "--network=none", "--read-only"]
    walls += ["--tmpfs=/tmp:size=256m", f"--shm-size={SHARED >> 20}m", "--memory=6g", "--cpus=1"]
    walls += [f"--pids-limit={PROCESSES}"]
    walls += [f"--user={NOBODY}:{NOBODY}", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    for variable, value in ENVIRONMENT.items():
        if variable != "PATH":
            walls += ["--env", f"{variable}={value}"]
    return [*walls, image, "python", *WORKER]


class Worker:
    """A worker inside the sandbox, with pipes to it; ``with`` ends it and everything that it started."""

    def __init__(
        self, kind: str, image: str = IMAGE, name: str = "mha-lab", stderr: int = subprocess.DEVNULL
    ) -> None:
        self._kind, self._name = kind, name
        self._environment = {"PATH": PATH}  # nothing of the teacher's
        self._first: int | None = None
        walled = kind == "bubblewrap"
        reading, writing = os.pipe()
        with tempfile.TemporaryFile() as filter:
            if walled:
                filter.write(syscalls.program())
                filter.seek(0)
            program, *rest = command(kind, image, name, filter.fileno())
            self._program = shutil.which(program) or program
            self.process = subprocess.Popen(
                [self._program, *(["--info-fd", str(writing)] if walled else []), *rest],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._environment,
                pass_fds=[writing, filter.fileno()] if walled else [],
                start_new_session=True,
                preexec_fn=_preparation() if walled else None,
            )
        os.close(writing)
        if walled:
            self._first = _first_process(reading)
        os.close(reading)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        if self._first is not None:  # the first process of the namespace: all others end with it
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            os.close(self._first)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        if self._kind in ("podman", "docker"):  # a container outlives the command that started it
            rm = [self._program, "rm", "--force", self._name]
            subprocess.run(rm, capture_output=True, env=self._environment, timeout=60, check=False)


def _first_process(pipe: int) -> int | None:
    """A handle of the process that bubblewrap reports.

    It should end with the process that started it, but something inside may have undone that.
    """
    said = b""
    while b"}" not in said and select.select([pipe], [], [], 30)[0] and (some := os.read(pipe, 4096)):
        said += some
    with suppress(ValueError, KeyError, OSError):
        return os.pidfd_open(json.loads(said)["child-pid"])
    return None


def _preparation() -> Callable[[], None]:
    """To be called between fork and exec: a limit of memory, and a keyring that is not the teacher's."""
    import ctypes
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])  # of a process that has loaded PyTorch
    most, hard = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    libc = ctypes.CDLL(None)
    keyctl = {"x86_64": 250, "aarch64": 219}.get(platform.machine())

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if keyctl:
            libc.syscall(keyctl, 1, None)  # KEYCTL_JOIN_SESSION_KEYRING, a new one without a name

    return prepare


@cache
def fingerprint() -> str:
    """The versions of our packages and PyTorch: both sides must draw the same problems from a seed."""
    found = hashlib.sha256(version("torch").encode())
    for file in sorted(file for folder in OURS for file in folder.rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


@cache
def why_not(kind: str, image: str = IMAGE) -> str:
    """Empty if this sandbox works here, else one line that says what is missing."""
    if kind == "none":
        return ""
    program = "bwrap" if kind == "bubblewrap" else kind
    if not shutil.which(program):
        return f"{program} is not installed (on Debian and Ubuntu: apt install {kind})"
    if kind == "bubblewrap":
        try:
            syscalls.program()
        except OSError as error:
            return str(error)
    with Worker(kind, image, stderr=subprocess.PIPE) as worker:
        try:
            said, error = worker.process.communicate(b'{"steps": [], "exercises": {}, "seconds": 1}', 120)
        except subprocess.TimeoutExpired:
            return f"{program} does not run here, or this machine is too slow: no answer in 120 seconds"
    if worker.process.returncode == 0 and b'"end"' in said:
        same = fingerprint().encode() in said
        return "" if same else f"{image} has another mha_lab or PyTorch than this machine; build it again"
    words = error.decode(errors="replace").strip()[-300:]
    return f"{program} does not run here: {words or 'it says nothing'}"
