"""A student's answer as it may be shown to the class: the code that counts, without comments.

The code is parsed and written again; it does not run. So comments are left out, and everybody's code has the
same layout. Texts that stand alone, such as a docstring, are left out, too. Other texts stay, because a
pattern such as ``"b n (h d) -> b h n d"`` may be the mistake.
"""

import ast
from collections.abc import Iterable

from nbformat import NotebookNode

from mha_lab.grading.source import UNREADABLE, parse

LINES = 9  # of an answer that are shown


def answers(submitted: NotebookNode, handed_out: NotebookNode, exercises: Iterable[str]) -> dict[str, str]:
    """For each exercise, the last definition that was not handed out.

    Before it stand the student's own functions that it uses.
    """
    given = {text for _, text in _definitions(handed_out)}
    theirs = {name: text for name, text in _definitions(submitted) if text not in given}
    return {name: _whole(name, theirs) for name in exercises if name in theirs}


def short(code: str) -> str:
    """Its first lines, and how many are left out."""
    lines = code.splitlines()
    if len(lines) <= LINES:
        return code
    return "\n".join([*lines[: LINES - 1], f"... ({len(lines) - LINES + 1} more lines)"])


def _definitions(notebook: NotebookNode) -> list[tuple[str, str]]:
    """The name and the text of each function that a code cell defines, in order."""
    found = []
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        try:
            body = parse(cell.source).body
            found += [(name, ast.unparse(_Silent().visit(node))) for node in body if (name := _named(node))]
        except UNREADABLE:
            continue
    return found


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


def _whole(name: str, known: dict[str, str]) -> str:
    """The function with the student's own functions that it needs, directly or not, before it."""
    needed: dict[str, None] = {}

    def add(one: str) -> None:
        if one in known and one not in needed:
            needed[one] = None
            for node in ast.walk(ast.parse(known[one])):
                if isinstance(node, ast.Name):
                    add(node.id)

    add(name)
    return "\n".join(known[one] for one in reversed(needed))
