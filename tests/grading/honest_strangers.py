"""What students hand in whose answers are right, as the programs and habits of many people leave it.

Each stranger changes the chapter that was handed out, and says which answers are right. None of this was written
by the author of the grader: a point that a stranger loses is a mistake of the grader.
"""

import copy
import io
import json
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

RIGHT = {
    "split_heads": """\
def split_heads(x, num_heads):
    b, n, d = x.shape
    return x.view(b, n, num_heads, d // num_heads).transpose(1, 2) if x.is_contiguous() else (
        x.contiguous().view(b, n, num_heads, d // num_heads).transpose(1, 2))""",
    "merge_heads": """\
def merge_heads(x):
    b, h, n, k = x.shape
    return x.permute(0, 2, 1, 3).contiguous().view(b, n, h * k)""",
    "per_head_weights": """\
def per_head_weights(query, key, num_heads):
    q = split_heads(query, num_heads)
    k = split_heads(key, num_heads)
    scores = torch.einsum("bhik,bhjk->bhij", q, k) / math.sqrt(q.size(-1))
    return scores.softmax(-1)""",
    "predict_place": """\
def predict_place(token, column, n, num_heads, d_k):
    head, place = divmod(column, d_k)
    return head, token, place""",
    "fix_split": """\
def fix_split(x, num_heads):
    batch, n, d_model = x.shape
    d_k = d_model // num_heads
    return x.reshape(batch, n, num_heads, d_k).permute(0, 2, 1, 3)""",
    "reorder_checkpoint": """\
def reorder_checkpoint(weight, num_heads):
    rows, d_model = weight.shape
    return weight.reshape(rows // num_heads, num_heads, d_model).transpose(0, 1).reshape(rows, d_model)""",
    "causal_mask": """\
def causal_mask(n):
    return torch.tril(torch.ones(n, n)).bool()""",
    "padding_mask": """\
def padding_mask(lengths, max_length):
    positions = torch.arange(max_length).expand(len(lengths), -1)
    return (positions < lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(1)""",
    "masked_softmax": """\
def masked_softmax(scores, mask):
    mask = mask.expand_as(scores)
    low = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.softmax(low, -1) * mask""",
    "fix_padding": """\
def fix_padding(scores, lengths):
    real = torch.arange(scores.shape[-1]) < lengths[:, None]
    mask = real[:, None, :]
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)""",
    "predict_equal_scores": """\
def predict_equal_scores(n):
    ones = torch.ones(n, n).tril()
    return ones / ones.sum(1, keepdim=True)""",
    "packed_mask": """\
def packed_mask(lengths):
    return torch.block_diag(*[torch.ones(n, n).tril() for n in lengths]).bool()""",
    "leaks_future": """\
def leaks_future(attention, n, d_model):
    for _ in range(25):
        x = torch.randn(n, d_model)
        base = attention(x)
        for j in range(1, n):
            y = x.clone()
            y[j] = torch.randn(d_model)
            if (attention(y)[:j] - base[:j]).abs().max() > 1e-4:
                return True
    return False""",
    "scaled_scores": """\
def scaled_scores(query, key):
    return torch.matmul(query, key.transpose(-2, -1)) / key.shape[-1] ** 0.5""",
    "attention_weights": """\
def attention_weights(scores):
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)""",
    "single_head_attention": """\
def single_head_attention(x, w_q, w_k, w_v):
    weights = attention_weights(scaled_scores(x @ w_q, x @ w_k))
    return weights @ (x @ w_v), weights""",
    "predict_zero_query": """\
def predict_zero_query(values):
    return values.mean(dim=0)""",
    "fix_scale": """\
def fix_scale(x, w_q, w_k):
    query = x @ w_q
    key = x @ w_k
    return query @ key.mT / w_q.shape[1]**0.5""",
    "learnable_head": """\
class Head(torch.nn.Module):
    def __init__(self, d_model, d_k, d_v):
        super().__init__()
        self.q_proj = torch.nn.Linear(d_model, d_k, bias=False)
        self.k_proj = torch.nn.Linear(d_model, d_k, bias=False)
        self.v_proj = torch.nn.Linear(d_model, d_v, bias=False)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        w = torch.softmax(q @ k.mT / k.shape[-1] ** 0.5, -1)
        return w @ v, w

def learnable_head(d_model, d_k, d_v):
    return Head(d_model, d_k, d_v)""",
    "output_projection": """\
def output_projection(heads, w_o):
    return heads.transpose(1, 2).flatten(2) @ w_o""",
    "head_contributions": """\
def head_contributions(heads, w_o):
    h, d_v = heads.shape[1], heads.shape[3]
    return torch.stack([heads[:, i] @ w_o[i * d_v:(i + 1) * d_v] for i in range(h)], dim=1)""",
    "fix_bias": """\
def fix_bias(heads, w_o, bias):
    output = 0
    for h in range(heads.shape[1]):
        alone = torch.zeros_like(heads)
        alone[:, h] = heads[:, h]  # the other heads fetch nothing
        output = output + merge_heads(alone) @ w_o
    return output + bias""",
    "predict_parameters": """\
def predict_parameters(d_model, num_heads, bias):
    return 4 * d_model * (d_model + bool(bias))""",
    "pack_qkv": """\
def pack_qkv(w_q, w_k, w_v):
    return torch.hstack([w_q, w_k, w_v])""",
    "fix_packed": """\
def fix_packed(x, w_qkv, num_heads):
    batch, n, d_model = x.shape
    pieces = (x @ w_qkv).view(batch, n, 3, num_heads, d_model // num_heads)
    query, key, value = pieces.permute(2, 0, 3, 1, 4)
    return query, key, value""",
}  # fmt: skip
CHAPTERS = {
    "01": "01_single_head_attention",
    "03": "03_splitting_heads",
    "04": "04_masking",
    "05": "05_output_projection",
    "06": "06_five_ways",
}
SOME = "split_heads merge_heads per_head_weights"  # what most strangers of chapter 03 answer


@dataclass(frozen=True)
class Stranger:
    """One student's file: what is in it, where it lies, and the answers that must count."""

    student: str  # the folder in `submitted/`, or the name on the platform
    chapter: str
    door: (
        str  # "folder", "moodle", "moodle flat", "canvas", "again" (a zip that was unpacked and packed again)
    )
    file: str
    right: tuple[str, ...]
    content: Callable[[dict], bytes]
    beside: dict[str, bytes]  # other files of the same folder, by name

    def hand_in(self, released: dict) -> Iterator[tuple[str, bytes]]:
        """Names in the student's own folder, and what is in these files; the answer is the first."""
        yield self.file, self.content(copy.deepcopy(released))
        yield from self.beside.items()


STRANGERS: list[Stranger] = []


def code(source: str, **more) -> dict:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
        **more,
    }


def text(source: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def at(notebook: dict, name: str) -> int:
    """Where the unfinished function is."""
    cells = enumerate(notebook["cells"])
    return next(i for i, cell in cells if cell["metadata"].get("nbgrader", {}).get("grade_id") == name)


def typed(notebook: dict, **answers: str) -> dict:
    """The chapter with these answers in the cells of the unfinished functions."""
    for name, source in answers.items():
        notebook["cells"][at(notebook, name)]["source"] = source.splitlines(keepends=True)
    return notebook


def solved(notebook: dict, names: str = SOME) -> dict:
    return typed(notebook, **{name: RIGHT[name] for name in names.split()})


def saved(notebook: dict, **how) -> bytes:
    return json.dumps(notebook, **({"indent": 1, "ensure_ascii": False} | how)).encode(
        "utf-8", "surrogatepass"
    )


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def stranger(student, chapter="03", right=SOME, door="folder", file="", beside=None, **how):
    """Make a stranger of a function that changes the chapter, and may return the bytes of the file."""

    def keep(change):
        def content(notebook):
            made = change(notebook)
            return made if isinstance(made, bytes) else saved(made, **how)

        name = file or f"{CHAPTERS[chapter]}.ipynb"
        one = Stranger(student, chapter, door, name, tuple(right.split()), content, beside or {})
        STRANGERS.append(one)
        return change

    return keep


def writes(student, right=SOME, chapter="03", **answers):
    """A stranger who only types: these answers, and the usual ones for the rest of `right`."""

    @stranger(student, chapter, right)
    def _(notebook):
        return typed(solved(notebook, right), **answers)


def around(student, before="", after="", chapter="03", right=SOME):
    """A stranger with cells of their own: before everything, and directly before the first answer."""

    @stranger(student, chapter, right)
    def _(notebook):
        solved(notebook, right)
        place = at(notebook, right.split()[0])
        notebook["cells"][place:place] = [code(after)] if after else []
        notebook["cells"][:0] = [code(before)] if before else []
        return notebook


# Ways to write a function

writes(
    "hints of a package that is missing",
    split_heads="""\
from torchtyping import TensorType, patch_typeguard
patch_typeguard()

def split_heads(x: TensorType["b", "n", "d"], num_heads: int) -> TensorType["b", "h", "n", "k"]:
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)""",
)
writes(
    "decorators",
    split_heads="""\
import functools, time
def timed(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        start = time.perf_counter()
        out = f(*args, **kwargs)
        print(f"{f.__name__} took {time.perf_counter() - start:.6f}s")
        return out
    return inner

@timed
@torch.no_grad()
def split_heads(x, num_heads):
    return x.unflatten(2, (num_heads, -1)).swapaxes(1, 2)""",
    merge_heads="""\
@torch.jit.script
def merge_heads(x):
    return x.transpose(1, 2).flatten(2)""",
)
writes(
    "lambdas and a tuple",
    split_heads='split_heads, merge_heads = (lambda x, h: einops.rearrange(x, "b n (h k) -> b h n k", h=h)), '
    '(lambda x: einops.rearrange(x, "b h n k -> b n (h k)"))',
    merge_heads="# see above",
    per_head_weights="per_head_weights = lambda query, key, num_heads: (split_heads(query, num_heads) @ "
    "split_heads(key, num_heads).mT / (query.shape[-1] / num_heads) ** .5).softmax(dim=-1)",
)
writes(
    "walrus, match and a loop",
    split_heads="""\
def split_heads(x, num_heads):
    match x.shape:
        case (b, n, d) if (d_k := d // num_heads):
            out = torch.empty(b, num_heads, n, d_k, dtype=x.dtype)
            for i in range(b):
                for h in range(num_heads):
                    for j in range(n):
                        for k in range(d_k):
                            out[i, h, j, k] = x[i, j, h * d_k + k]
            return out""",
)
writes(
    "classes",
    split_heads="""\
class Splitter:
    def __call__(self, x, num_heads):
        return self.cut(x, num_heads).permute(0, 2, 1, 3)
    @staticmethod
    def cut(x, num_heads):
        return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads)
    @classmethod
    def undo(cls, x):
        return torch.cat(list(x.unbind(1)), dim=-1)

split_heads = Splitter()""",
    merge_heads="merge_heads = Splitter.undo",
    per_head_weights="""\
class PerHead(torch.nn.Module):
    def forward(self, query, key, num_heads):
        a, b = split_heads(query, num_heads), split_heads(key, num_heads)
        return torch.nn.functional.softmax(a @ b.transpose(-1, -2) / a.shape[-1] ** 0.5, dim=3)
per_head_weights = PerHead()""",
)
writes(
    "partial and a closure",
    split_heads="""\
from functools import partial
def _rearrange(x, num_heads, *, axis):
    return torch.stack(torch.tensor_split(x, num_heads, dim=axis), dim=1)
split_heads = partial(_rearrange, axis=-1)""",
    merge_heads="""\
def make_merge():
    def inner(x):
        b, h, n, k = x.shape
        return torch.einsum("bhnk->bnhk", x).reshape(b, n, -1)
    return inner
merge_heads = make_merge()""",
)
writes(
    "other names",
    split_heads="""\
import torch as t, numpy as np
from torch import Tensor as T
def split_heads_v1(x, heads): return x  # wrong
def split_heads_v2(x: T, heads: int) -> T:
    a = np.asarray(x).reshape(x.shape[0], x.shape[1], heads, -1)
    return t.from_numpy(np.moveaxis(a, 2, 1).copy())
split_heads = split_heads_v2""",
    merge_heads="def merge_heads(*args, **kwargs):\n\tx, = args\n\tx = x.mT if False else x\n"
    "\treturn x.movedim(1, 2).flatten(-2)",
)
writes(
    "star imports",
    split_heads="""\
from torch import *
from math import *
from einops import *
from torch.nn.functional import *
def split_heads(x, num_heads): return rearrange(x, 'b n (h d) -> b h n d', h=num_heads)""",
    per_head_weights="""\
def per_head_weights(query, key, num_heads):
    q, k = split_heads(query, num_heads), split_heads(key, num_heads)
    return softmax(matmul(q, k.transpose(-2, -1)) / sqrt(q.shape[-1]), dim=-1)""",
)
writes(
    "a package that is missing, and a way without it",
    split_heads="""\
try:
    from einops_exts import rearrange_many
except ImportError:
    rearrange_many = None

if rearrange_many is not None:
    def split_heads(x, num_heads):
        return rearrange_many((x,), 'b n (h d) -> b h n d', h=num_heads)[0]
else:
    def split_heads(x, num_heads):
        return x.reshape(len(x), x.shape[1], num_heads, -1).transpose(1, 2)""",
)
writes(
    "everything inside something",
    split_heads="""\
if True:
    with torch.no_grad():
        for _attempt in range(1):
            try:
                def split_heads(x, num_heads):
                    return torch.stack(torch.split(x, x.shape[-1] // num_heads, dim=-1)).transpose(0, 1)
            finally:
                print("defined")""",
    merge_heads="""\
def setup():
    global merge_heads
    def merge_heads(x):
        return torch.cat([x[:, h] for h in range(x.shape[1])], dim=2)
setup()""",
)
writes(
    "comments and leftovers",
    split_heads='''\
# def split_heads(x, num_heads):
#     return x.view(x.shape[0], num_heads, -1, x.shape[2] // num_heads)   # ❌ falsch, siehe Folie 12
"""
def split_heads(x, num_heads):
    return x.view(...)
"""
def split_heads(x, num_heads):
    """(batch, n, d_model) → (batch, num_heads, n, d_k)  😀 \\ ``` """
    print(x.shape, num_heads);
    问题 = x.reshape(x.shape[0], x.shape[1], num_heads, \\
                     x.shape[2] // num_heads)
    return 问题.transpose(1, 2)
    raise NotImplementedError''',
)
writes(
    "a memo and a global",
    split_heads="""\
N_CALLS = 0
_cache = {}
def split_heads(x, num_heads):
    global N_CALLS, _cache
    N_CALLS += 1
    key = (id(x), num_heads)
    if key not in _cache:
        _cache[key] = (x, x.unflatten(-1, (num_heads, -1)).transpose(-3, -2))
    return _cache[key][1]""",
)
writes(
    "vmap and recursion",
    split_heads="""\
def one(x, h):
    return torch.stack(x.chunk(h, -1))
def split_heads(x, num_heads):
    return torch.vmap(lambda s: one(s, num_heads))(x)""",
    merge_heads="""\
def merge_heads(x):
    return x[:, 0] if x.shape[1] == 1 else torch.cat([x[:, 0], merge_heads(x[:, 1:])], -1)""",
)
writes(
    "numbers of numpy",
    "predict_place fix_split",
    predict_place="""\
import numpy as np
def predict_place(token: int, column: int, n: int, num_heads: int, d_k: int) -> "tuple[int, int, int]":
    h, p = np.unravel_index(column, (num_heads, d_k))
    return [h, token, p]""",
    fix_split="""\
def fix_split(x, num_heads):
    batch, n, d_model = x.shape
    d_k = d_model // num_heads
    # FIXED: d_k and num_heads were swapped
    y = x.reshape(batch, n, num_heads, d_k)
    assert y.shape == (batch, n, num_heads, d_k), y.shape
    return y.permute(0, 2, 1, 3)""",
)

# Cells of their own

around(
    "Colab, a drive and a failing mount",
    "#@title Setup { display-mode: \"form\" }\nfrom google.colab import drive\ndrive.mount('/content/drive')\n"
    "%cd /content/drive/MyDrive/transformers\n!nvidia-smi\n!pip install -q einops torchtyping",
    "%%time\n# warm up\ntorch.randn(10) @ torch.randn(10)",
)
around(
    "magics",
    "%matplotlib inline\n%config InlineBackend.figure_format = 'retina'\n%load_ext nb_black\n%load_ext autoreload\n"
    "%autoreload 2\n%env TOKENIZERS_PARALLELISM=false\nfiles = !ls -la\nprint(files[:3])\ntorch.Tensor.view?\n"
    "%time sum(range(10))",
    "%%bash\necho hello\nls /",
)
around(
    "a cell that never ends, and one that asks",
    "name = input('Your name: ')\nprint('Hello', name)",
    "step = 0\nwhile True:\n    step += 1",
)
around("a reset", "%reset -f", "import os\nprint(os.getcwd())\nexit()")
around(
    "names of Python used for other things",
    "sum = 0\nlist = [1, 2, 3]\nmax = 5\nid = 7\ntype = 'head'\nprint(list, sum)",
    "range = torch.arange(3)\nstr = 'a dog saw a cat'\nlen = 5\nint = 1\ntuple = (1, 2)\ndict = {}\nany = all = None",
)
around(
    "double precision, and a device",
    "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_num_threads(8)\n"
    "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\ntorch.set_grad_enabled(False)",
    "import warnings\nwarnings.filterwarnings('error')\ntorch.use_deterministic_algorithms(True)",
)
around(
    "a device that is missing",
    "import torch\ntorch.set_default_device('cuda')\nx = torch.randn(3, device='cuda')",
    "import seaborn as sns, pandas as pd, tensorflow as tf\nsns.set_theme()",
)
around(
    "await, plots and widgets",
    "import asyncio\nasync def slow():\n    await asyncio.sleep(0.01)\n    return 3\nprint(await slow())",
    "import matplotlib.pyplot as plt\nimport ipywidgets as w\nplt.rcParams['text.usetex'] = True\nfig, ax = plt.subplots()\n"
    "ax.plot([1, 2])\nplt.show()\nw.interact(lambda a: print(a), a=(0, 10))\nimport pdb; pdb.set_trace()",
)
around(
    "a syntax error of an attempt",
    "def split_heads(x, num_heads:\n    return",
    "split_heads(torch.ones(2 3), 2)",
)


@stranger("a module of their own", right=SOME + " fix_split")
def _(notebook):
    solved(notebook, SOME + " fix_split")
    notebook["cells"][2:2] = [
        code(
            "%%writefile my_heads.py\nimport torch\ndef cut(x, h):\n    return torch.stack(x.chunk(h, -1), 1)\n"
        )
    ]
    return typed(
        notebook,
        split_heads="from my_heads import cut\n\ndef split_heads(x, num_heads):\n    return cut(x, num_heads)",
    )


@stranger("a helper that comes later")
def _(notebook):
    solved(notebook)
    typed(
        notebook,
        split_heads="def split_heads(x, num_heads):\n    return swap(x.reshape(*x.shape[:2], num_heads, -1))",
    )
    notebook["cells"].append(code("def swap(x):\n    return x.transpose(AXES[0], AXES[1])"))
    notebook["cells"].append(code("AXES = [1, 2]"))
    return notebook


@stranger("a helper that came before, and is deleted later")
def _(notebook):
    solved(notebook)
    typed(
        notebook,
        split_heads="def split_heads(x, num_heads):\n    return swap(x.reshape(*x.shape[:2], num_heads, -1))",
    )
    notebook["cells"][5:5] = [code("swap = lambda x: x.transpose(1, 2)")]
    notebook["cells"].append(code("del swap\ndel split_heads\nmath = None"))
    return notebook


@stranger("a wrong experiment after a right answer")
def _(notebook):
    solved(notebook)
    place = at(notebook, "per_head_weights")
    notebook["cells"].insert(
        place + 2,
        code("def split_heads(x, num_heads):  # what if?\n    return x.view(len(x), num_heads, -1, 2)"),
    )
    notebook["cells"].append(code("def merge_heads(x):\n    raise NotImplementedError"))
    return notebook


@stranger("the answer above the unfinished function")
def _(notebook):
    for name in SOME.split():
        notebook["cells"].insert(at(notebook, name), code(RIGHT[name] + "\n\ncheck(" + name + ")"))
    return notebook


@stranger("the answer in the cell of the check")
def _(notebook):
    for name in SOME.split():
        notebook["cells"][at(notebook, "check-" + name)]["source"] = (
            RIGHT[name] + f"\n\nassert check({name}) is None, 'not yet'\nprint('done ✅')"
        )
    return notebook


@stranger("all in one cell")
def _(notebook):
    everything = "\n\n".join(
        "".join(cell["source"]) for cell in solved(notebook)["cells"] if cell["cell_type"] == "code"
    )
    notebook["cells"] = [text("# Homework 3"), code(everything)]
    return notebook


@stranger("only the answers, no chapter")
def _(notebook):
    notebook["cells"] = [code("import torch, math\nfrom mha_course.checker import check")]
    notebook["cells"] += [code(RIGHT[name]) for name in reversed(SOME.split())]
    notebook["cells"] += [code(f"check({name})") for name in SOME.split()]
    return notebook


@stranger("answers first, imports last")
def _(notebook):
    cells = notebook["cells"]
    solved(notebook)
    moved = [cells.pop(at(notebook, name)) for name in SOME.split()]
    notebook["cells"] = moved + cells
    return notebook


@stranger("split cells")
def _(notebook):
    solved(notebook)
    place = at(notebook, "per_head_weights")
    notebook["cells"][place : place + 1] = [
        code("ROOT = 0.5\ndef scores(q, k):\n    return q @ k.mT / q.shape[-1] ** ROOT"),
        text("now the softmax"),
        code("def soft(s):\n    e = (s - s.amax(-1, True)).exp()\n    return e / e.sum(-1, keepdim=True)"),
        code("def per_head_weights(query, key, num_heads):\n    q, k = [split_heads(a, num_heads) for a in (query, key)]"
             "\n    return soft(scores(q, k))"),
    ]  # fmt: skip
    return notebook


@stranger("text instead of code, by accident")
def _(notebook):
    solved(notebook)
    place = at(notebook, "split_heads")
    notebook["cells"][place] = text(
        "My answer:\n\n```python\n" + RIGHT["split_heads"] + "\n```\n\nIt **works**."
    )
    place = at(notebook, "merge_heads")
    notebook["cells"][place] = {"cell_type": "raw", "metadata": {}, "source": RIGHT["merge_heads"]}
    return notebook


@stranger("another chapter inside", right="causal_mask padding_mask", chapter="04")
def _(notebook):
    solved(notebook, "causal_mask padding_mask")
    notebook["cells"][3:3] = [code(RIGHT[name]) for name in SOME.split()]
    notebook["cells"][3:3] = [code("raise ValueError('old')")]
    return notebook


# Programs that save


@stranger("Colab", door="moodle", file="Copy of 03_splitting_heads.ipynb", indent=0)
def _(notebook):
    solved(notebook)
    for i, cell in enumerate(notebook["cells"]):
        cell.pop("id", None)
        cell["metadata"] = {
            "id": f"aB{i:03}",
            "colab": {"base_uri": "https://localhost:8080/", "height": 35},
            "cellView": "form",
        }
        if cell["cell_type"] == "code":
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["ok\n"]}]
    notebook["nbformat_minor"] = 0
    notebook["metadata"] = {
        "colab": {"provenance": [], "toc_visible": True, "gpuType": "T4"},
        "accelerator": "GPU",
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "widgets": {
            "application/vnd.jupyter.widget-state+json": {
                str(i): {"state": {"value": float("nan")}} for i in range(500)
            }
        },
    }
    return notebook


@stranger("VS Code", door="moodle")
def _(notebook):
    solved(notebook)
    for cell in notebook["cells"]:
        cell.pop("id", None)
        cell["metadata"] = {"vscode": {"languageId": "python"}} if cell["cell_type"] == "code" else {}
    notebook["nbformat_minor"] = 2
    notebook["metadata"] = {
        "kernelspec": {"display_name": ".venv (3.11.4)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "orig_nbformat": 4,
    }
    return notebook


@stranger("Kaggle", door="canvas", separators=(",", ":"), indent=None, ensure_ascii=True)
def _(notebook):
    solved(notebook)
    for i, cell in enumerate(notebook["cells"]):
        cell["source"] = "".join(cell["source"])
        cell["metadata"] |= {
            "_uuid": f"{i:040x}",
            "trusted": True,
            "execution": {"iopub.status.busy": "2026-01-01T00:00:00Z"},
        }
        cell["id"] = "same"
        if cell["cell_type"] == "code":
            cell["execution_count"] = i
    notebook["metadata"]["kaggle"] = {"accelerator": "none"}
    notebook["nbformat_minor"] = 4
    return notebook


@stranger("Notebook 7 with 15 MB of outputs", door="folder")
def _(notebook):
    solved(notebook)
    shown = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORw0KGgo" * 120_000}}
    traced = {
        "output_type": "error",
        "ename": "E",
        "evalue": "v" * 100_000,
        "traceback": ["\x1b[31m" + "t" * 1000] * 200,
    }
    for i in range(10):
        notebook["cells"].append(code(f"print({i})", outputs=[shown, traced]))
    notebook["cells"].append(
        {
            "cell_type": "markdown",
            "metadata": {},
            "source": "![a](attachment:a.png)",
            "attachments": {"a.png": {"image/png": "iVBORw0KGgo" * 10_000}},
        }
    )
    return notebook


@stranger("Windows, BOM and CRLF", door="moodle", file="03_splitting_heads (1) - Copy.ipynb")
def _(notebook):
    solved(notebook)
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"]).replace("\n", "\r\n")
    return b"\xef\xbb\xbf" + saved(notebook).replace(b"\n", b"\r\n")


@stranger("format 4.0 with numbers of cells missing", door="moodle flat")
def _(notebook):
    solved(notebook)
    for cell in notebook["cells"]:
        cell.pop("id", None)
        cell["metadata"].pop("nbgrader", None)
        cell["metadata"]["collapsed"] = False
        cell.pop("execution_count", None)
        cell.pop("outputs", None)
    notebook["nbformat_minor"] = 0
    notebook["metadata"] = {}
    return notebook


@stranger("olderchapter", door="canvas", file="03_splitting_heads-1.ipynb")
def _(notebook):
    """As if the chapter had been changed since: other ids and names of checks, other texts, a cell too many."""
    solved(notebook)
    for i, cell in enumerate(notebook["cells"]):
        cell["id"] = f"old-{i}"
        if "nbgrader" in cell["metadata"]:
            cell["metadata"]["nbgrader"]["grade_id"] += "-2025"
            cell["metadata"]["nbgrader"]["points"] = 5
            cell["metadata"]["nbgrader"]["schema_version"] = 1
        if cell["cell_type"] == "markdown":
            cell["source"] = "an older text"
    del notebook["cells"][20:35]
    return notebook


@stranger("a newer format", door="folder", chapter="06", right="pack_qkv fix_packed")
def _(notebook):
    notebook["nbformat_minor"] = 9
    notebook["cells"].insert(0, {"cell_type": "sql", "metadata": {}, "source": "select 1", "id": "x1"})
    return solved(notebook, "pack_qkv fix_packed")


# Names of files and people

PERSONS = [
    ("王小明", "moodle", "03_splitting_heads.ipynb"),
    ("محمد علي", "moodle", "03_splitting_heads_محمد.ipynb"),
    (unicodedata.normalize("NFD", "Jürgen Müller-Lüdenscheidt"), "moodle", "03_splitting_heads.ipynb"),
    ("O'Brien d’Arc", "moodle", "03_Splitting_Heads.IPYNB"),
    ("नेहा शर्मा", "moodle", "abgabe/woche 3/03_splitting_heads.ipynb"),
    ("Sammy Davis Jr.", "moodle", "03_splitting_heads_FINAL_final(2).ipynb"),
    ("Nguyễn Thị Ánh", "moodle flat", "03_splitting_heads.ipynb.txt"),
    ("Student 42 Nr 7", "moodle", "03_splitting_heads.ipynb.json"),
    ("J. R. R. Tolkien", "moodle flat", "03-splitting-heads.ipynb"),
    ("علی‌رضا رضایی", "moodle", "03_splitting_heads.ipynb"),
    ("lovelaceada", "canvas", "03_splitting_heads-3.ipynb"),
    ("müllerjürgen", "canvas", "03 splitting heads.ipynb"),
    ("王小明", "canvas", "03_splitting_heads.ipynb"),
    ("hopper LATE", "canvas", "03_splitting_heads_hopper_1906.ipynb"),
    ("Noether Emmy", "again", "03_splitting_heads.ipynb"),
    (unicodedata.normalize("NFD", "Ångström Åsa"), "again", "Copy of Copy of 03_splitting_heads.ipynb"),
    ("x" * 120, "moodle", "03_splitting_heads.ipynb"),
]  # fmt: skip
for who, how, called in PERSONS:
    stranger(who, "03", "merge_heads", how, called, indent=None)(
        lambda notebook: solved(notebook, "merge_heads")
    )


@stranger("zipped on a Mac", door="moodle", file="Homework 3.zip", right="merge_heads")
def _(notebook):
    resource = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        " + bytes(80)
    return packed(
        {
            "Homework 3/": b"",
            "__MACOSX/Homework 3/._03_splitting_heads.ipynb": resource,
            "Homework 3/.DS_Store": b"\0\0\0\1Bud1",
            "Homework 3/.ipynb_checkpoints/03_splitting_heads-checkpoint.ipynb": saved(
                copy.deepcopy(notebook)
            ),
            "Homework 3/03_splitting_heads.ipynb": saved(solved(notebook, "merge_heads")),
            "Homework 3/data/huge.bin": bytes(1_000_000),
        }
    )


UNTOUCHED = {
    "._03_splitting_heads.ipynb": b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        " + bytes(80),
    ".ipynb_checkpoints/03_splitting_heads-checkpoint.ipynb": b"{}",
    "notes.ipynb": b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
    "04_masking.ipynb": b"{}",
    "timestamp.txt": b"2026-01-01 00:00:00 UTC",
    "Thumbs.db": b"\xd0\xcf",
}


@stranger("more files than one", right="merge_heads", beside=UNTOUCHED)
def _(notebook):
    return solved(notebook, "merge_heads")


@stranger("a folder in the folder", right="merge_heads", file="03/Abgabe/03_splitting_heads – Kopie.ipynb")
def _(notebook):
    return solved(notebook, "merge_heads")


@stranger(
    "a download that broke off",
    right="merge_heads",
    beside={"03_splitting_heads (1).ipynb": b'{"cells": [{"cell_'},
)
def _(notebook):
    return solved(notebook, "merge_heads")


# Other chapters

FOUR = "causal_mask padding_mask masked_softmax fix_padding predict_equal_scores packed_mask leaks_future"
ONE = "scaled_scores attention_weights single_head_attention predict_zero_query fix_scale learnable_head"
writes("all of chapter 04", FOUR, "04")
writes("all of chapter 01", ONE, "01")
writes("chapter 05", "output_projection head_contributions fix_bias predict_parameters", "05")
writes("chapter 06", "pack_qkv fix_packed", "06", pack_qkv="pack_qkv = lambda *ws: torch.cat(ws, dim=1)")
writes(
    "chapter 03, the rest",
    "predict_place fix_split reorder_checkpoint",
    reorder_checkpoint="""\
def reorder_checkpoint(weight, num_heads):
    order = [i for h in range(num_heads) for i in range(h, len(weight), num_heads)]
    return weight[order]""",
)
writes(
    "chapter 04 with loops",
    "causal_mask padding_mask predict_equal_scores",
    "04",
    causal_mask="""\
def causal_mask(n: int = 4):
    return torch.tensor([[j <= i for j in range(n)] for i in range(n)])""",
    padding_mask="""\
def padding_mask(lengths, max_length):
    mask = torch.zeros((len(lengths), 1, 1, max_length), dtype=torch.bool)
    for b, l in enumerate(lengths.tolist()):
        mask[b, ..., :l] = 1
    return mask""",
    predict_equal_scores="""\
def predict_equal_scores(n):
    return torch.nn.Softmax(dim=1)(torch.zeros(n, n).masked_fill(~causal_mask(n), float("-inf")))""",
)
writes(
    "chapter 01 with a sequential",
    "scaled_scores attention_weights learnable_head",
    "01",
    attention_weights="attention_weights = torch.nn.Softmax(dim=-1)",
    scaled_scores="""\
import torch.nn.functional as F
def scaled_scores(query, key):
    return torch.einsum('...id,...jd->...ij', F.normalize(query, dim=-1) * query.norm(dim=-1, keepdim=True), key) * (
        query.size()[-1] ** -.5)""",
)
