"""Puts a student's processes into a control group of Linux, with limits of memory, CPU and processes.

The kernel enforces them for all processes of a student together: the server, the kernels and what they start.
If the group's memory is full, Linux ends the largest process of that group, which is a kernel.
"""

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OURS = "mha-hub"
PERIOD = 100_000  # microseconds, over which the share of the processors is counted
PROCESSES = 400
FILES = 1024  # open files and connections of a process


def settings(memory: int, cpu: float, version: int) -> dict[str, dict[str, str]]:
    """``{controller: {file: value}}``, in the names of version 1 or 2 of control groups."""
    quota = str(int(cpu * PERIOD))
    if version == 2:
        memory_files = {"memory.max": str(memory), "memory.swap.max": "0"}
        return {"": memory_files | {"cpu.max": f"{quota} {PERIOD}", "pids.max": str(PROCESSES)}}
    return {
        "memory": {"memory.limit_in_bytes": str(memory)},
        "cpu": {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": quota},
        "pids": {"pids.max": str(PROCESSES)},
    }


def group(name: str, memory: int, cpu: float, root: Path = CGROUPS) -> list[str]:
    """Make or update the group of one student.

    Returns:
        the files into which a process writes 0 to enter the group.

    Raises:
        OSError: control groups cannot be written here, for example in a container without that right.
    """
    version = 2 if (root / "cgroup.controllers").exists() else 1
    if version == 2:
        for folder in (root, root / OURS):
            folder.mkdir(exist_ok=True)
            (folder / "cgroup.subtree_control").write_text("+memory +cpu +pids")
    entries = []
    for controller, files in settings(memory, cpu, version).items():
        folder = root / controller / OURS / name
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        for file, value in files.items():
            if file != "memory.swap.max" or (folder / file).exists():  # absent on a kernel without swap
                (folder / file).write_text(value)
        entries.append(str(folder / "cgroup.procs"))
    return entries


def in_bytes(text: str) -> int:
    """The bytes of a setting such as ``2G`` or ``512M``."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    return int(float(text[:-1]) * units[text[-1]]) if text[-1:] in units else int(text)


def enter(entries: list[str]) -> None:
    """Move this process, and all that it starts from now on, into the group."""
    for entry in entries:
        handle = os.open(entry, os.O_WRONLY)
        os.write(handle, b"0")
        os.close(handle)
