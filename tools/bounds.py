"""Constraints for an environment without the pins: ``python tools/bounds.py oldest`` or ``newest``.

``oldest`` fixes packages that learners install (the core, and the extras lab, class and pretrained) at the
lower bounds of ``pyproject.toml``, and packages that only tests use at their pins. ``newest`` fixes nothing:
pip takes the newest releases.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEARNERS = ("lab", "class", "pretrained")


def bounds(requirements: list[str]) -> dict[str, str]:
    """``{name: lower bound}``; every requirement is a name and a lower bound."""
    return dict(re.fullmatch(r"([\w.-]+)>=([\w.]+)", line).groups() for line in requirements)


def oldest(project: dict, pins: str) -> list[str]:
    """Learners' packages at their lower bounds, and packages that only tests use at their pins."""
    extras = {name: bounds(lines) for name, lines in project["optional-dependencies"].items()}
    learners = bounds(project["dependencies"])
    for name in LEARNERS:
        learners |= extras[name]
    testers = {name for extra in extras.values() for name in extra} - set(learners)
    pinned = {one_spelling(name): version for name, version in re.findall(r"(?m)^([\w.-]+)==(\S+)$", pins)}
    wanted = learners | {name: pinned[one_spelling(name)] for name in sorted(testers)}
    return [f"{name}=={version}" for name, version in wanted.items()]


def one_spelling(name: str) -> str:
    """A package's name in the form that all indexes compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main(which: str) -> None:
    """Print the constraints, one a line."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    print(f"# Written by tools/bounds.py {which}.")
    print(*({"oldest": oldest(project, pins), "newest": []}[which]), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
