"""What stands below a line that failed, in whatever block, and what needs a package that is missing."""

import ast
import textwrap

import pytest
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.v4 import new_code_cell, new_notebook

from mha_course.grading import below, nbgrader
from mha_course.grading.nbgrader import GradeApart, judged
from tests.grading.test_round import needs_walls

BODY = "return x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)"
SPLIT = f"def split_heads(x, num_heads):\n    {BODY}\n"
IN = textwrap.indent(SPLIT, "    ")
WRONG = "def split_heads(x, num_heads):\n    return x\n"
BAD = textwrap.indent(WRONG, "    ")
ODD = "import not_there\n"
TYPED = "def split_heads(x: Float[Tensor, 'b n d'], num_heads: int) -> Float[Tensor, 'b h n k']:\n"
CELLS = {
    "if": f"{ODD}if True:\n{IN}",
    "if that cannot be asked": f"{ODD}if not_there.x:\n{IN}else:\n{BAD}",
    "else": f"{ODD}if 1 > 2:\n{BAD}else:\n{IN}",
    "elif": f"{ODD}if 1 > 2:\n{BAD}elif 2 > 1:\n{IN}else:\n{BAD}",
    "try": f"{ODD}try:\n    import math\n{IN}except ImportError:\n{BAD}",
    "except": f"{ODD}try:\n    import not_there_either\nexcept ImportError:\n{IN}",
    "finally": f"{ODD}try:\n    x = 1\nfinally:\n{IN}",
    "with": f"{ODD}import torch\nwith torch.no_grad():\n    torch.ones(2)\n{IN}",
    "with that cannot be entered": f"{ODD}with not_there.run():\n{IN}",
    "for": f"{ODD}for i in range(3):\n    print(i)\n{IN}",
    "for ever": f"{ODD}while True:\n    x = 1\n{IN}",
    "while with an end": f"{ODD}i = 0\nwhile True:\n    i += 1\n{IN}    if i > 2:\n        break\n",
    "match": f"{ODD}match 1:\n    case 2:\n{textwrap.indent(BAD, '    ')}"
    f"    case _:\n{textwrap.indent(IN, '    ')}",
    "blocks in blocks": f"{ODD}if True:\n    try:\n        with not_there:\n"
    f"{textwrap.indent(IN, '        ')}    finally:\n        pass\n",
    "the line is in the block": f"if True:\n    {ODD}{IN}",
    "the line is in a loop": f"for i in range(3):\n    1 / 0\n{IN}",
    "the line is in a block, and the other case must not run": f"if True:\n    k = 1\n    {ODD}"
    "    def split_heads(x, num_heads):\n"
    f"        {BODY.replace('(1,', '(k,')}\nelse:\n    k = 0\n{BAD}",
    "annotation": f"{ODD}{TYPED}    {BODY}\n",
    "annotation of a helper": f"{ODD}{TYPED}    def turned(x: Float):\n        return x.transpose(1, 2)\n"
    "    return turned(x.view(*x.shape[:2], num_heads, -1))\n",
    "annotation above which nothing fails": f"{TYPED}    {BODY}\n",
    "decorator": f"{ODD}@not_there.jit\n{SPLIT}",
    "decorator that fails when it is called": f"def jit(f):\n    raise OSError\n@jit\n{SPLIT}",
    "default": f"{ODD}{SPLIT.replace('num_heads)', 'num_heads, device=not_there.gpu)', 1)}",
    "all of them": f"{ODD}@not_there.jit\n{TYPED.replace(') ->', ', *, gpu=not_there) ->')}    {BODY}\n",
    "annotation in a class": f"{ODD}class Parts:\n    size: not_there.Size = 2\n    @not_there.jit\n"
    f"    def of(self, x: not_there.X, h):\n        {BODY.replace('num_heads', 'h')}\n"
    "def split_heads(x, num_heads):\n    return Parts().of(x, num_heads)\n",
    "annotated value": f"{ODD}axes: not_there.Pair = (1, 2)\n{SPLIT.replace('1, 2', '*axes')}",
    "a decorator that is there stays": f"{ODD}def twice(f):\n    return lambda *a: f(*a).transpose(1, 2)\n"
    f"@twice\n{TYPED}    {BODY.replace('.transpose(1, 2)', '')}\n",
    "the name is given away": f"from mha_course import check\nimport torch\n{SPLIT}"
    "check(split_heads)\nsplit_heads = split_heads(torch.ones(1, 4, 8), 2)\n",
    "the name is given away in a block": "from mha_course import check\nimport torch\n"
    f"for _ in range(1):\n{IN}    check(split_heads)\n"
    "    split_heads = split_heads(torch.ones(1, 4, 8), 2)\n",
    "the name is deleted": f"{SPLIT}del split_heads\n",
    "the last definition counts": f"{WRONG}{SPLIT}split_heads = None\n",
}


@pytest.fixture(scope="module")
def tried():
    """One submission of all cells: what is said of the function that each of them defines."""
    marks = {"grade": True, "grade_id": "check-split_heads", "points": 1}
    checks = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nbgrader, "MAX_TRIES", 100)
        patch.setattr(nbgrader, "judged", lambda found: checks.update(found) or judged(found))
        for some in (list(CELLS)[::2], list(CELLS)[1::2]):  # at most 30 definitions are tried
            cells = [new_code_cell(CELLS[name]) for name in some]
            notebook = new_notebook(cells=[*cells, new_code_cell("", metadata={"nbgrader": marks})])
            GradeApart(isolation="bubblewrap").preprocess(notebook, ResourcesDict())
            found = checks["split_heads"].diagnoses
            checks.update({name: found.get(i) for i, name in enumerate(some)})
    return checks


@needs_walls
@pytest.mark.grading
@pytest.mark.unchecked
@pytest.mark.parametrize("name", CELLS)
def test_a_right_answer_counts_wherever_it_stands(tried, name):
    assert tried[name] is not None, "it was not tried"
    assert tried[name].name is None, tried[name]


def statement(text):
    return ast.parse(textwrap.dedent(text)).body[0]


def test_of_a_block_only_what_binds_names_is_kept():
    block = """
    for i in range(9):
        print(i)
        if i:
            print(i)
        try:
            x = i
        except ValueError:
            print(x)
        if x > 3:
            break
    """
    left = "for i in range(9):\n    try:\n        x = i\n    except ValueError:\n        pass\n"
    assert ast.unparse(below.kept(statement(block))) == f"{left}    if x > 3:\n        break"
    assert below.kept(statement("while True:\n    print(1)\n    break")) is None
    assert below.kept(statement("print(1)")) is None


def test_only_what_takes_no_time_is_quick():
    quick = [
        "import a",
        "x = 1",
        "f = lambda: g()",
        "if x:\n  y = 1\nelse:\n  import a",
        "try:\n  x = 1\nfinally:\n  y = 1",
    ]
    slow = ["x = f()", "for i in x:\n  y = 1", "if f():\n  y = 1", "with f():\n  y = 1", "if x:\n  y = f()"]
    slow += ["try:\n  x = 1\nexcept f():\n  y = 1", "match x:\n  case 1 if f():\n    y = 1"]
    assert [below.is_quick(statement(text)) for text in quick + slow] == [True] * 5 + [False] * 7


def test_what_follows_a_line_in_its_block_is_left_and_other_cases_are_not():
    block = statement("if a:\n    x = 1\n    y = 2\n    z = 3\nelse:\n    x = 4")
    assert [ast.unparse(one) for one in below.inside(block, 3)] == ["y = 2", "z = 3"]
    assert [ast.unparse(one) for one in below.inside(block)] == ["x = 4", "x = 1", "y = 2", "z = 3"]
    assert below.inside(statement("x = 1")) == []


def test_a_statement_that_is_nested_too_deeply_stops_nothing():
    deep = "if x:\n    y = 1\n" + "elif x:\n    y = 1\n" * 900
    assert below.kept(statement(deep)) is None
    assert below.without(ast.parse(f"def f():\n    return {'+'.join('a' * 900)}").body[0]) == []
