"""A line that raises, and the cause that is named for it."""

import linecache
import math

import numpy as np
import pytest
import torch

import mha_lab
from mha_course.checker import errors, trace

pytestmark = [
    pytest.mark.unchecked,  # the jaxtyping checker has errors of its own for a wrong argument
    pytest.mark.filterwarnings("ignore:The use of `x.T`"),
]

NAMES = {"torch": torch, "np": np, "math": math, "F": torch.nn.functional, "mha_lab": mha_lab}
NAMES |= {"split_heads": mha_lab.split_heads, "two": lambda one, other: one}
LINES = {
    "x.T @ x": "`.T` reverses all of them",
    "x + x.transpose(0, 1)": "`transpose(0, 1)` swaps the first two",
    "x / x.sum(-1)": "`keepdim=True` keeps the axis",
    "x.max(-1) + 1": "take `.values`",
    "rows - row": "`row[:, None]` has one axis more",
    "tall.copy_(wide)": "the same sizes in opposite order",
    "x + flat": "only an axis of length 1 fits",
    "wide @ wide": "(`.mT`) they would fit",
    "F.linear(wide, tall)": "transposes its second argument",
    "wide @ flat": "their lengths are 3 and 7",
    "torch.einsum('id,jd->ij', x, x)": "names 2 axes, but the tensor has 3",
    "x.view(2, -1, 6 / 2)": "a size needs `//`",
    "x.mT.view(2, 15)": "is this the order that you want?",
    "x.view(4, 7)": "is not the number of entries",
    "batch, n = x.shape": "expects 2 axes, and the tensor has more",
    "maks": "Did you mean `mask`?",
    "merge_heads(x)": "`from mha_lab import merge_heads` imports it",
    "torch.softmx(x, -1)": "Did you mean `softmax`?",
    "nothing + 1": "is None",
    "~x": "`~` inverts booleans",
    "(row < 2) - (row < 1)": "Booleans cannot be subtracted",
    "x.masked_fill(0.0, mask)": "the mask first and the number second",
    "x.masked_fill(x, 0.0)": "A mask must be boolean",
    "torch.cat(x, x)": "several tensors, in a list or a tuple",
    "torch.sqrt(6)": "`math.sqrt(d_k)`",
    "math.sqrt(row)": "where one number is needed",
    "math.exp(1000)": "too large",
    "6^0.5": "A power is `**`",
    "flat^2": "A power is `**`",
    "flat.mT": "fewer than two",
    "row[:0].max()": "There is nothing in it",
    "x[mask]": "it is not broadcast",
    "if mask: pass": "`if`, `and`, `or` and `not` need one truth value",
    "row.long() < 2 & row.long() > 1": "Write brackets",
    "wide - max(wide)": "Python's own `max`, which compares whole rows",
    "x.softmax(3)": "axes count from 0",
    "row[9]": "the last of n has index n - 1",
    "x[0, 0, 0, 0]": "more indices than axes",
    "torch.arange(6).mean()": "`.float()` converts",
    "torch.softmax(torch.arange(6), 0)": "`.float()` converts",
    "torch.softmax(x)": "Which axis",
    "x.transpose(1)": "Which axis",
    "torch.matmul(x)": "An argument is missing in this call: `other`.",
    "two()": "Some arguments are missing in this call: `one`, `other`.",
    "two(1, 2, 3)": "arguments that the function does not take",
    "F.cross_entropy(x, torch.zeros(2, 3).long())": "the vocabulary on axis 1",
    "split_heads(x, 4)": "rejects its argument `num_heads`",
    "torch.stack([row, flat])": "tensors of one shape",
    "torch.cat([x, wide[None]], 1)": "equal sizes on all axes but",
    "x(0)": "Square brackets take an entry",
    "1 / 0": "which of the sizes can be 0",
    "x.expand(3, 5)": "fewer axes than it has",
    "x[0, 0, 0] = row": "a place for one number",
    "x.permute(0, 1)": "each axis of the tensor once",
}


@pytest.mark.parametrize("line", LINES)
def test_the_likely_cause_of_a_line_that_raises(line):
    source = f"def answer(x, wide, tall, rows, row, flat, mask, nothing=None):\n    {line}\n"
    name = f"<{line}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space = dict(NAMES)
    exec(compile(source, name, "exec"), space)
    sizes = (2, 3, 5), (2, 3), (3, 2), (3, 4), (3,), (7,)
    with pytest.raises(Exception) as raised:  # noqa: PT011  each line has its own
        space["answer"](*map(torch.randn, sizes), torch.ones(1, 3, dtype=torch.bool))
    where = trace.where(raised.value, space["answer"])
    assert LINES[line] in errors.cause(type(raised.value).__name__, str(raised.value), where)
