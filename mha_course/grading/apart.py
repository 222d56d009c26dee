"""Does something for each student in a process of its own: several at once, each with a time limit."""

import contextlib
import ctypes
import errno
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

from mha_course.checker.child import limit_memory
from mha_course.grading import intake
from mha_course.grading.sandbox import MEMORY

PR_SET_PDEATHSIG = 1  # of Linux: a signal for this process when its parent ends
# Bytes that one more submission at a time takes. Measured: at most 190 MB in chapter 03.
NEEDS = 300 * 2**20


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_once(asked: int, root: Path = Path("/")) -> int:
    """How many submissions to grade at a time: as many as asked, if the memory allows it.

    Args:
        asked: 0 is one for each processor.
        root: where the files of Linux are.

    Returns:
        0 if the memory is not enough for one.
    """
    wanted, free = asked or cores(), free_memory(root)
    return wanted if free is None else min(wanted, free // NEEDS)


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that the machine and the control groups leave to this process; ``None`` if unknown."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        lines = (root / "proc/meminfo").read_text().splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    for group in _groups(root):
        for most, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            with contextlib.suppress(OSError, ValueError):  # there is no such file, or it says "max"
                free = int((group / most).read_text()) - int((group / used).read_text())
                found.append(max(0, free + _given_back(group / "memory.stat")))
    return min(found, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control groups of memory, of version 1 and 2, up to the outermost."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" or "memory" in controllers.split(","):
                top = root / "sys/fs/cgroup" / ("" if number == "0" else "memory")
                group = top / path.strip("/")
                yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _given_back(file: Path) -> int:
    """Bytes that count as used, and that Linux gives back when they are needed: pages of files."""
    said = dict(line.split() for line in file.read_text().splitlines())
    kinds = "inactive_file", "active_file"
    return sum(int(said.get(f"total_{kind}", said.get(kind, 0))) for kind in kinds)


def each(
    work: Callable[[str], None], names: Sequence[str], *, jobs: int, seconds: float
) -> Iterator[tuple[str, str]]:
    """Call ``work(name)`` for each name, ``jobs`` at a time.

    Yields:
        each name when its process has ended, with the reason why it failed, or an empty text.
    """
    waiting, running = list(reversed(names)), []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                with _ctrl_c_waits():
                    running.append(_Process(work, waiting.pop(), seconds))
            wait([process.sentinel for process in running], max(0.0, min(p.left for p in running)))
            for process in [p for p in running if p.is_over()]:
                running.remove(process)
                yield process.name, process.end()
    finally:
        for process in running:
            process.end()


@contextlib.contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """While a process is forked, Python calls functions of other modules and ignores what they raise."""
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came and callable(handler):
        handler(signal.SIGINT, None)


class _Process:
    """One process, and the pipe on which it says how it ended."""

    def __init__(self, work: Callable[[str], None], name: str, seconds: float) -> None:
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.name, self._seconds = name, seconds
        self._reading, writing = context.Pipe(duplex=False)
        self._process = context.Process(target=_be_apart, args=(work, name, writing, os.getpid()))
        self._process.start()
        writing.close()
        self._end = time.monotonic() + seconds
        self.sentinel = self._process.sentinel

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    def is_over(self) -> bool:
        return not self._process.is_alive() or self.left <= 0

    def end(self) -> str:
        """Stop it if it still runs; why it failed."""
        stopped = self._process.is_alive()
        self._process.terminate()
        self._process.join(10)
        self._process.kill()
        self._process.join()
        try:
            if stopped:
                return f"it was stopped after {self._seconds:g} seconds"
            return self._reading.recv() if self._reading.poll() else "the process that graded it ended"
        except EOFError:
            return "the process that graded it ended"
        finally:
            self._reading.close()


def _be_apart(work: Callable[[str], None], name: str, pipe: Connection, parent: int) -> None:
    def stop(*_: object) -> None:
        # Python ignores what is raised in a callback, and would print it; then `_Process.end` kills.
        sys.unraisablehook = lambda _: None
        raise SystemExit(1)

    signal.signal(signal.SIGTERM, stop)  # so that all is cleaned up: the sandbox is removed
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it ended before that
                return
            limit_memory(MEMORY)
        work(name)
        pipe.send("")
    except intake.Refused as reason:
        pipe.send(str(reason))
    except OSError as error:
        pipe.send(intake.FULL if error.errno == errno.ENOSPC else f"{type(error).__name__}: {error}"[:2000])
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}"[:2000])
