"""Right answers once more, by habits and programs that ``honest_strangers.py`` does not hold.

Importing this adds them to its strangers.
"""

import copy

from tests.grading.honest_strangers import (
    RIGHT,
    SOME,
    around,
    at,
    code,
    saved,
    solved,
    stranger,
    typed,
    writes,
)

SPLIT, MERGE, WEIGHTS = (RIGHT[name] for name in SOME.split())

# Ways to write a function

writes(
    "imports inside a function",
    split_heads="""\
def split_heads(x, num_heads):
    from einops import rearrange
    from os.path import join as _unused
    return rearrange(x, "b n (h k) -> b h n k", h=num_heads)""",
)
writes(
    "quoted hints of names that do not exist",
    split_heads="""\
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from jaxtyping import Float
def split_heads(x: "Float[Tensor, 'b n d']", num_heads: 'Heads' = 2, /) -> 'Float[Tensor, "b h n k"]':
    y: "Float[Tensor, 'b n h k']" = x.unflatten(-1, (num_heads, -1))
    return y.transpose(1, 2)""",
)
writes(
    "a name of Python, used and given back",
    split_heads="""\
import builtins
max = 5
del max
len_before, len = len, None
len = builtins.len
def split_heads(x, num_heads):
    return x.reshape(len(x), max(1, x.shape[1]), num_heads, -1).transpose(1, 2)""",
)
writes(
    "generators and yield from",
    split_heads="""\
def _heads(x, k):
    def inner():
        for start in range(0, x.shape[-1], k):
            yield x[..., start : start + k]
    yield from inner()
def split_heads(x, num_heads):
    return torch.stack([*_heads(x, x.shape[-1] // num_heads)], dim=1)""",
)
writes(
    "a dataclass, a property and a method",
    split_heads="""\
from dataclasses import dataclass, field
from typing import ClassVar
@dataclass(frozen=True, slots=True)
class Heads:
    x: torch.Tensor = field(repr=False)
    count: int = 1
    axis: ClassVar[int] = 1
    @property
    def size(self): return self.x.shape[-1] // self.count
    def __call__(self): return torch.stack(self.x.split(self.size, -1), self.axis)
def split_heads(x, num_heads): return Heads(x, num_heads)()""",
)
writes(
    "coroutines",
    split_heads="""\
import asyncio
async def _part(x, i, k):
    await asyncio.sleep(0)
    return x[..., i * k : (i + 1) * k]
def split_heads(x, num_heads):
    async def everything():
        k = x.shape[-1] // num_heads
        return torch.stack(await asyncio.gather(*(_part(x, i, k) for i in range(num_heads))), dim=1)
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(everything())
    finally:
        loop.close()""",
)
writes(
    "threads, a bar and a log",
    split_heads="""\
import logging, warnings
from concurrent.futures import ThreadPoolExecutor
from tqdm.auto import tqdm
log = logging.getLogger(__name__)
logging.basicConfig(level="DEBUG", force=True)
def split_heads(x, num_heads):
    log.warning("split %s", tuple(x.shape))
    warnings.warn("not optimised")
    with ThreadPoolExecutor(2) as pool:
        return torch.stack([*tqdm(pool.map(lambda h: x.chunk(num_heads, -1)[h], range(num_heads)))], 1)""",
)
writes(
    "a picture while it runs",
    split_heads="""\
import matplotlib.pyplot as plt
def split_heads(x, num_heads):
    fig, axes = plt.subplots(1, 2)
    axes[0].imshow(x[0].detach())
    plt.show()
    plt.close("all")
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)""",
)
writes(
    "prompts that were copied too",
    split_heads=">>> def split_heads(x, num_heads):\n...     y = x.unflatten(-1, (num_heads, -1))\n...     return y.mT if 0 else y.transpose(1, 2)",
    merge_heads="In [7]: def merge_heads(x):\n   ...:     return x.transpose(1, 2).flatten(2)",
)
writes(
    "magics on the first and last line",
    split_heads=f"%%time\n{SPLIT}\n",
    merge_heads=f"%%capture out\n{MERGE}\nmerge_heads",
    per_head_weights=f"{WEIGHTS}\n\n%timeit -n 1 -r 1 per_head_weights(torch.ones(1, 2, 4), torch.ones(1, 2, 4), 2)\nper_head_weights?",
)
writes(
    "if main, and asserts of one's own",
    split_heads=f"""\
{SPLIT}

if __name__ == "__main__":
    import doctest, unittest
    class Test(unittest.TestCase):
        def test_shape(self): self.assertEqual(split_heads(torch.ones(1, 2, 4), 2).shape, (1, 2, 2, 2))
    unittest.main(argv=[""], exit=False)
    doctest.testmod()""",
)
writes(
    "overloads and one function for several types",
    split_heads="""\
from functools import lru_cache, singledispatch, wraps
from typing import overload
@overload
def split_heads(x: torch.Tensor, num_heads: int) -> torch.Tensor: ...
@overload
def split_heads(x: list, num_heads: int) -> torch.Tensor: ...
@singledispatch
def split_heads(x, num_heads):
    raise TypeError(type(x))
@split_heads.register
def _(x: list, num_heads):
    return split_heads(torch.tensor(x), num_heads)
@split_heads.register
def _(x: torch.Tensor, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)""",
    merge_heads=f"@lru_cache(maxsize=None)\n{MERGE}",
    per_head_weights=f"@torch.inference_mode()\n{WEIGHTS}",
)
writes(
    "gradients, parameters and arrays",
    split_heads="""\
def split_heads(x, num_heads):
    x = torch.nn.Parameter(x.detach().clone())
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2).as_strided(*[
        f(x.unflatten(-1, (num_heads, -1)).transpose(1, 2)) for f in (torch.Tensor.size, torch.Tensor.stride)])""",
    merge_heads="""\
class Merge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.transpose(1, 2).flatten(2)
    @staticmethod
    def backward(ctx, g): return g
merge_heads = Merge.apply""",
)
writes(
    "nonlocal, a walrus and a star",
    split_heads="""\
def make():
    calls = 0
    def split_heads(x, num_heads):
        nonlocal calls
        calls += 1
        *rest, d = x.shape
        if (k := d // num_heads) and (b := rest[0]):
            return x.view(*rest, num_heads, k).permute(0, 2, 1, 3)
    return split_heads
split_heads = make()""",
)
writes(
    "names in other letters",
    split_heads="""\
def split_heads(𝐱, num_heads):
    µ = 𝐱.shape
    ﬁrst, ª = µ[0], µ[1]
    return x.reshape(first, a, num_heads, -1).transpose(1, 2)""",
)
writes(
    "form feeds, tabs and odd blanks",
    split_heads="\x0cdef split_heads(x,\tnum_heads):\n\t\ty = x.unflatten(-1,\\\n(num_heads, -1))\n\n\n\t\treturn (\ny\n.transpose(1, 2)\n)\n\x0c",
)
writes(
    "a test with help of the course",
    split_heads=f"{SPLIT}\n\nimport mha_lab\nx = torch.randn(2, 6, 8)\n"
    "assert torch.equal(split_heads(x, 4), mha_lab.split_heads(x, 4))\nhelp(mha_lab.split_heads)",
)
writes(
    "torch.compile",
    split_heads=f"import torch._dynamo\ntorch._dynamo.config.suppress_errors = True\n@torch.compile\n{SPLIT}",
)
writes(
    "rules that are older than the answer",
    split_heads="split_heads = None\n"
    + SPLIT.replace("def split_heads", "def my_split_heads")
    + "\nsplit_heads = my_split_heads if split_heads is None else split_heads",
    merge_heads="merge_heads = lambda x: _merge(x)\n_merge = lambda x: x.transpose(1, 2).flatten(2)",
)

# Cells of their own

around(
    "a module that is reloaded, a script that is missing",
    "import importlib, mha_lab\nimportlib.reload(mha_lab)\n%run utils.py\nimport utils\nfrom utils import *",
    "%%javascript\nalert(1)",
)
around(
    "options of everything",
    "import torch, sys, os\ntorch.set_printoptions(precision=2, sci_mode=False)\nsys.setrecursionlimit(10**6)\n"
    "os.environ['CUDA_VISIBLE_DEVICES'] = ''\nos.chdir('/')\ntorch.manual_seed(0)\ntorch.autograd.set_detect_anomaly(True)",
    "from IPython.core.interactiveshell import InteractiveShell\nInteractiveShell.ast_node_interactivity = 'all'\n"
    "get_ipython().run_line_magic('xmode', 'Verbose')\nimport sys\nsys.exit",
)


@stranger("the chapter twice in one file")
def _(notebook):
    again = copy.deepcopy(notebook["cells"])
    solved(notebook)
    notebook["cells"] += again
    return notebook


@stranger("the stub first, and the answer in the next cell")
def _(notebook):
    for name in SOME.split():
        notebook["cells"].insert(at(notebook, name) + 1, code(RIGHT[name]))
    return notebook


@stranger("an answer in two cells")
def _(notebook):
    solved(notebook)
    typed(notebook, split_heads="def _cut(x, num_heads):\n    return x.unflatten(-1, (num_heads, -1))")
    rest = code(
        "def split_heads(x, num_heads):\n    return _cut(x, num_heads).transpose(1, 2)\n\ncheck(split_heads)"
    )
    notebook["cells"].insert(at(notebook, "split_heads") + 1, rest)
    return notebook


# Programs that save


@stranger("UTF-16", file="03_splitting_heads.ipynb")
def _(notebook):
    return saved(solved(notebook)).decode().encode("utf-16")


@stranger("line ends of an old Mac")
def _(notebook):
    solved(notebook)
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"]).replace("\n", "\r")
    return notebook


@stranger("DataSpell", indent=1)
def _(notebook):
    solved(notebook)
    for number, cell in enumerate(notebook["cells"]):
        cell.pop("id", None)
        cell["metadata"] = {
            "pycharm": {"name": "#%%\n", "is_executing": False},
            "collapsed": False,
            "ExecuteTime": {"end_time": "2026-01-01T00:00:00.1Z", "start_time": "2026-01-01T00:00:00Z"},
            "jupyter": {"outputs_hidden": False, "source_hidden": True},
        }
        if cell["cell_type"] == "code":
            cell["execution_count"] = str(number)
    notebook["nbformat_minor"] = 1
    notebook["metadata"] = {"kernelspec": {"name": "pycharm-1a2b", "display_name": "PyCharm (x)"}}
    return notebook


@stranger("Deepnote and Databricks", indent=4)
def _(notebook):
    solved(notebook)
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"{number} " + "x" * 90
        cell["metadata"] = {
            "cell_id": f"{number:032x}",
            "deepnote_cell_type": "code",
            "source_hash": None,
            "application/vnd.databricks.v1+cell": {"title": "", "showTitle": False, "inputWidgets": {}},
        }
    notebook["metadata"] = {"deepnote": {}, "deepnote_notebook_id": "x", "language": "python"}
    return notebook


@stranger("Jupytext, slides and locks")
def _(notebook):
    solved(notebook)
    header = "---\njupyter:\n  jupytext:\n    formats: ipynb,py:percent\n---"
    notebook["cells"].insert(0, {"cell_type": "raw", "metadata": {}, "source": header})
    for cell in notebook["cells"]:
        cell["metadata"] |= {
            "slideshow": {"slide_type": "skip"},
            "tags": ["raises-exception", "skip-execution"],
        }
        cell["metadata"] |= {"deletable": False, "editable": False, "lines_to_next_cell": 2, "name": None}
    notebook["metadata"]["jupytext"] = {"cell_metadata_filter": "-all", "encoding": "# -*- coding: utf-8 -*-"}
    return notebook


@stranger("outputs of other versions")
def _(notebook):
    solved(notebook)
    for cell in notebook["cells"]:
        cell["attachments"] = {"a.png": {"image/png": "iVBORw0KGgo="}}
        if cell["cell_type"] == "code":
            cell["outputs"] = [
                {"output_type": "pyout", "prompt_number": 3, "text": ["3"], "metadata": {}},
                {"output_type": "pyerr", "ename": "E", "evalue": "", "traceback": []},
                {"output_type": "stream", "stream": "stdout", "text": "x"},
                {"output_type": "display_data", "data": None},
                None,
            ]
            cell["prompt_number"] = 3
            cell["metadata"] = []
    return notebook


@stranger("everything missing that can be")
def _(notebook):
    solved(notebook)
    notebook["cells"] = [
        {"cell_type": cell["cell_type"], "source": cell["source"]} for cell in notebook["cells"]
    ]
    del notebook["metadata"], notebook["nbformat_minor"]
    return notebook
