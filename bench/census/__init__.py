"""The census of attention: every family of ``transformers``, rebuilt with our layer where it can be.

Random weights and small sizes, so it needs no network. Each family runs in a process of its own, which is
copied from one that has imported PyTorch and ``transformers``, and has limits of time and memory.

A newer ``transformers`` can change attention modules. This lists which, and the next line writes
``mha_course/chapters/census.csv`` anew. The last writes only the default sizes of its text decoders, in
seconds::

    .venv/bin/python -m pytest -m slow tests/chapters/test_census.py
    .venv/bin/python -m bench census
    .venv/bin/python -m bench defaults
"""

import csv
import json
import os
import resource
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mha_course.chapters import published

SECONDS, BYTES = 120, 8 * 2**30  # of one family
NO_SOFTMAX = (
    "holds another",
    "another kernel",
    "delta rule",
    "state space",
    "linear attention",
    "deformable",
)


def report() -> None:
    """Take the census, write the table of the package, and print the shares."""
    if find_spec("transformers") is None:
        sys.exit("The census needs transformers: pip install 'mha-lab[pretrained]'")
    from bench.census import families

    names = list(families.files())
    found = [row for _, rows in tqdm(taken(names), total=len(names), unit="family") for row in rows]
    write(found)
    for line in shares(found):
        print(line)


def write(rows: Iterable[dict[str, Any]]) -> None:
    """The table of the package."""
    with published.CENSUS.open("w", newline="") as file:
        writer = csv.DictWriter(file, published.CENSUS_COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: (row["folder"], row["file"], row["class"])))


def fill() -> None:
    """Write the default sizes into the table as it is; what was measured stays."""
    if find_spec("transformers") is None:
        sys.exit("The census needs transformers: pip install 'mha-lab[pretrained]'")
    import transformers

    from bench.census import defaults

    with published.CENSUS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if (of := rows[0]["version"]) != transformers.__version__:
        sys.exit(
            f"The table is of transformers {of}, this is {transformers.__version__}: take the census anew"
        )
    write([defaults.filled(row) for row in tqdm(rows, unit="class")])


def taken(names: Iterable[str], at_once: int | None = None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each family's name and rows, in the order in which they end."""
    import torch
    import transformers.generation
    import transformers.modeling_utils

    from bench.census import families

    transformers.logging.set_verbosity_error()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a copy of a process has no threads
    left, running = list(names)[::-1], {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            while left or running:
                while left and len(running) < (at_once or os.cpu_count()):
                    name = left.pop()
                    running[_start(name, Path(folder) / name)] = name
                process, _ = os.wait()
                if process in running:
                    name = running.pop(process)
                    file = Path(folder) / name
                    rows = json.loads(file.read_text()) if file.exists() else families.stopped(name)
                    yield name, [{"folder": name.partition(".")[0], **row} for row in rows]
    finally:
        torch.set_num_threads(threads)


def _start(name: str, file: Path) -> int:
    """A copy of this process that writes the rows of one family; its id."""
    process = os.fork()
    if process:
        return process
    try:
        from bench.census import families

        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 2))
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                rows = families.rows(name)
            except MemoryError:
                raise  # the family is too large
            except Exception as error:  # a fault of the census, which has a reason of its own
                rows = families.stopped(name, "error", repr(error))
        part = file.with_suffix(".part")
        part.write_text(json.dumps(rows))
        part.rename(file)
    finally:
        os._exit(0)


def shares(rows: Iterable[dict[str, Any]]) -> list[str]:
    """How many classes and families with a softmax are equal, of all and of text decoders, and why not."""
    rows = [row for row in rows if row["reason"] not in NO_SOFTMAX]
    lines = []
    for title, some in (("all", rows), ("text decoders", [r for r in rows if r["kind"] == "text decoder"])):
        families = {row["folder"]: True for row in some}
        for row in some:
            families[row["folder"]] &= row["result"] == "equal"
        for what, equal in (
            ("classes", [r["result"] == "equal" for r in some]),
            ("families", list(families.values())),
        ):
            lines.append(
                f"{title}: {sum(equal)} of {len(equal)} {what} equal, {sum(equal) / max(1, len(equal)):.1%}"
            )
    reasons = Counter(row["reason"] or "differs" for row in rows if row["result"] != "equal")
    return [*lines, *(f"{count:4} {reason}" for reason, count in reasons.most_common())]
