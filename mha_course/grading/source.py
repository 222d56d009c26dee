"""The Python in a cell of a submission: it is read here, and never runs.

Some texts take Python's parser or IPython hours: of a student's text, call this in a child (``limits.each``).
"""

import ast
import contextlib
import itertools
import platform
import re
import textwrap
import warnings

from IPython.core.inputtransformer2 import TransformerManager

from mha_course.exercises import names
from mha_course.grading.limits import Refused

UNREADABLE = SyntaxError, ValueError, RecursionError, MemoryError
MAX_MAGICS = 200  # of one cell: IPython reads the whole cell again for each of them
MAX_BLOCKS = 100  # of code in one text
MAGIC = re.compile(r"^[ \t]*[%!?,;/]|=[ \t]*[%!]|\?[ \t]*$", re.M)
# A magic or a command behind something else, where IPython reads none: `except: !pip install x`.
INNER = re.compile(r"(?<=[:;])[ \t]*[%!].*")
LINE = re.compile(r"^[ \t]*[%!].*", re.M)
# Blank lines, and a first line after which the rest runs as Python.
HEAD = re.compile(r"\s*%%(?:time|capture|prun)\b.*\n|(?:[ \t]*\n)*")
FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^`\n]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.M | re.S)


def plain(source: str) -> str:
    """A cell in plain Python: magics become calls, and a text that is indented as a whole is moved back.

    Raises:
        SyntaxError, ValueError: there is none, or it has more than ``MAX_MAGICS`` magics.
    """
    if len(MAGIC.findall(source)) > MAX_MAGICS:
        raise ValueError(f"more than {MAX_MAGICS} magics")
    return TransformerManager().transform_cell(readable(source))


def readable(source: str) -> str:
    """The cell; without its magics and commands, if Python can read it only then."""
    marked = INNER.search(source) or LINE.search(source)
    if not marked or len(MAGIC.findall(source)) > MAX_MAGICS:
        return source
    shorter = INNER.sub(" pass", source)
    for text in (source, shorter, LINE.sub("", shorter)):
        with contextlib.suppress(*UNREADABLE), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(TransformerManager().transform_cell(text))
            return text
    return source


def below_head(source: str) -> str:
    """The cell without `%%time` and the like, below which the rest runs as Python."""
    return source[len(HEAD.match(source)[0]) :]


def parse(source: str) -> ast.Module:
    """The statements of a cell, also below ``%%time``; each line keeps its number.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: Python cannot read it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        below = below_head(source)
        return ast.parse("#\n" * (source.count("\n") - below.count("\n")) + plain(below))


def syntax_error(source: str) -> str:
    """Why the grader's Python cannot read a cell, with its version and the line; empty if it can."""
    version = ".".join(platform.python_version_tuple()[:2])
    try:
        parse(source)
    except SyntaxError as error:
        lines = source.splitlines()
        number = min(error.lineno or 1, len(lines) or 1)
        text = lines[number - 1].strip()[:200] if lines else ""
        return f"Python {version} cannot read this cell. Line {number}: {error.msg}\n    {text}"
    except UNREADABLE as error:
        return f"Python {version} cannot read this cell: {type(error).__name__}"
    return ""


def defines(source: str) -> bool:
    """Whether this is Python that binds the name of an exercise."""
    try:
        tree = parse(source)
    except UNREADABLE:
        return False
    bound = {getattr(node, "name", None) for node in tree.body}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        bound |= {getattr(target, "id", None) for target in targets}
    return not bound.isdisjoint(names())


def fenced(text: str) -> list[str]:
    """The blocks of Python in a Markdown text, if one of them binds the name of an exercise.

    Raises:
        Refused: it has more than ``MAX_BLOCKS``.
    """
    found = list(itertools.islice(FENCED.finditer(text), MAX_BLOCKS + 1))
    if len(found) > MAX_BLOCKS:
        raise Refused(f"has more than {MAX_BLOCKS} blocks of code")
    blocks = [textwrap.dedent(one[2]) for one in found]
    blocks = [block for block in blocks if not syntax_error(block)]
    return blocks if any(map(defines, blocks)) else []


def looked_at(text: str, code: bool) -> list[str] | bool:
    """Whether the text of a cell is an answer, whatever its type; else, if it is not code, its blocks."""
    return defines(text) or (False if code else fenced(text))
