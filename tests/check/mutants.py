"""Solutions changed by machine, one small change each: operators, axes, constants, arguments, lines."""

import ast
import copy
import inspect
import itertools
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from mha_course.exercises import find

OPERATORS = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Pow: (ast.Mult,), ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Div, ast.Mult), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
}  # fmt: skip
TWINS = {"max": "min", "sum": "mean", "any": "all", "tril": "triu", "cos": "sin", "softmax": "log_softmax"}
TWINS |= {other: name for name, other in TWINS.items()}


def mutants(name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """``(source, function)`` for each change of the exercise's solution; no two have the same source."""
    answer = find(name).answer
    tree = ast.parse(textwrap.dedent(inspect.getsource(answer)))
    parameters = [argument.arg for argument in tree.body[0].args.args]
    space = vars(sys.modules[answer.__module__])
    seen = {ast.unparse(tree)}
    for number, _ in enumerate(ast.walk(tree)):
        for change in itertools.count():
            changed = copy.deepcopy(tree)
            node = next(itertools.islice(ast.walk(changed), number, None))
            options = list(_changes(node, parameters))
            if change >= len(options):
                break
            options[change]()
            try:
                source = ast.unparse(ast.fix_missing_locations(changed))
                if source not in seen:
                    seen.add(source)
                    names, file = dict(space), f"<mutant {len(seen)} of {name}>"
                    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
                    exec(compile(source, file, "exec"), names)
                    yield source, names[name]
            except SyntaxError:
                continue


def _changes(node: ast.AST, parameters: list[str]) -> Iterator[Callable[[], None]]:
    """What can be done to this node of the tree, each as a function that does it."""
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            for other in _others(value, parameters):
                yield lambda field=field, other=other: setattr(node, field, other)
        elif isinstance(value, list):
            yield from _in_list(node, field, value, parameters)


def _in_list(node: ast.AST, field: str, items: list, parameters: list[str]) -> Iterator[Callable[[], None]]:
    for i, item in enumerate(items):
        if isinstance(item, ast.expr):
            for other in _others(item, parameters):
                yield lambda i=i, other=other: items.__setitem__(i, other)
        if isinstance(item, ast.cmpop):
            for other in OPERATORS.get(type(item), ()):
                yield lambda i=i, other=other: items.__setitem__(i, other())
        statement = isinstance(item, ast.Assign | ast.AugAssign | ast.Expr | ast.Raise)
        if statement and not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)):
            yield lambda i=i: items.__setitem__(i, ast.Pass())
        droppable = field in ("keywords", "args", "elts") and not isinstance(node, ast.arguments)
        if droppable and not (field == "elts" and len(items) < 2):
            yield lambda i=i: items.pop(i)
        if i and field in ("args", "elts", "body") and not isinstance(node, ast.arguments):
            yield lambda i=i: items.__setitem__(slice(i - 1, i + 1), [items[i], items[i - 1]])


def _others(node: ast.expr, parameters: list[str]) -> Iterator[ast.expr]:
    """What may stand in this expression's place."""
    if isinstance(node, ast.BinOp):
        yield node.left
        yield ast.BinOp(node.right, node.op, node.left)
        for other in OPERATORS.get(type(node.op), ()):
            yield ast.BinOp(node.left, other(), node.right)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from map(ast.Constant, _constants(node.value))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node.func.value
        if node.func.attr in TWINS:
            twin = ast.Attribute(node.func.value, TWINS[node.func.attr], ast.Load())
            yield ast.Call(twin, node.args, node.keywords)
    elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield node.value
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in parameters:
        yield from (ast.Name(other, ast.Load()) for other in parameters if other != node.id)


def _constants(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return value + 1, value - 1
    return (2 * value, value / 2) if isinstance(value, float) else ()
