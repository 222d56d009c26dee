"""The walls around a submission: no network, no gradebook, no home folder, an empty file system to write to.

``bubblewrap`` makes them from Linux namespaces, without root and without a service. ``podman`` and
``docker`` make them from a throwaway container of the image in ``Containerfile``. ``none`` is for
notebooks that you wrote yourself.
"""

import shutil
import site
import subprocess
import sys
from functools import cache
from pathlib import Path

import mha_lab

KINDS = ("bubblewrap", "podman", "docker", "none")
IMAGE = "mha-lab-grader"
WORKER = ["-m", "mha_lab.classroom.worker"]
# What a Python process needs from the machine, and nothing of anybody's home.
SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
ENVIRONMENT = {
    "HOME": "/tmp",
    "IPYTHONDIR": "/tmp/ipython",
    "LANG": "C.UTF-8",
    "MPLBACKEND": "agg",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "OMP_NUM_THREADS": "1",
    "PATH": "/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def command(kind: str, image: str = IMAGE, name: str = "mha-lab") -> list[str]:
    """What to run so that the worker runs inside the walls; ``name`` is the container's, if it is one.

    Raises:
        ValueError: ``kind`` is none of ``KINDS``.
    """
    if kind == "bubblewrap":
        return _bubblewrap()
    if kind in ("podman", "docker"):
        return _container(kind, image, name)
    if kind == "none":
        return [sys.executable, *WORKER]
    raise ValueError(f"isolation: expected one of {', '.join(KINDS)}, got {kind}.")


def _bubblewrap() -> list[str]:
    walls = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    walls += ["--uid", "65534", "--gid", "65534", "--hostname", "grader", "--cap-drop", "ALL"]
    walls += ["--proc", "/proc", "--dev", "/dev", "--size", str(256 * 2**20), "--tmpfs", "/tmp"]
    for path in SYSTEM:
        walls += ["--ro-bind-try", path, path]
    for path in _python_folders():
        walls += ["--ro-bind", str(path), str(path)]
    for name, value in (ENVIRONMENT | {"PYTHONPATH": str(Path(mha_lab.__file__).parents[1])}).items():
        walls += ["--setenv", name, value]
    return [*walls, "--chdir", "/tmp", sys.executable, *WORKER]


def _python_folders() -> list[Path]:
    """This Python, its packages and ``mha_lab``, but not the folder that ``mha_lab`` lies in."""
    found = {Path(sys.prefix), Path(sys.base_prefix), *map(Path, site.getsitepackages())}
    found.add(Path(mha_lab.__file__).parent)
    return sorted(path for path in found if path.exists() and Path("/usr") not in (path, *path.parents))


def tear_down(kind: str, name: str) -> None:
    """End what may still run: a container outlives the command that started it, the other walls do not."""
    if kind in ("podman", "docker"):
        subprocess.run([kind, "rm", "--force", name], capture_output=True, timeout=60, check=False)


def _container(engine: str, image: str, name: str) -> list[str]:
    walls = [engine, "run", "--rm", "--interactive", f"--name={name}", "--network=none", "--read-only"]
    walls += ["--tmpfs=/tmp:size=256m", "--memory=6g", "--cpus=1", "--pids-limit=256"]
    walls += ["--user=65534:65534", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    for variable, value in ENVIRONMENT.items():
        if variable != "PATH":
            walls += ["--env", f"{variable}={value}"]
    return [*walls, image, "python", *WORKER]


@cache
def why_not(kind: str, image: str = IMAGE) -> str:
    """Empty if these walls stand here, else one line that says what is missing."""
    if kind == "none":
        return ""
    program = command(kind, image)[0]
    if not shutil.which(program):
        return f"{program} is not installed (on Debian and Ubuntu: apt install {kind})"
    tried = subprocess.run(
        command(kind, image),
        input='{"steps": [], "seconds": 1}',
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if tried.returncode == 0:
        return ""
    return f"{program} does not run here: {tried.stderr.strip()[-300:] or 'it says nothing'}"
