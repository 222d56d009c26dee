"""The picture of docs/architecture.md: how data flows through the project, and where something new goes.

The arrows inside the package are compared with what its modules import. An import that the picture
does not show, or one that it shows and nobody makes, is an error: draw it or undo it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

PACKAGE = Path(__file__).parents[1] / "mha_lab"
INK, CODE, NEW, OUTSIDE, GROUND = "#222222", "#dceaf6", "#f6e3cf", "#e4e4e4", "#f7f9fb"
LINE = 0.36  # from one line of text to the next
LEGEND = "Solid arrow: imported by. Dashed arrow: handed over when it runs. Orange: something new goes here."

# Each module or folder of the package belongs to one box.
GROUPS = {
    "toy": ("toy",),
    "functions": ("attention", "heads", "masks"),
    "layers": ("multihead", "scores"),
    "later": (
        "blocked", "cost", "language_model", "lookups", "positions", "pretrained", "stories", "traffic",
        "variants",
    ),
    "pictures": ("plot", "diagrams"),
    "explore": ("explore",),
    "exercises": ("check", "solutions"),
    "classroom": ("classroom",),
}  # fmt: skip
EVERYWHERE = {"__init__", "_expect"}  # the first imports the core, the second is imported by all


@dataclass(frozen=True)
class Box:
    """A rounded box around its centre: a title, plain lines, and at the bottom where something new goes."""

    x: float
    y: float
    width: float
    height: float
    title: str
    lines: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    colour: str = CODE


Point = tuple[float, float]

BOXES = {
    "yours": Box(3.5, 13.3, 6.2, 1.0, "your tensors", ("from a chapter, a script, a test",), colour=OUTSIDE),
    "toy": Box(9.7, 11.9, 4.2, 1.0, "toy", ("“a dog saw a cat” as tensors",)),
    "functions": Box(3.5, 10.2, 6.2, 1.4, "attention · heads · masks", (
        "pure functions: tensors in, tensors out", "masks: boolean, True = may attend")),
    "layers": Box(5.2, 8.3, 2.8, 1.0, "multihead · scores", ("modules with weights",)),
    "later": Box(9.2, 9.2, 3.2, 3.0, "chapters 06 to 10", (
        "variants, lookups,", "blocked, cost, traffic,", "positions, stories,", "language_model,",
        "pretrained")),
    "explore": Box(1.65, 6.0, 2.5, 2.4, "explore", ("pictures to move", "in the browser"), (
        "new explorable:", "NAME.js, _NAME.py")),
    "pictures": Box(4.95, 6.0, 3.3, 2.4, "plot · diagrams", ("pictures, described", "in words"), (
        "new plot:", "a function in plot.py")),
    "exercises": Box(9.7, 6.0, 4.2, 2.4, "check · solutions", (
        "tries the learner’s function,", "names the mistake"), ("new exercise:", "solutions/NAME.py")),
    "classroom": Box(9.7, 3.7, 4.2, 1.0, "classroom", ("walls, and points for nbgrader",)),
    "notebooks": Box(3.2, 1.45, 5.6, 1.7, "notebooks", ("the chapters, stored with their outputs",), (
        "new chapter: NN_name.ipynb",)),
    "class": Box(9.7, 1.45, 4.2, 1.0, "a class", ("assignments and submissions",), colour=OUTSIDE),
    "site": Box(3.2, -0.75, 5.6, 1.0, "site", ("chapters and docs, to read",), colour=OUTSIDE),
    "tools": Box(9.7, -0.75, 4.2, 1.0, "tools", ("run chapters, draw figures/",), colour=OUTSIDE),
}  # fmt: skip
FRAME = Box(6.1, 7.8, 11.8, 9.6, "mha_lab", colour=GROUND)

# (who gives, who imports it): from where to where.
IMPORTED: dict[tuple[str, str], tuple[Point, Point]] = {
    ("functions", "layers"): ((5.2, 9.5), (5.2, 8.8)),
    ("functions", "later"): ((6.6, 10.2), (7.6, 10.2)),
    ("layers", "later"): ((6.6, 8.3), (7.6, 8.3)),
    ("functions", "explore"): ((1.65, 9.5), (1.65, 7.2)),
    ("functions", "pictures"): ((3.55, 9.5), (3.55, 7.2)),
    ("layers", "pictures"): ((5.2, 7.8), (5.2, 7.2)),
    ("pictures", "explore"): ((3.3, 6.0), (2.9, 6.0)),
    ("toy", "exercises"): ((11.3, 11.4), (11.3, 7.2)),
    ("later", "exercises"): ((9.2, 7.7), (9.2, 7.2)),
    ("exercises", "classroom"): ((9.7, 4.8), (9.7, 4.2)),
}
CHAPTERS = ((1.65, 3.0), (1.65, 2.3))  # import from all over the package
HANDED: tuple[tuple[Point, Point], ...] = (
    ((3.5, 12.8), (3.5, 10.9)),
    ((7.6, 11.9), (5.4, 10.9)),
    ((5.6, 2.3), (7.9, 4.8)),
    ((6.0, 1.45), (7.6, 1.45)),
    ((9.7, 1.95), (9.7, 3.2)),
    ((3.2, 0.6), (3.2, -0.25)),
    ((7.6, -0.75), (6.0, -0.75)),
)
WORDS: tuple[tuple[Point, str, str], ...] = (
    ((1.85, 2.65), "left", "chapters import any of it"),
    ((6.3, 3.5), "right", "the learner’s function"),
    ((6.8, 1.05), "center", "make\nclassroom"),
    ((9.9, 2.5), "left", "make grade"),
    ((6.8, -1.05), "center", "make site"),
)


def imports(package: Path = PACKAGE) -> set[tuple[str, str]]:
    """``(who gives, who imports)`` for the boxes of the package, read from the source.

    Raises:
        ValueError: a module belongs to no box.
    """
    box_of = {module: box for box, modules in GROUPS.items() for module in modules}
    found = set()
    for path in sorted(package.rglob("*.py")):
        importer = path.relative_to(package).with_suffix("").parts[0]
        if importer in EVERYWHERE:
            continue
        if importer not in box_of:
            raise ValueError(f"{importer} is in no box: put it into GROUPS in tools/architecture.py")
        found |= {(box_of[name], box_of[importer]) for name in _modules_in(path) if name in box_of}
    return {(giver, importer) for giver, importer in found if giver != importer}


def _modules_in(path: Path) -> Iterator[str]:
    """The parts of ``mha_lab`` that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (parts[1] for name in names if (parts := name.split("."))[0] == "mha_lab" and parts[1:])


def architecture(package: Path = PACKAGE) -> Figure:
    """How data flows, from tensors to chapters, and where a new chapter, exercise, plot or explorable goes.

    Raises:
        ValueError: the arrows are not the imports of the package.
    """
    true = imports(package)
    if true != set(IMPORTED):
        raise ValueError(
            f"tools/architecture.py: imported and not drawn: {sorted(true - set(IMPORTED))}; "
            f"drawn and not imported: {sorted(set(IMPORTED) - true)}"
        )
    figure, ax = plt.subplots(figsize=(9.6, 11), layout="constrained")
    ax.set(xlim=(0.1, 12.1), ylim=(-2.1, 13.9))
    ax.axis("off")
    _rounded(ax, FRAME)
    _write(ax, 0.5, 12.15, FRAME.title, ha="left", fontsize=13, weight="bold")
    for box in BOXES.values():
        _draw(ax, box)
    for start, end in (*IMPORTED.values(), CHAPTERS):
        ax.annotate("", end, start, arrowprops=_arrow("solid"))
    for start, end in HANDED:
        ax.annotate("", end, start, arrowprops=_arrow((0, (4, 3))))
    for where, side, words in WORDS:
        _write(ax, *where, words, ha=side, style="italic")
    _write(ax, 0.4, -1.75, LEGEND, ha="left")
    return figure


def _arrow(style: str | tuple) -> dict:
    """From edge to edge: nothing is cut off at the ends."""
    look = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 14}
    return look | {"linestyle": style}


def _draw(ax: Axes, box: Box) -> None:
    """The box, and its lines from top to bottom; the orange part is at its bottom."""
    _rounded(ax, box)
    top, low = box.y + box.height / 2, box.y - box.height / 2
    if box.new:
        height = LINE * len(box.new) + 0.16
        _rounded(ax, Box(box.x, low + 0.1 + height / 2, box.width - 0.24, height, "", colour=NEW))
        for i, line in enumerate(reversed(box.new)):
            _write(ax, box.x, low + 0.18 + LINE * (i + 0.5), line)
        low += height + 0.1
    first = (top + low + LINE * len(box.lines)) / 2
    _write(ax, box.x, first, box.title, fontsize=11.5, weight="bold")
    for i, line in enumerate(box.lines):
        _write(ax, box.x, first - LINE * (i + 1), line)


def _rounded(ax: Axes, box: Box) -> None:
    look = {"boxstyle": "round,pad=0,rounding_size=0.14", "facecolor": box.colour, "edgecolor": INK}
    corner = (box.x - box.width / 2, box.y - box.height / 2)
    ax.add_patch(FancyBboxPatch(corner, box.width, box.height, linewidth=0.8, **look))


def _write(ax: Axes, x: float, y: float, words: str, **look: object) -> None:
    look = {"ha": "center", "va": "center", "fontsize": 10.5, "color": INK} | look
    ax.text(x, y, words, **look)
