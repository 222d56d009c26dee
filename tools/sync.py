"""Copy each fact from its one place to all others that repeat it: ``python -m tools.sync``.

The repository's address is in ``pyproject.toml``; a chapter's title and promise are in its first cell; its
minutes are counted; an exercise's points are in the package. The launch links and the set-up cell of every
chapter, README's table, the teacher's table of exercises, the order of the exercises, and the address in
``CITATION.cff`` are made from these. The colours of the explorables' scripts are those of Python.
``check`` writes nothing and names the files that are out of date. ``publish ADDRESS``
changes the address first.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mha_course.exercises import find
from mha_course.explore import _widget
from mha_course.quiz import EXIT_FORMS, EXIT_QUIZ, FORMS, SHORT_TEST, _paper
from tools.notebooks import clean, files, read_whole
from tools.pace import EXERCISE, LEFT_OUT, has_optional_parts, minutes

ROOT = Path(__file__).parents[1]
PAPER = {
    "short-test": (_paper.sheet, SHORT_TEST, FORMS),
    "short-test-key": (_paper.key, SHORT_TEST, FORMS),
    "exit-quiz": (_paper.sheet, EXIT_QUIZ, EXIT_FORMS),
    "exit-quiz-key": (_paper.key, EXIT_QUIZ, EXIT_FORMS),
}
BRANCH = "main"
# Before there is an address, a chapter has its package from the handout of a teacher only.
SET_UP = """\
from importlib.util import find_spec
from pathlib import Path

if find_spec("mha_course") is None:  # on Colab, for instance
    found = sorted(Path().glob("mha_lab-*.whl"))  # from a handout
    {source}
    %pip install -q {{source}}"""
FROM_ADDRESS = 'source = found[-1] if found else "git+{address}"'
FROM_HANDOUT = """if not found:
        raise ModuleNotFoundError(
            "The package of the course is missing. Put the file mha_lab-...-py3-none-any.whl, "
            "which your teacher gave you, into the folder of this notebook (on Colab: open Files "
            "on the left, and drop it there). Then run this cell again."
        )
    source = found[-1]"""
LAUNCH = re.compile(r"\n\nOpen it in \[Colab\]\(\S+\) or \[Binder\]\(\S+\)\.$")


@dataclass(frozen=True)
class Chapter:
    """What a chapter says about itself."""

    name: str
    title: str
    promise: str
    minutes: int
    exercises: tuple[tuple[str, str, int], ...]

    @classmethod
    def read(cls, path: Path, notebook: NotebookNode | None = None) -> "Chapter":
        """From its first cell, and the headings of its exercises: name, difficulty, minutes."""
        notebook = notebook or nbformat.read(path, as_version=4)
        first = re.match(r"# (.+)\n\n(.+)(?s:.*)\*\*Time\*\*: (\d+) minutes", notebook.cells[0].source)
        if not first:
            wanted = "a first cell with # TITLE, an empty line, a promise, and **Time**: N minutes"
            raise ValueError(f"{path.name}: expected {wanted}, got {notebook.cells[0].source!r}")
        title, promise, minutes = first.groups()
        text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        listed = tuple((n, how + more, int(m)) for n, how, m, more in EXERCISE.findall(text))
        return cls(path.stem, title, promise, int(minutes), listed)


def address(root: Path = ROOT) -> str:
    """The repository's address, from the only place that has it."""
    with (root / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]["urls"]["Repository"]


def published(address: str) -> bool:
    """Whether a repository can be at this address: GitHub allows no account name with an underscore."""
    return re.fullmatch(r"/[A-Za-z0-9-]+/[\w.-]+/?", urlsplit(address).path) is not None


def launch(address: str, path: str = "") -> dict[str, str]:
    """The addresses at which the repository, or one file of it, opens, by service."""
    repository = urlsplit(address).path.strip("/")
    tree = quote(f"lab/tree/{path}", safe="")
    return {
        "colab": f"https://colab.research.google.com/github/{repository}/blob/{BRANCH}/{path}",
        "binder": f"https://mybinder.org/v2/gh/{repository}/{BRANCH}?urlpath={tree}",
    }


def chapter_paths(folder: Path) -> list[Path]:
    """All chapters, in order."""
    return sorted(folder.glob("[0-9][0-9]_*.ipynb"))


def set_up(address: str) -> str:
    """The first code cell of a chapter."""
    return SET_UP.format(source=FROM_ADDRESS.format(address=address) if published(address) else FROM_HANDOUT)


def notebook(given: NotebookNode, name: str, address: str) -> NotebookNode:
    """The chapter with its minutes, its launch links, and the set-up cell before its first code."""
    synced = nbformat.from_dict(given)
    links = launch(address, f"notebooks/{name}.ipynb")
    first = synced.cells[0]
    first.source = LAUNCH.sub("", first.source)
    if published(address):
        first.source += f"\n\nOpen it in [Colab]({links['colab']}) or [Binder]({links['binder']})."
    code = next(i for i, cell in enumerate(synced.cells) if cell.cell_type == "code")
    if "%pip install" not in synced.cells[code].source:
        synced.cells.insert(code, new_code_cell(id=f"{name[:2]}-set-up"))
    synced.cells[code].source = set_up(address)
    synced.cells[code].metadata.setdefault("jupyter", {})["source_hidden"] = True  # nobody need read it
    time = f"{minutes(synced)} minutes{LEFT_OUT * has_optional_parts(synced)}"
    first.source = re.sub(rf"(?<=\*\*Time\*\*: )\d+ minutes({re.escape(LEFT_OUT)})?", time, first.source)
    return synced


def between(text: str, name: str, content: str) -> str:
    """The page with ``content`` between the comments that carry this name."""
    begin, end = f"<!-- {name}: make sync writes this -->\n", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no place for {name}: expected {begin.strip()} and {end}")
    return f"{before}{begin}{content.strip()}\n{end}{after}"


def chapter_table(chapters: list[Chapter]) -> str:
    """README's list of the chapters, each with its promise."""
    lines = ["| chapter | what you do in it | minutes |", "| --- | --- | --- |"]
    for chapter in chapters:
        link = f"[{chapter.title}](notebooks/{chapter.name}.ipynb)"
        lines.append(f"| {link} | {chapter.promise} | {chapter.minutes} |")
    return "\n".join(lines)


def exercise_table(chapters: list[Chapter]) -> str:
    """The teacher's list of the exercises."""
    lines = ["| chapter | exercise | level | minutes | points |", "| --- | --- | --- | --- | --- |"]
    for chapter in chapters:
        for name, difficulty, time in chapter.exercises:
            points = find(name).points
            lines.append(f"| {chapter.name[:2]} | `{name}` | {difficulty} | {time} | {points} |")
    most = {
        chapter.name[:2]: sum(find(name).points for name, *_ in chapter.exercises) for chapter in chapters
    }
    lines += [
        "",
        "Maximum points of a chapter: " + ", ".join(f"{name}: {n}" for name, n in most.items()) + ".",
    ]
    return "\n".join(lines)


def synced(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Each file that repeats something, with the text that it should have."""
    where, paths = address(root), chapter_paths(root / "notebooks")
    whole = {path: notebook(read_whole(path), path.stem, where) for path in paths}
    chapters = [Chapter.read(path, whole[path]) for path in paths]
    for path in paths:
        yield path, files(path, clean(whole[path], path.stem))[path]
    readme = (root / "README.md").read_text(encoding="utf-8")
    yield root / "README.md", between(readme, "chapters", chapter_table(chapters))
    teaching = root / "docs" / "teaching.md"
    yield teaching, between(teaching.read_text(encoding="utf-8"), "exercises", exercise_table(chapters))
    names = [name for chapter in chapters for name, _, _ in chapter.exercises]
    yield root / "mha_course" / "exercises" / "order.txt", "\n".join(names) + "\n"
    for name, (make, asked, seeds) in PAPER.items():
        page = root / "docs" / f"{name}.md"
        forms = [f"## {title.capitalize()}\n\n{make(asked, seed)}" for title, seed in seeds.items()]
        yield page, between(page.read_text(encoding="utf-8"), "forms", "\n\n".join(forms))
    yield root / "mha_course" / "explore" / "colours.js", _widget.colours()
    citation = root / "CITATION.cff"
    text = re.sub(r"(?m)^repository-code: .*\n", "", citation.read_text(encoding="utf-8"))
    line = f'repository-code: "{where}"\n' if published(where) else ""
    yield citation, re.sub(r"(?m)^version: .*\n", lambda found: found[0] + line, text)


def publish(where: str, root: Path = ROOT) -> int:
    """Write the address of the repository, and all that is made from it; 2 if it does not fit."""
    if urlsplit(where)[:2] != ("https", "github.com") or not published(where):
        wanted = "an address such as https://github.com/ada/attention, where Colab and Binder find it"
        print(f"REPOSITORY: expected {wanted}, got {where!r}", file=sys.stderr)
        return 2
    git = ["git", "-C", root, "config", "--get-regexp", r"^remote\..*\.url$"]
    found = subprocess.run(git, capture_output=True, text=True, check=False, timeout=60).stdout
    remotes = re.findall(r"(?m)\S+$", found)
    ours = rf"(?i)github\.com[:/]{re.escape(urlsplit(where).path.strip('/'))}(\.git)?/?$"
    if remotes and not any(re.search(ours, remote) for remote in remotes):
        listed = ", ".join(remotes)
        print(f"REPOSITORY: {where} is no remote of this copy, which has {listed}", file=sys.stderr)
        return 2
    settings = root / "pyproject.toml"
    text = settings.read_text(encoding="utf-8").replace(f'"{address(root)}"', f'"{where.rstrip("/")}"')
    settings.write_text(text, encoding="utf-8", newline="\n")
    return main([], root) or main(["check"], root)


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write, or name, the files that are out of date."""
    if arguments[:1] == ["publish"] and len(arguments) == 2:
        return publish(arguments[1], root)
    if arguments not in ([], ["check"]):
        print(f"expected nothing, check, or publish ADDRESS, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    different = [(path, text) for path, text in synced(root) if path.read_text(encoding="utf-8") != text]
    for path, text in different:
        if arguments:
            print(f"{path.relative_to(root)}: out of date; run `make sync`", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(path.relative_to(root))
    return int(bool(arguments and different))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
