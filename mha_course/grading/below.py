"""What still counts of a cell below a line that failed: its imports, functions, classes and assignments."""

import ast
import contextlib
import copy
from collections.abc import Iterator
from types import TracebackType

DEFINITION = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
ASSIGNMENT = ast.Assign | ast.AnnAssign | ast.AugAssign
LOADED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.AnnAssign  # with more than a value
LOOP = ast.For | ast.AsyncFor | ast.While
BLOCK = LOOP | ast.If | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match


def kept(node: ast.stmt) -> ast.stmt | None:
    """The statement; of a block only what binds names, on the same conditions; ``None`` if nothing does."""
    with contextlib.suppress(RecursionError):  # nested too deeply to be run, too
        left, binds = _kept(node)
        return left if binds else None
    return None


def _kept(node: ast.AST) -> tuple[ast.AST | None, bool]:
    """What is left of it, and whether that binds a name."""
    if not isinstance(node, BLOCK | ast.ExceptHandler | ast.match_case):
        binds = isinstance(node, DEFINITION | ASSIGNMENT)
        return node if binds or isinstance(node, ast.Break | ast.Continue) else None, binds
    left, ends, binds = copy.copy(node), False, False
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        parts = [_kept(one) for one in getattr(node, field, ())]
        some = [one for one, _ in parts if one is not None]
        binds = binds or any(each for _, each in parts)
        ends = ends or bool(some)
        if hasattr(node, field):
            setattr(left, field, some or ([ast.copy_location(ast.Pass(), node)] if field == "body" else []))
    whole = isinstance(node, ast.ExceptHandler | ast.match_case)
    return left if whole or ends else None, binds


def is_quick(node: ast.stmt) -> bool:
    """An import, a definition, an assignment without a call, or with a lambda; a block of nothing else."""
    if isinstance(node, ASSIGNMENT):
        return isinstance(node.value, ast.Lambda) or not _calls(node)
    if not isinstance(node, BLOCK):
        return isinstance(node, DEFINITION | ast.Break | ast.Continue | ast.Pass)
    inner = {one for some in _ways(node) for one in some}
    head = [one for part in ast.iter_child_nodes(node) if part not in inner for one in _head(part, inner)]
    return not isinstance(node, LOOP) and not any(map(_calls, head)) and all(map(is_quick, inner))


def _head(part: ast.AST, inner: set[ast.stmt]) -> Iterator[ast.AST]:
    """The expressions of a block's first line, and of its ``except`` and ``case`` lines."""
    if isinstance(part, ast.ExceptHandler | ast.match_case):
        yield from (one for one in ast.iter_child_nodes(part) if one not in inner)
    else:
        yield part


def _calls(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) for one in ast.walk(node))


def inside(node: ast.stmt, line: int = 0) -> list[ast.stmt]:
    """The statements in a block, from the one at ``line`` on; all of them, if none stands there.

    What Python runs only in another case comes first, so that the usual case has the last word.
    """
    ways = _ways(node)
    for way in ways:
        for i, one in enumerate(way):
            if _first_line(one) <= line <= one.end_lineno:
                return way[i:]
    return [one for way in ways for one in way]


def _ways(node: ast.stmt) -> list[list[ast.stmt]]:
    match node:
        case ast.If():
            return [node.orelse, node.body]
        case ast.Try() | ast.TryStar():
            handlers = [handler.body for handler in node.handlers]
            return [*handlers, node.body, node.orelse, node.finalbody]
        case ast.Match():
            return [one.body for one in reversed(node.cases)]
    return [getattr(node, "body", []), getattr(node, "orelse", [])]


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])


def failed_at(trace: TracebackType | None, file: str) -> int:
    """The line of the cell that ran when an error was raised; 0 if there is none."""
    line = 0
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == file and code.co_name == "<module>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def without(node: ast.stmt) -> list[ast.stmt]:
    """The definition without annotations, then without decorators, then without defaults, too.

    These may need a package that is missing here, and the function may not.
    """
    found: list[ast.stmt] = []
    with contextlib.suppress(RecursionError):
        for step in (_NoAnnotations, _NoDecorators, _NoDefaults) if isinstance(node, LOADED) else ():
            node = ast.fix_missing_locations(step().visit(copy.deepcopy(node)))
            found.append(node)
    return found


class _NoAnnotations(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class _NoDecorators(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = []
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef


class _NoDefaults(ast.NodeTransformer):
    """``None`` in their place, because what stands after them must stay optional."""

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.defaults = [ast.Constant(None) for _ in node.defaults]
        node.kw_defaults = [one and ast.Constant(None) for one in node.kw_defaults]
        return node
