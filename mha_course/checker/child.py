"""Work in a child process with limits of time and memory: whatever it does there, this process goes on.

Linux only: elsewhere a fork of a process that has loaded PyTorch is not safe.
"""

import contextlib
import json
import math
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch

MOST = 2**29  # bytes that are read from one child


class Said(NamedTuple):
    """What came out of a child: a line of JSON for each item, as far as it came, and the time it computed."""

    lines: list[bytes]
    too_slow: bool
    seconds: float


def run(
    work: Callable[[Any], Any],
    items: Sequence[Any],
    *,
    seconds: float,
    patience: float,
    memory: int,
    each: float = 0.0,
    around: Callable[[], AbstractContextManager] = nullcontext,
) -> Said:
    """Fork one child, which calls ``work`` for each item and writes what it returns, as JSON.

    Args:
        work: what to do with an item.
        items: what it is called with, one after the other.
        seconds: of computing in all; then the system ends the child, however busy the machine is.
        patience: seconds by the clock, for a child that waits.
        memory: bytes that the child may take on top of what this process has.
        each: seconds of computing for one item; 0 is no such limit.
        around: entered in the child before the first item.

    The child's prints are discarded, and what it has started ends with it.
    """
    reading, writing = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a kernel has threads; the child uses none
        child = os.fork()
    if child == 0:
        _be_the_child(work, items, around, (seconds, each, memory), writing)
    os.close(writing)
    too_slow, used = True, 0.0
    received: list[bytes] = []
    lines = size = 0
    deadline = time.monotonic() + patience
    try:
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([reading], [], [], left)[0]:
                break
            chunk = os.read(reading, 1 << 20)
            received.append(chunk)
            lines, size = lines + chunk.count(b"\n"), size + len(chunk)
            # Something that it started may still hold the pipe.
            if not chunk or lines >= len(items) or size > MOST:
                too_slow = False
                break
    finally:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(child, signal.SIGKILL)
        os.close(reading)
        with contextlib.suppress(ChildProcessError):
            _, status, usage = os.wait4(child, 0)
            used = usage.ru_utime + usage.ru_stime
            stopped = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            too_slow |= stopped in (signal.SIGXCPU, signal.SIGPROF)
    return Said(b"".join(received).split(b"\n")[:-1][: len(items)], too_slow, used)


def _be_the_child(
    work: Callable[[Any], Any],
    items: Sequence[Any],
    around: Callable[[], AbstractContextManager],
    limits: tuple[float, float, int],
    pipe: int,
) -> None:
    """Never returns."""
    seconds, each, memory = limits
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU, signal.SIGPROF):
            signal.signal(number, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.closerange(3, pipe)  # the kernel's sockets and files, so that nothing can be written there
        os.closerange(pipe + 1, 65536)
        limit_memory(memory)
        limit_time(seconds)
        torch.set_num_threads(1)
        with around():
            for item in items:
                signal.setitimer(signal.ITIMER_PROF, each)
                line = json.dumps(work(item)).encode() + b"\n"
                while line:
                    line = line[os.write(pipe, line) :]
    finally:
        os._exit(0)


def limit_memory(more: int) -> None:
    """Let this process, and those that it starts, take ``more`` bytes on top of what it has, for good.

    If the system does not say how much it has, the limit does not change.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not Path("/proc/self/statm").exists():
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + more if hard < 0 else min(used + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def limit_time(seconds: float) -> None:
    """Let this process compute for so many seconds, rounded up, for good."""
    import resource

    whole = math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
