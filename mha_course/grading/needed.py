"""What a submission needs of the cells that a chapter hands out: the rest is not run when it is graded.

Most of a chapter's time goes into pictures, tables and small trainings that no answer uses. A statement of
the chapter is needed if it binds, or might change, a name that is needed. The names that a student's own
cells use are needed, and so are those that a needed statement uses.
"""

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mha_course.grading.source import UNREADABLE, plain

# What these are given, they leave as it is, but for PyTorch's methods whose name ends with "_".
READERS = {"check", "display", "explore", "math", "mha_course", "mha_lab", "pictures", "plot"}
READERS |= {"plt", "quiz", "torch", "tqdm", *dir(builtins)}
# A cell that uses one of these may read any name.
READS_ALL = {"__import__", "dir", "eval", "exec", "get_ipython", "globals", "importlib", "locals"}
READS_ALL |= {"sys", "vars"}


class _Statement(NamedTuple):
    """A statement at the top level of a cell, with the global names that it may change, and that it reads."""

    cell: int
    text: str
    changes: frozenset[str]
    reads: frozenset[str]


def needed(cells: Sequence[str], own: Sequence[bool], names: Iterable[str]) -> list[str]:
    """The sources to run in place of ``cells``; what is left of a chapter's cell shows no last value.

    Args:
        cells: the sources of all code cells of a submission, in their order.
        own: whether each of them is the student's own, and not as it was handed out. These stay whole.
        names: what must be bound, whoever uses it: the exercises.
    """
    plain = [_plain(cell) for cell in cells]
    wanted = set(names)
    fixed = wanted.union(dir(builtins), *(_fixed(source) for source in plain if source is not None))
    statements: list[_Statement] = []
    for number, (source, mine) in enumerate(zip(plain, own, strict=True)):
        if source is None:
            continue  # it fails, or it was changed: it stays as it is
        if mine:
            wanted |= _globals(source)[1]
        else:
            statements += _statements(number, source, fixed)
    if wanted & READS_ALL:
        return list(cells)
    kept: set[_Statement] = set()
    while more := {one for one in statements if one not in kept and one.changes & wanted}:
        kept |= more
        wanted = wanted.union(*(one.reads for one in more))
    texts: list[list[str]] = [[] for _ in cells]
    for one in statements:
        if one in kept:
            texts[one.cell].append(one.text)
    return [
        cell if mine or source is None else "\n".join([*text, "pass"] if text else [])
        for cell, mine, source, text in zip(cells, own, plain, texts, strict=True)
    ]


def _plain(cell: str) -> str | None:
    """A cell in plain Python, without magics; ``None`` if Python cannot read it."""
    try:
        source = plain(cell)
        compile(source, "cell", "exec", dont_inherit=True)
    except UNREADABLE:
        return None
    return source


def _statements(cell: int, source: str, fixed: set[str]) -> Iterator[_Statement]:
    for node in ast.parse(source).body:
        for part in _apart(node):
            text = ast.unparse(part)
            binds, reads = _globals(text)
            yield _Statement(cell, text, frozenset(binds | _touched(part, fixed)), frozenset(reads))


def _apart(node: ast.stmt) -> list[ast.stmt]:
    """An import of several names as several imports: one of them may take a second."""
    match node:
        case ast.Import():
            return [ast.Import([name]) for name in node.names]
        case ast.ImportFrom():
            return [ast.ImportFrom(node.module, [name], node.level) for name in node.names]
    return [node]


def _globals(source: str) -> tuple[set[str], set[str]]:
    """The global names that this code binds, and those that it reads, in functions too."""
    binds: set[str] = set()
    reads: set[str] = set()
    tables = [symtable.symtable(source, "cell", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for name in table.get_symbols():
            if table.get_type() == "module" or name.is_global():
                binds |= {name.get_name()} if name.is_assigned() or name.is_imported() else set()
                reads |= {name.get_name()} if name.is_referenced() else set()
    return binds, reads


def _fixed(source: str) -> set[str]:
    """The modules, functions and classes that a cell binds: who uses one does not change it."""
    table = symtable.symtable(source, "cell", "exec")
    return {name.get_name() for name in table.get_symbols() if name.is_imported() or name.is_namespace()}


def _touched(node: ast.stmt, fixed: set[str]) -> set[str]:
    """Names whose value this may change without binding it: ``x[0] = 1``, ``x.add_(1)``, ``train(x)``.

    What is ``fixed`` is changed only by constants: ``torch.manual_seed(0)``.
    """
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return set()
    found: set[str] = set()
    for one in ast.walk(node):
        match one:
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                found |= _root(one)
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
                found |= _root(method) - fixed
            case ast.Call():
                name = one.func.attr if isinstance(one.func, ast.Attribute) else ""
                in_place = name.endswith("_") or name in ("eval", "train")
                if in_place or not _root(one.func) & READERS:
                    given = [*one.args, *(keyword.value for keyword in one.keywords), one.func]
                    found |= {value.id for value in given if isinstance(value, ast.Name)} - fixed
                if in_place:
                    found |= _root(one.func) - fixed
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method, args=args)):
            found |= _root(method) if all(isinstance(value, ast.Constant) for value in args) else set()
    return found


def _root(node: ast.expr) -> set[str]:
    """The name ``x`` of ``x.y[0].z``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()
