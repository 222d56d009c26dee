"""Run the parts of ``make test`` one after the other: ``python -m tools.gate PART ...``.

Each part is a target of the Makefile. A part that fails stops none of the others. The end says first what
failed and how to run that alone, then how long each part took.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def run(parts: list[str]) -> dict[str, tuple[int, float, str]]:
    """``{part: (exit status, seconds, what it said failed)}``."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(parts, start=1):
            print(f"\n[{number}/{len(parts)}] make {part}", flush=True)
            said = Path(folder) / part
            start = time.perf_counter()
            status = subprocess.call(
                ["make", "--no-print-directory", part], env=os.environ | {"FAILED": str(said)}
            )
            seconds = time.perf_counter() - start
            found[part] = status, seconds, said.read_text(encoding="utf-8") if said.exists() else ""
    return found


def summary(found: dict[str, tuple[int, float, str]]) -> str:
    """First what failed, and the commands for it; then the times."""
    lines = []
    for part, (status, _, said) in found.items():
        if status:
            lines.append(f"FAILED: make {part}")
            lines += [f"    {line}" for line in said.splitlines()]
    if not lines:
        lines = ["all green"]
    total = sum(seconds for _, seconds, _ in found.values())
    times = ", ".join(f"{part} {seconds:.0f} s" for part, (_, seconds, _) in found.items())
    return "\n".join([*lines, f"{times}; in all {total / 60:.1f} min"])


def main(parts: list[str]) -> int:
    """0 if every part is green."""
    found = run(parts)
    print(f"\n{summary(found)}", flush=True)
    return int(any(status for status, _, _ in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
