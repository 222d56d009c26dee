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
import io
import json
import math
import posixpath
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
from nbformat import NotebookNode
from PIL import Image

from mha_course import explore
from mha_course.chapters.published import census
from mha_course.explore import _widget
from mha_lab import toy
from tools import attention_map, mistakes, reasons, sheets
from tools.notebooks import PREDICT, read_whole
from tools.pace import minutes
from tools.sync import BRANCH, LAUNCH, Chapter, address, between, chapter_paths, chapter_table, published

ROOT = Path(__file__).parents[1]
LOOK = ROOT / "docs" / "site"  # conf.py, templates, style and scripts
ANSWERS = "docs/wrong-answers"
PICTURES = "_static/pictures"
SCRIPTS = "_static/explorables"
SHARED = "/* shared */"  # in a module's text, for what docs/site/_static/host.js puts there
READABLE = 11  # pixels: no text of a picture is smaller
LARGE = 10_000  # characters of a state, such as recorded weights, that wait until its explorable is near
ASKED = 80_000  # characters, such as a model's weights, that wait until the reader asks for them
ICONS = re.compile(r'@font-face\{[^}]*\}|[^{}]*\{--fa:"[^}]*\}')  # thousands: style.css draws those in use
LONG = 8  # lines of code: on paper, such a cell need not be on one page with what comes out
LINK = re.compile(r"(\[[^\]]*\])\(([^)\s]+)\)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
PROMPTS = {"code_prompt_show": "I have predicted: show the {type}", "code_prompt_hide": "Hide the {type}"}
PICTURE = re.compile(r"<img [^>]*>")
FIGURE = re.compile(r"!\[([^\]]*)\]\((?:\.\./)?(figures/[^)]+)\)")
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PART = re.compile(r'(\w+)\(?\["<b>([^<"]*)</b><br/>([^<"]*)"\]\)?')  # name["<b>title</b><br/>text"]
ARROW = re.compile(r"(\w+) -->(?:\|([^|]*)\|)? (\w+)")  # name -->|what is passed| name, or without a label
EXPLORABLE = re.compile(
    r'<div class="explorable[a-z_ ]*">(<img [^>]*>)<script type="application/json">(.*)</script></div>'
)
CONTENTS = """
```{{toctree}}
:hidden:
{caption}
{pages}
```
"""
# In this order. What is not here is behind the chapters.
FOR_TEACHERS = (
    "teaching",
    "before-the-first-lesson",
    "grading",
    "class-report",
    "mistakes",
    "short-test",
    "short-test-key",
    "exit-quiz",
    "exit-quiz-key",
    "handout-view",
    "syllabus",
)


def anchor(heading: str) -> str:
    """JupyterLab's id of a heading: its text as shown, with a hyphen for each space."""
    return re.sub(r"[`*]", "", heading).strip().replace(" ", "-")


def step(chapter: str, heading: str) -> str:
    """The address of a step on the site."""
    return f"{chapter}.html#{anchor(heading)}"


# Text


def place(target: str, base: str) -> str | None:
    """Where a link of a file in the repository's folder ``base`` leads on the site.

    A file without a page leads to the repository, or nowhere (None) before this is published. A target that
    is not a file does not change: it is code, or Sphinx says that it leads nowhere.
    """
    parts = urlsplit(target)
    path = posixpath.normpath(posixpath.join(base, parts.path))
    if parts.scheme or not parts.path or not (ROOT / path).exists():
        return target
    folder, name = posixpath.split(path)
    part = f"#{parts.fragment}" if parts.fragment else ""
    if path == "README.md":
        return f"readme.md{part}"
    if (folder, Path(name).suffix) in {
        ("docs", ".md"),
        ("docs", ".html"),
        (ANSWERS, ".md"),
        ("notebooks", ".ipynb"),
    }:
        return name + part
    return f"{address()}/blob/{BRANCH}/{path}{part}" if published(address()) else None


def relinked(text: str, base: str) -> str:
    """Markdown whose links lead to the site's pages; what leads nowhere is text."""

    def led(found: re.Match[str]) -> str:
        there = place(found[2], base)
        return found[1][1:-1] if there is None else f"{found[1]}({there})"

    return LINK.sub(led, text)


def contents(pages: list[str], caption: str = "") -> str:
    """A part of the table of contents; without a caption, its pages are not in the sidebar."""
    return CONTENTS.format(caption=f":caption: {caption}\n" if caption else "", pages="\n".join(pages))


def first_page(
    text: str, chapters: list[Chapter], notebooks: list[NotebookNode], drawn: dict[str, str], flow: str
) -> str:
    """The first page: two explorables, and a card for each chapter.

    ``drawn`` has a picture for some of the chapters' cards. ``flow`` is the first explorable.
    """
    first, soon = chapters[0], minutes(notebooks[0], before="## 2 ")
    cards = [
        (chapter, drawn.get(chapter.name) or still(notebook))
        for chapter, notebook in zip(chapters, notebooks, strict=True)
    ]
    parts = {
        "flow": flow,
        "start": f'<a class="start" href="{first.name}.html">Start, {soon} minutes</a> for a look '
        f"inside a trained model. All of the first chapter takes {first.minutes}.",
        "cards": f'<div class="cards">{"".join(card(*each) for each in cards)}</div>',
        "model": stored(notebooks, "model"),
    }
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    return text


def card(chapter: Chapter, still: str) -> str:
    """A link to a chapter: a picture, title, promise and minutes."""
    still = re.sub('alt="[^"]*"', 'alt=""', still)  # a decoration: the link has words
    title, promise = (html.escape(each.replace("`", "")) for each in (chapter.title, chapter.promise))
    return (
        f'<a class="chapter-card" href="{chapter.name}.html">{still}<b>{title}</b> '
        f"<span>{promise}</span> <small>{chapter.minutes} minutes</small></a>"
    )


def still(notebook: NotebookNode) -> str:
    """The first picture of a chapter that neither asks nor answers, or nothing."""
    cells = [cell for cell in notebook.cells if PREDICT not in cell.metadata.get("tags", [])]
    shown = (page for page in pages_of(cells) if '"module": "predict"' not in page)
    return next((found[0] for found in map(PICTURE.search, shown) if found), "")


def saw(source: Path) -> str:
    """What *saw* gets, with all its numbers: the chapters hold some back until the reader has predicted."""
    query, key, value = (toy.embeddings() @ w for w in toy.single_head_weights())
    flow = explore.flow(toy.tokens(), query, key, value, row=toy.tokens().index("saw"), play=True)
    data, metadata = flow._repr_mimebundle_()
    return explorable(
        flow.start(), picture(base64.b64decode(data["image/png"]), metadata["image/png"]["alt"], source)
    )


def stored(notebooks: list[NotebookNode], module: str) -> str:
    """The first explorable of this kind that a chapter has stored, or nothing if there is none."""
    shown = pages_of([cell for notebook in notebooks for cell in notebook.cells])
    for found in (EXPLORABLE.fullmatch(page) for page in shown):
        if found and (start := json.loads(found[2]))["module"] == module:
            return explorable(start, found[1])
    return ""


def pages_of(cells: list[NotebookNode]) -> list[str]:
    """The HTML that the cells show."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]


# Outputs


def picture(content: bytes, alt: str, folder: Path) -> str:
    """An ``img`` with its description, its size, and how narrow it may become before its text is too small.

    The file, named by its content, goes into ``folder``.
    """
    name = f"{hashlib.sha256(content).hexdigest()[:16]}.png"
    (folder / PICTURES).mkdir(parents=True, exist_ok=True)
    (folder / PICTURES / name).write_bytes(content)
    image = Image.open(io.BytesIO(content))
    sharpness = image.info.get("dpi", (100, 100))[0] / 100  # of the picture's pixels, for one of the page's
    width, height = (round(side / sharpness) for side in image.size)
    text = float(image.info.get("smallest", READABLE))  # the size of its smallest letters
    size = f'width="{width}" height="{height}" style="--readable: {math.ceil(width * READABLE / text)}px"'
    return f'<img src="{PICTURES}/{name}" alt="{html.escape(alt)}" {size} data-text="{text}">'


def framed(still: str) -> str:
    """A picture in a box that scrolls sideways where it is too narrow for the picture's text."""
    return f'<div class="picture"><div>{still}</div></div>'


def explorable(start: dict[str, Any], still: str) -> str:
    """The picture, and the state for the host; the JSON has no ``<``, so no label can be markup."""
    state = json.dumps(start, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
    kind = " ".join(["explorable", start["module"], *(["asked"] if start.get("asked") else [])])
    return f'<div class="{kind}">{still}<script type="application/json">{state}</script></div>'


def script(name: str, text: str, folder: Path) -> None:
    """``text`` as a plain script: from a plain folder, a browser fetches nothing else."""
    write(
        folder / SCRIPTS / f"{name}.js",
        f"(globalThis.explorables ??= {{}})[{name!r}] = {json.dumps(text)};\n",
    )


def lighter(start: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The state with a reference in the place of what is large, which goes into ``folder``."""
    state = dict(start["state"])
    large = sum(len(value) for value in state.values() if isinstance(value, str) and len(value) > LARGE)
    for key, value in state.items():
        if isinstance(value, str) and len(value) > LARGE:
            state[key] = {"script": hashlib.sha256(value.encode()).hexdigest()[:16]}
            script(state[key]["script"], value, folder)
    return start | {"state": state} | ({"asked": True} if large > ASKED else {})


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
        still = picture(base64.b64decode(data["image/png"]), alt, folder)
        start = data.get(_widget.START)
        output.data = {"text/html": explorable(lighter(start, folder), still) if start else framed(still)}
        output.metadata = {}
    elif "text/plain" in data:
        data["text/plain"] = COLOURS.sub("", data["text/plain"])
    return output


def ready(notebook: NotebookNode, name: str, folder: Path) -> NotebookNode:
    """A chapter as Sphinx gets it; its pictures go into ``folder``."""
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            source = LAUNCH.sub("", cell.source)  # a page has these links at its top
            cell.source = relinked(source, "notebooks")
        elif cell.cell_type == "code":
            where = f"{name}, cell {cell.execution_count}"
            cell.outputs = [shown(output, folder, where) for output in cell.outputs]
            tags = cell.metadata.get("tags", [])
            if PREDICT in tags and cell.outputs:
                cell.metadata.tags = [*tags, "hide-output"]
                cell.metadata.mystnb = nbformat.from_dict(PROMPTS)
            if cell.source.count("\n") >= LONG:
                cell.metadata.tags = [*cell.metadata.get("tags", []), "long"]
            if cell.metadata.get("jupyter", {}).get("source_hidden"):
                cell.metadata.tags = [*cell.metadata.get("tags", []), "hide-input"]
    return notebook


# The build


def write(path: Path, text: str) -> None:
    """The same bytes on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def with_figures(path: Path, source: Path) -> str:
    """The text of a guide, with the pictures of ``figures/`` as those of a chapter."""
    return FIGURE.sub(
        lambda found: framed(picture((ROOT / found[2]).read_bytes(), found[1], source)),
        path.read_text(encoding="utf-8"),
    )


def diagram(text: str) -> str:
    """A Mermaid flowchart as rows of boxes, the arrows down: no script draws it, and a phone has room for it.

    A box says where its arrows lead: what it imports from, or, if they have labels, what it passes to whom.
    """
    boxes, arrows = {}, []
    for line in filter(None, (line.strip() for line in text.splitlines()[1:])):
        if part := PART.fullmatch(line):
            boxes[part[1]] = part[2], part[3]
        elif arrow := ARROW.fullmatch(line):
            arrows.append(arrow.groups())
        else:
            raise ValueError(f"expected a part or an arrow, got {line!r}")

    def height(name: str) -> int:
        return max((1 + height(end) for begin, _, end in arrows if begin == name), default=0)

    rows: dict[int, list[str]] = {}
    for name, (title, said) in boxes.items():
        leads = [(label, boxes[end][0]) for begin, label, end in arrows if begin == name]
        ends = ", ".join(f"{label} to {title}" if label else title for label, title in leads)
        ends = f"{'passes' if any(label for label, _ in leads) else 'imports from'} {ends}"
        below = f"<small>{html.escape(ends)}</small>" if leads else ""
        box = f"<div><b>{html.escape(title)}</b> <span>{html.escape(said)}</span> {below}</div>"
        rows.setdefault(height(name), []).append(box)
    listed = (f"<li>{''.join(rows[i])}</li>" for i in sorted(rows, reverse=True))
    return f'<ol class="parts">{"".join(listed)}</ol>'


def prepare(source: Path, notebooks: Path) -> None:
    """Fill ``source`` with the files that Sphinx needs."""
    shutil.copytree(LOOK, source, dirs_exist_ok=True)
    script("shared", _widget.shared(), source)
    script("alone", (_widget.HERE / "alone.js").read_text(encoding="utf-8"), source)
    for module in explore.__all__:
        script(module, _widget.module(module, SHARED), source)
    paths = chapter_paths(notebooks)
    whole = [read_whole(path) for path in paths]
    made = [ready(notebook, path.stem, source) for path, notebook in zip(paths, whole, strict=True)]
    for path, chapter in zip(paths, made, strict=True):
        write(source / path.name, nbformat.writes(chapter))
    for path in (ROOT / "docs").glob("*.html"):  # an example to open or keep
        shutil.copy(path, source)
    chapters = [Chapter.read(path, notebook) for path, notebook in zip(paths, whole, strict=True)]
    documents, answers = (sorted((ROOT / folder).glob("*.md")) for folder in ("docs", ANSWERS))
    for path in (*documents, *answers):
        folder = path.parent.relative_to(ROOT).as_posix()
        text = with_figures(path, source)
        text = relinked(mistakes.page(text, chapters) if path.stem == "mistakes" else text, folder)
        text = MERMAID.sub(lambda found: diagram(found[1]), text)
        if path.stem == "map_of_attention":
            text = attention_map.page(text, census(), step)
        below = contents([each.stem for each in answers]) if path.stem == "check-matrix" else ""
        write(source / path.name, text + below)
    for chapter, notebook in zip(chapters, whole, strict=True):
        page = relinked(sheets.sheet(chapter, notebook), "notebooks")
        write(source / f"{sheets.name_of(chapter)}.md", page)
    write(source / "sheets.md", sheets.contents(chapters))
    for name, page in reasons.pages(chapters, whole).items():
        write(source / f"{name}.md", relinked(page, "notebooks"))
    readme = relinked(with_figures(ROOT / "README.md", source), "")
    table = chapter_table(chapters).replace("](notebooks/", "](")
    write(source / "readme.md", between(readme, "chapters", table))
    text = (source / "first.md").read_text(encoding="utf-8")
    (source / "first.md").unlink()
    names = [path.stem for path in documents]
    parts = {
        "Chapters": [chapter.name for chapter in chapters],
        "For teachers": [*(name for name in FOR_TEACHERS if name in names), "sheets"],
        "Behind the chapters": [
            "readme",
            "reasons",
            *(name for name in names if name not in FOR_TEACHERS),
        ],
    }
    figures = {path.stem: picture(path.read_bytes(), "", source) for path in (ROOT / "figures").glob("*.png")}
    flow = saw(source)
    text = first_page(text, chapters, made, figures, flow)
    write(source / "index.md", text + "".join(contents(pages, name) for name, pages in parts.items()))


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
        shutil.rmtree(site / "_static" / "vendor")  # icon fonts, larger than a chapter
        (site / "_static" / "scripts" / "fontawesome.js").unlink()
        theme = site / "_static" / "styles" / "pydata-sphinx-theme.css"
        write(theme, ICONS.sub("", theme.read_text(encoding="utf-8")))
        (site / ".nojekyll").touch()  # GitHub Pages would leave out _static
        for name in ("LICENSE", "LICENSE-text"):  # a browser shows a .txt and saves the other
            shutil.copy(ROOT / name, site / f"{name}.txt")
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
