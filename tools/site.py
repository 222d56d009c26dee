"""Build the website of the chapters from their stored outputs: ``python -m tools.site [OUT]``.

No notebook runs. The chapters are found by name and made ready for Sphinx in a temporary folder:
a picture becomes a file with its description, an explorable becomes that picture and the state that
``docs/site/host.js`` brings to life. Every warning of Sphinx, such as a link that leads nowhere, fails the
build. The website works from a plain folder as well as from a host, and requests nothing from other hosts.
"""

import argparse
import base64
import hashlib
import html
import json
import posixpath
import re
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
from nbformat import NotebookNode

from mha_lab.explore import _widget
from tools.sync import BRANCH, Chapter, address, between, chapter_paths

ROOT = Path(__file__).parents[1]
LOOK = ROOT / "docs" / "site"  # conf.py, templates, style and scripts
PICTURES = "_static/pictures"
LINK = re.compile(r"(\[[^\]]*\])\(([^)\s]+)\)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
CONTENTS = """
```{{toctree}}
:hidden:
:caption: {caption}

{pages}
```
"""


def anchor(heading: str) -> str:
    """JupyterLab's id of a heading: its text as shown, with a hyphen for each space."""
    return re.sub(r"[`*_]", "", heading).strip().replace(" ", "-")


# Text


def place(target: str, base: str) -> str:
    """Where a link of a file in the repository's folder ``base`` leads on the site.

    A file without a page leads to the repository. A target that is not a file does not change: it is code, or
    Sphinx says that it leads nowhere.
    """
    parts = urlsplit(target)
    path = posixpath.normpath(posixpath.join(base, parts.path))
    if parts.scheme or not parts.path or not (ROOT / path).exists():
        return target
    folder, name = posixpath.split(path)
    part = f"#{parts.fragment}" if parts.fragment else ""
    if path == "README.md":
        return f"index.md{part}"
    if folder == "figures":
        return path
    if (folder, Path(name).suffix) in {("docs", ".md"), ("notebooks", ".ipynb")}:
        return name + part
    return f"{address()}/blob/{BRANCH}/{path}{part}"


def relinked(text: str, base: str) -> str:
    """Markdown whose links lead to the site's pages."""
    return LINK.sub(lambda found: f"{found[1]}({place(found[2], base)})", text)


def contents(caption: str, pages: list[str]) -> str:
    """A part of the table of contents."""
    return CONTENTS.format(caption=caption, pages="\n".join(pages))


def index(readme: str, chapters: list[Chapter], others: list[str]) -> str:
    """README as the first page, with the chapters that exist, and the contents."""
    rows = ["| chapter | what you do in it | minutes |", "| --- | --- | --- |"]
    for chapter in chapters:
        rows.append(f"| [{chapter.title}]({chapter.name}.ipynb) | {chapter.promise} | {chapter.minutes} |")
    text = relinked(between(readme, "chapters", "\n".join(rows)), "")
    names = [chapter.name for chapter in chapters]
    return text + contents("Chapters", names) + contents("Behind the chapters", others)


# Outputs


def picture(data: str, alt: str, folder: Path) -> str:
    """An ``img`` with its description and its size; the file, named by its content, goes into ``folder``."""
    content = base64.b64decode(data)
    name = f"{hashlib.sha256(content).hexdigest()[:16]}.png"
    (folder / PICTURES).mkdir(parents=True, exist_ok=True)
    (folder / PICTURES / name).write_bytes(content)
    width, height = struct.unpack(">II", content[16:24])
    size = f'width="{width}" height="{height}"'
    return f'<img src="{PICTURES}/{name}" alt="{html.escape(alt)}" {size}>'


def explorable(start: dict[str, Any], still: str) -> str:
    """The picture, and the state for the host; the JSON has no ``<``, so no label can be markup."""
    state = json.dumps(start, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
    return f'<div class="explorable">{still}<script type="application/json">{state}</script></div>'


def shown(output: NotebookNode, folder: Path, where: str) -> NotebookNode:
    """One output as the site shows it: described pictures, and text without a terminal's colours."""
    output = nbformat.from_dict(output)
    if output.output_type == "stream":
        output.text = COLOURS.sub("", output.text)
        return output
    if output.output_type == "error":
        output.traceback = [COLOURS.sub("", line) for line in output.traceback]
        return output
    data = output.data
    if "image/png" in data:
        alt = output.metadata.get("image/png", {}).get("alt")
        if not alt:
            raise ValueError(f"{where}: a picture without a description")
        still = picture(data["image/png"], alt, folder)
        start = data.get(_widget.START)
        output.data = {"text/html": explorable(start, still) if start else still}
        output.metadata = {}
    elif "text/plain" in data:
        data["text/plain"] = COLOURS.sub("", data["text/plain"])
    return output


def ready(notebook: NotebookNode, name: str, folder: Path) -> NotebookNode:
    """A chapter as Sphinx gets it; its pictures go into ``folder``."""
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = relinked(cell.source, "notebooks")
        elif cell.cell_type == "code":
            where = f"{name}, cell {cell.execution_count}"
            cell.outputs = [shown(output, folder, where) for output in cell.outputs]
    return notebook


def modules() -> str:
    """All ES modules as texts in a plain script: a browser cannot import modules from a plain folder."""
    names = sorted(path.stem for path in _widget.HERE.glob("*.js") if path.stem != "shared")
    return f"globalThis.explorableModules = {json.dumps({name: _widget.module(name) for name in names})};\n"


# The build


def write(path: Path, text: str) -> None:
    """The same bytes on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def prepare(source: Path, notebooks: Path) -> None:
    """Fill ``source`` with the files that Sphinx needs."""
    shutil.copytree(LOOK, source, dirs_exist_ok=True)
    shutil.copytree(ROOT / "figures", source / "figures")
    write(source / "_static" / "modules.js", modules())
    paths = chapter_paths(notebooks)
    for path in paths:
        chapter = ready(nbformat.read(path, as_version=4), path.stem, source)
        write(source / path.name, nbformat.writes(chapter))
    documents = sorted((ROOT / "docs").glob("*.md"), key=lambda path: (path.stem != "teaching", path.stem))
    for path in documents:
        write(source / path.name, relinked(path.read_text(encoding="utf-8"), "docs"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    chapters = [Chapter.read(path) for path in paths]
    write(source / "index.md", index(readme, chapters, [path.stem for path in documents]))


def build(out: Path, notebooks: Path = ROOT / "notebooks") -> int:
    """Put the site into ``out`` and replace an older one; returns 0, or Sphinx's code if it failed."""
    from sphinx.cmd.build import build_main  # here: the tests of the pure functions do not need it

    if out.is_dir() and any(out.iterdir()) and not (out / "searchindex.js").exists():
        raise FileExistsError(f"{out} has something other than a site in it; delete it first")
    with tempfile.TemporaryDirectory() as made:
        source, trees, site = (Path(made, name) for name in ("source", "trees", "site"))
        prepare(source, notebooks)
        options = ["-q", "-W", "--keep-going", "-j", "2", "-b", "html", "-d", str(trees)]
        if failed := build_main([*options, str(source), str(site)]):
            return failed
        shutil.rmtree(site / "_sources", ignore_errors=True)
        for leftover in (site / ".buildinfo", site / "_static" / "webpack-macros.html", *site.rglob("*.map")):
            leftover.unlink(missing_ok=True)
        (site / ".nojekyll").touch()  # GitHub Pages would leave out _static
        (site / "notebooks").mkdir()
        for path in chapter_paths(notebooks):
            shutil.copy(path, site / "notebooks")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(site, out)
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks", help="where the chapters are")
    given = parser.parse_args(arguments)
    failed = build(given.out, given.notebooks)
    if not failed:
        print(given.out / "index.html")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
