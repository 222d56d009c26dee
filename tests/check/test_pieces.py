"""A wrong form of a piece that one exercise names is named in every exercise that has this piece."""

import ast
import inspect
import sys
import textwrap

import pytest

from mha_course.exercises import find, names
from tests.check.corpus import diagnosis_of

# Wrong answers pass wrong arguments, and `softmax` warns without `dim`.
pytestmark = [pytest.mark.slow, pytest.mark.unchecked, pytest.mark.filterwarnings("ignore")]

SOFTMAX = [  # as people type it, with `s` for the scores
    "torch.nn.functional.softmax(s)",
    "torch.softmax(s, dim=-2)",
    "torch.softmax(torch.softmax(s, dim=-1), dim=-1)",
    "torch.log_softmax(s, dim=-1)",
    "torch.exp(s)",
    "torch.sigmoid(s)",
    "s / s.sum(dim=-1, keepdim=True)",
    "torch.softmax(-s, dim=-1)",
    "s",
]
SCALE = [  # with `s` for the products of queries and keys, and `d` for the width of a head
    "s",
    "s / d",
    "s * d ** 0.5",
    "s / d ** 1 / 2",
    "s / d ** 0.25",
]
WINDOW = [  # with `back`, how many positions a key lies before the query
    "(back >= 0) & (back <= window)",
    "(back >= 0) & (back <= window // 2)",
    "abs(back) <= window",
    "abs(back) < window",
    "abs(back) <= window // 2",
    "back < window",
]


class Typed(ast.NodeTransformer):
    """Another expression in the place of a softmax over the last axis, or of a division by the root."""

    def __init__(self, piece, source):
        self.piece, self.source, self.found = piece, source, 0

    def typed(self, **names):
        self.found += 1
        put = ast.parse(self.source, mode="eval").body
        return Named(names).visit(put)

    def visit_Call(self, node):
        self.generic_visit(node)
        if self.piece == "softmax" and ast.unparse(node.func) == "torch.softmax":
            return self.typed(s=node.args[0])
        return node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        root = isinstance(node.op, ast.Div) and isinstance(node.right, ast.BinOp)
        if self.piece == "scale" and root and ast.unparse(node.right).endswith(".shape[-1] ** 0.5"):
            return self.typed(s=node.left, d=node.right.left)
        return node


class Named(ast.NodeTransformer):
    def __init__(self, names):
        self.names = names

    def visit_Name(self, node):
        return self.names.get(node.id, node)


def changed(name, piece, source):
    """The exercise's solution with this in place of the right piece, or ``None`` if it has no such piece."""
    answer = find(name).answer
    change = Typed(piece, source)
    tree = change.visit(ast.parse(textwrap.dedent(inspect.getsource(answer))))
    if not change.found:
        return None
    space = dict(vars(sys.modules[answer.__module__]))
    exec(compile(ast.fix_missing_locations(tree), f"<{name}>", "exec"), space)
    return space[name]


CASES = [
    (name, piece, source)
    for piece, sources in {"softmax": SOFTMAX, "scale": SCALE}.items()
    for name in names()
    for source in sources
    if changed(name, piece, source)
]


def test_the_pieces_are_found_in_the_solutions():
    assert {name for name, *_ in CASES} >= {"per_head_weights", "masked_softmax", "fix_grouped", "fix_cache"}


@pytest.mark.parametrize(("name", "piece", "source"), CASES)
def test_a_form_that_is_known_anywhere_is_named_everywhere(name, piece, source):
    diagnosis = diagnosis_of(name, changed(name, piece, source), refused=[])
    assert diagnosis.name is None or diagnosis.cause, diagnosis


@pytest.mark.parametrize("source", WINDOW)
def test_a_wrong_window_is_named_in_a_mask_and_in_a_score_mod(source):
    space = {}
    code = f"""
import torch
def rolling_window_mask(n_new, n_kept, window):
    back = torch.arange(n_kept, n_kept + n_new)[:, None] - torch.arange(n_kept + n_new)
    return {source}
def capped_score_mod(score, batch, head, q_idx, kv_idx):
    back, window = q_idx - kv_idx, 4
    return torch.where(({source}) | (kv_idx == 0), 5 * torch.tanh(score / 5), -torch.inf)
"""
    exec(code, space)
    for name in ("rolling_window_mask", "capped_score_mod"):
        diagnosis = diagnosis_of(name, space[name])
        assert diagnosis.cause, diagnosis
