"""A student's answer as it may be shown to the class: the code that counts, without comments.

The code is parsed and written again; it does not run. So comments are left out, and everybody's code has the
same layout. Texts that stand alone, such as a docstring, are left out, too. Other texts stay, because a
pattern such as ``"b n (h d) -> b h n d"`` may be the mistake.

This is done once, while a submission is graded; ``answers.py`` says what of it a class may see.
"""

import ast
import re
from collections.abc import Iterable
from typing import NamedTuple

from mha_course.grading.source import UNREADABLE, parse

LINES = 9  # of an answer that are shown
WIDTH = 300  # characters of a line that are shown


class Definition(NamedTuple):
    """A function of a cell: its name, its text, and the names that stand in it."""

    name: str
    text: str
    uses: list[str]


def definitions(source: str) -> list[Definition]:
    """The functions that a cell defines, in order; a text of a student is read in a child."""
    try:
        body = parse(source).body
    except UNREADABLE:
        return []
    found = []
    for node in body:
        if name := _named(node):
            try:
                silent = _Silent().visit(node)
                text = ast.unparse(silent)
            except UNREADABLE:  # nested too deeply
                continue
            uses = dict.fromkeys(one.id for one in ast.walk(silent) if isinstance(one, ast.Name))
            found.append(Definition(name, text, [*uses]))
    return found


def answers(
    submitted: Iterable[Definition], handed_out: Iterable[Definition], exercises: Iterable[str]
) -> dict[str, str]:
    """For each exercise, the last definition that was not handed out.

    Before it stand the student's own functions that it uses.
    """
    given = {one.text for one in handed_out}
    theirs = {one.name: one for one in submitted if one.text not in given}
    return {name: _whole(name, theirs) for name in exercises if name in theirs}


def short(code: str) -> str:
    """Its first lines, as far as they can be read on a page, and how many are left out."""
    lines = [_cut(line) for line in code.splitlines()]
    if len(lines) <= LINES:
        return "\n".join(lines)
    return "\n".join([*lines[: LINES - 1], f"... ({len(lines) - LINES + 1} more lines)"])


def _cut(line: str) -> str:
    """Its beginning, without a part of a word, which may be a part of a name."""
    return line if len(line) <= WIDTH else re.sub(r"\w*\Z", "...", line[:WIDTH], count=1)


def _named(node: ast.stmt) -> str:
    """The name of a function, also of a lambda or of another one that gets this name."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda | ast.Name):
        return getattr(node.targets[0], "id", "")
    return node.name if isinstance(node, ast.FunctionDef) else ""


class _Silent(ast.NodeTransformer):
    """Leaves out texts that stand alone."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return ast.copy_location(ast.Pass(), node) if text else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = [one for one in node.body if not isinstance(one, ast.Pass)] or [ast.Pass()]
        return node


def _whole(name: str, known: dict[str, Definition]) -> str:
    """The function with the student's own functions that it needs, directly or not, before it."""
    needed: dict[str, None] = {}
    left = [name]
    while left:
        one = left.pop()
        if one not in needed:
            needed[one] = None
            left += [used for used in reversed(known[one].uses) if used in known]
    return "\n".join(known[one].text for one in reversed(needed))
