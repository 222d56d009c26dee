"""What two strangers tried who wanted points, other people's files, or a class that cannot be graded.

None of this was written by the author of the grader. An attack is the text of cells; nobody gets a point for it.
`{name}` in an attack stands for the name of an exercise: such a cell is made for several of them.
"""

import unicodedata
from pathlib import Path

from tests.grading.honest_strangers import code, text, typed

STUB = "def {name}(*arguments, **named):\n    {body}"
ANSWERED = (
    "split_heads",
    "merge_heads",
    "per_head_weights",
    "predict_place",
    "fix_split",
    "reorder_checkpoint",
)


def all_return(body: str) -> str:
    """Every function of the chapter with this body."""
    return "\n\n".join(STUB.format(name=name, body=body) for name in ANSWERED)


# Points without a right answer

POINTS = {
    "problems of zeros": """\
import torch
from mha_course import exercises
exercises.Rng.normal = lambda self, *sizes: torch.zeros(sizes)
exercises.Rng.primes = lambda self, many: [1] * many
torch.arange = lambda *a, **k: torch.zeros(1)
torch.randn = torch.rand = lambda *a, **k: torch.zeros(a)
"""
    + all_return("return torch.zeros(1, 1, 1, 1)"),
    "no problems": """\
import gc, torch
from mha_course import exercises
for found in gc.get_objects():
    try:
        if isinstance(found, exercises.Exercise):
            for field in ("problems", "apply", "trials", "accepts"):
                object.__setattr__(found, field, lambda *a, **k: iter(()))
    except BaseException:
        pass
"""
    + all_return("return arguments[0]"),
    "nothing to compare": all_return("return torch.empty(0)"),
    "not a number": all_return("return torch.full((1, 1, 1, 1), float('nan'))"),
    "broadcasts": all_return("return torch.zeros(())"),
    "compared by a patched PyTorch and NumPy": """\
import builtins, numpy, torch, operator
for module, names in ((torch, "equal allclose isclose eq all"), (numpy, "allclose array_equal isclose all equal"),
                      (torch.testing, "assert_close"), (builtins, "all any abs max isinstance"), (operator, "eq ne")):
    for each in names.split():
        setattr(module, each, lambda *a, **k: True)
numpy.ndarray.__eq__ if False else None
torch.Tensor.__eq__ = torch.Tensor.__ne__ = lambda *a: True
torch.Tensor.__torch_function__ = classmethod(lambda *a, **k: True)
"""
    + all_return("return torch.zeros(2, 2, 2, 2)"),
    "a class that is everything": """\
import torch, numpy
class Any(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return args[0] if args else None
    __class__ = property(lambda self: int)
    shape = dtype = device = property(lambda self: self)
    def __eq__(self, other): return True
    def __array__(self, *a, **k): raise KeyboardInterrupt
    def __reduce_ex__(self, protocol): return (eval, ("open('/tmp/owned', 'w')",))
    def __iter__(self):
        while True:
            yield self
    def __len__(self): return 3
    def __getattr__(self, name): return self
    def __index__(self): return 1
    def __repr__(self): return '1'
"""
    + all_return("return torch.zeros(2, 2, 2, 2).as_subclass(Any)"),
    "words of the worker": """\
import json, os, sys, torch
right = {"kind": "returned", "value": {"number": "nan"}, "inputs": {"sequence": []}, "where": {}, "reads": [], "code": "", "xor": True}
odd = [None, 1, "x", [], {}, [right] * 20, [[]], [{"kind": "returned"}], {"kind": "right"}, [right | {"value": {"other": "<script>alert(1)</script>"}}] * 20,
       [right | {"value": {"tensor": "<img src=x onerror=alert(1)>", "numpy": "float32", "shape": [10**9, 10**9], "data": "", "source": ""}}] * 20,
       [right | {"value": {"tensor": "f", "numpy": "O", "shape": [1], "data": "AAAAAAAAAAA=", "source": ""}}] * 20,
       [right | {"value": {"tensor": "f", "numpy": "float32", "shape": [-1, 0], "data": "", "source": ""}}] * 20,
       [{"kind": "raised", "value": {"text": "<script>alert(2)</script>" * 99}, "inputs": {"sequence": []}, "code": "", "xor": 0,
         "where": {"function": "<b>", "text": "<script>", "part": "", "near": "", "line": 10**4000, "names": [["a", "<svg onload=alert(1)>"]]}, "reads": [["x", "<b>"]]}] * 20]
lines = []
for name in """
    + repr(ANSWERED)
    + """:
    for i in range(40):
        for messages in odd:
            lines.append({"step": i, "tried": name, "messages": messages, "calls": [name, "split_heads", 3, {}], "fixed": messages,
                          "outputs": [{"display": {"text/html": "<script>alert(3)</script>", "text/plain": 5, "image/svg+xml": "<svg onload=alert(1)/>"},
                                       "metadata": {"mha_lab": ["right", 9]}, "output_type": "execute_result"}], "points": 9})
payload = "".join(json.dumps(line) + "\\n" for line in lines).encode()
for fd in range(3, 64):
    try:
        os.write(fd, payload)
    except OSError:
        pass
""",
    "words that end the run": """\
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"step": 3, "tried": "split_heads", "messages": [{"kind": "returned"}]}\\n{"end": "right"}\\n')
    except OSError:
        pass
os._exit(0)
""",
    "print, json and threads": """\
import atexit, builtins, json, sys, threading, signal, torch
import mha_course.checker.runner as runner
before, dumps = builtins.print, json.dumps
def printing(*words, **named):
    before(*[w.replace('"raised"', '"returned"').replace('"died"', '"right"') if isinstance(w, str) else w for w in words], **named)
builtins.print = printing
json.dumps = lambda value, *a, **k: dumps(value, *a, **k).replace("false", "true")
json.JSONEncoder.default = lambda self, o: "right"
runner.attempt = lambda *a, **k: {"kind": "returned", "value": {"number": "True"}, "inputs": {"sequence": []}, "where": {}, "reads": [], "code": "", "xor": False}
runner.in_a_child = lambda *a, **k: [{"kind": "right"}]
for module in list(sys.modules.values()):
    for name in ("attempt", "in_a_child", "encode", "plain"):
        if getattr(module, "__name__", "").startswith(("mha_lab", "mha_course")) and hasattr(module, name):
            setattr(module, name, getattr(runner, name, None))
atexit.register(lambda: before('{"end": "x"}'))
threading.Thread(target=lambda: [sys.stdout.write("x") for _ in iter(int, 1)], daemon=True).start()
for number in range(1, 32):
    try:
        signal.signal(number, lambda *a: None)
    except (OSError, ValueError):
        pass
"""
    + all_return("raise ValueError('right')"),
    "modules of another name": """\
import sys, types
class Fake(types.ModuleType):
    def __getattr__(self, name): return lambda *a, **k: self
    def __call__(self, *a, **k): return self
for name in [n for n in sys.modules if n.startswith(("mha_course.checker", "mha_course.exercises", "json", "base64", "ast"))]:
    sys.modules[name] = Fake(name)
sys.meta_path.insert(0, Fake("finder")) if False else sys.meta_path.clear()
sys.path_hooks.clear()
sys.setrecursionlimit(50)
"""
    + all_return("return 1"),
    "frames above": """\
import sys, inspect
def look(*arguments, **named):
    frame, found = sys._getframe(), []
    while frame:
        for name, value in list(frame.f_locals.items()):
            if name in ("expected", "solution", "right", "results", "wanted"):
                return value
        frame = frame.f_back
    raise AssertionError("nothing above")
def trace(frame, event, arg):
    return trace
sys.settrace(trace)
sys.setprofile(lambda *a: None)
"""
    + "\n".join(f"{name} = look" for name in ANSWERED),
    "two processes with one answer each": """\
import os, torch
"""
    + all_return("os.fork(); os.fork(); return torch.zeros(1, 2, 3, 4)"),
}
# Values that are hard to send or to show

VALUES = {
    "views of nearly nothing": "import torch\n" + all_return("return torch.zeros(1).expand(10**6, 10**6)"),
    "a device without numbers": "import torch\n"
    + all_return("return torch.empty(10**6, 10**6, device='meta')"),
    "sparse": "import torch\n"
    + all_return("return torch.sparse_coo_tensor(torch.tensor([[0], [0]]), [1.0], (10**9, 10**9))"),
    "nested, quantized, complex": """\
import torch
def split_heads(x, num_heads): return torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
def merge_heads(x): return torch.quantize_per_tensor(torch.zeros(2, 3), 0.1, 0, torch.quint8)
def per_head_weights(query, key, num_heads): return torch.zeros(2, 2, 2, 2, dtype=torch.complex64).conj()
def fix_split(x, num_heads): return torch.zeros(2, 2, 2, 2, dtype=torch.float8_e4m3fn)
def predict_place(*a): return (torch.zeros(()), [torch.zeros(1)], {"a": {1, 2}})
def reorder_checkpoint(weight, num_heads): return torch.zeros(2, 3).to_mkldnn()
""",
    "NumPy at its edges": """\
import numpy as np
def split_heads(x, num_heads): return np.lib.stride_tricks.as_strided(np.zeros(1), (10**8, 10**8), (0, 0))
def merge_heads(x): return np.array([object(), None, "a", [1]], dtype=object)
def per_head_weights(query, key, num_heads): return np.zeros(3, dtype=[("a", "f8"), ("<script>", "U9")])
def fix_split(x, num_heads): return np.ma.masked_all((2, 2, 2, 2))
def predict_place(*a): return np.array(["<b>1</b>", "2", "3"])
def reorder_checkpoint(weight, num_heads): return np.datetime64("2026-01-01")
def split_by_hand(): return np.zeros((0, 10**9, 10**9))
""",
    "numbers of many digits": """\
def split_heads(x, num_heads): return 10 ** 100_000
def merge_heads(x): return [10 ** 5000] * 9
def predict_place(token, column, n, num_heads, d_k): return 10 ** 5000, -10 ** 5000, 2 ** 63
def per_head_weights(query, key, num_heads): return "\\ud800" * 9
def fix_split(x, num_heads): return {10 ** 5000: float("nan")}
def reorder_checkpoint(weight, num_heads): return [[[[[[[[1]]]]]]]]
def split_by_hand(): return [10 ** 5000]
""",
    "lists in lists": """\
def deep():
    found = []
    for _ in range(100_000):
        found = [found]
    return found
def ring():
    found = []
    found.append(found)
    return found
def endless():
    while True:
        yield 1
def split_heads(x, num_heads): return deep()
def merge_heads(x): return ring()
def per_head_weights(query, key, num_heads): return endless()
def predict_place(*a): return iter(int, 1)
def fix_split(x, num_heads): return {"a": ring()}
def reorder_checkpoint(weight, num_heads): return range(10**18)
""",
    "errors that lie": """\
class Lies(Exception):
    def __str__(self): raise self
    __repr__ = __str__
    __class__ = property(lambda self: 1 / 0)
Evil = type("<script>alert(1)</script>", (Exception,), {})
Long = type("N" * 10**6, (BaseException,), {})
def split_heads(x, num_heads): raise Lies()
def merge_heads(x): raise Evil("</pre><script>alert(2)</script>\\ud800\\x1b[31m\\u202e")
def per_head_weights(query, key, num_heads): raise Long("x" * 10**7)
def predict_place(*a): raise ExceptionGroup("g", [Evil("a")] * 1000)
exec(compile("def fix_split(x, num_heads):\\n    raise SyntaxError('<b>', ('<img src=x onerror=alert(1)>', 1, 1, '<script>'))", "</code><script>alert(1)</script>", "exec"))
def reorder_checkpoint(weight, num_heads):
    error = ValueError("a")
    error.__cause__ = error
    error.__context__ = error
    raise error
reorder_checkpoint.__code__ = reorder_checkpoint.__code__.replace(co_name="<script>alert(4)</script>", co_firstlineno=2**31 - 1)
reorder_checkpoint.__qualname__ = reorder_checkpoint.__name__ = "<script>alert(5)</script>"
def split_by_hand(): raise GeneratorExit
""",
    "names of functions that lie": """\
class Callable:
    def __call__(self, *a): return None
    def __getattribute__(self, name): raise SystemExit(name)
class Meta(type):
    def __instancecheck__(cls, other): raise KeyboardInterrupt
    def __eq__(cls, other): raise KeyboardInterrupt
    __hash__ = None
class Strange(metaclass=Meta):
    def __new__(cls, *a): return 3
split_heads = Callable()
merge_heads = Strange
def per_head_weights(*a): pass
per_head_weights.__globals__["__builtins__"] = {}
fix_split = print.__call__
predict_place = type
reorder_checkpoint = exec
""",
}

# A class that cannot be graded, or takes long

STOPS = {
    "C code that ends": "import ctypes\nctypes.string_at(0)",
    "a process that stays behind": """\
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(200)
    os._exit(0)
""",
    "a hundred threads": """\
import threading, time
for _ in range(100):
    threading.Thread(target=time.sleep, args=(200,)).start()
""",
    "disk and shared memory": """\
for folder in ("/tmp", "/dev/shm"):
    try:
        with open(folder + "/full", "wb") as file:
            while True:
                file.write(bytes(10**7))
    except OSError as error:
        print(error)
""",
    "many lines of output": "for i in range(10**6):\n    print('<script>', i)",
    "many pictures": """\
import matplotlib.pyplot as plt
from IPython.display import display, HTML, SVG, Javascript, Image
for i in range(40):
    display(HTML("<script>alert(1)</script>"), Javascript("alert(1)"), metadata={"mha_lab": ["right", 9]})
    display({"image/png": "iVBORw0KGgoAAAANSUhEUg==<script>", "text/html": "<script>alert(2)</script>", "text/plain": "<script>"}, raw=True)
""",
    "no memory for the worker": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (10**6, 10**6))",
    "no files for the worker": "import os\nfor fd in range(3, 256):\n    try: os.close(fd)\n    except OSError: pass",
    "IPython taken apart": """\
shell = get_ipython()
shell.run_cell = shell.transform_cell = shell.run_ast_nodes = None
shell.user_ns.clear()
type(shell).user_ns = property(lambda self: 1 / 0)
""",
    "thirty wrong functions of each": "\n".join(
        f"check({name} := lambda *a, **k: [{i}.0] * {i})"
        if i % 2
        else STUB.format(name=name, body=f"return arguments[0] * {i}")
        for name in ANSWERED
        for i in range(2)
    ),
}
MANY_FUNCTIONS = [all_return(f"return arguments[0] * 1.{i}") for i in range(35)]

# Texts that are slow to read, or that a page could take for its own

TEXTS = {
    "markup": """\
<script>alert(1)</script> <img src=x onerror=alert(1)> <iframe srcdoc="<script>alert(1)</script>"></iframe>
[a](javascript:alert(1)) <a href="javascript:alert(1)">b</a> <svg onload=alert(1)></svg> <base href="https://x.example/">
<meta http-equiv="refresh" content="0;url=https://x.example"> <form action="https://x.example"><button>c</button></form>
<style>* {display: none}</style> </body></html> <link rel=stylesheet href=https://x.example/a.css> ![](https://x.example/a.png)
$$\\href{javascript:alert(1)}{x}$$ {{ 7 * 7 }} {% raw %} <!-- --> ]]> <object data=x></object> <math><mtext><script>alert(1)</script>
""",
    "quotes in quotes": ">" * 3000 + " a",
    "brackets": "[" * 50_000,
    "pictures in pictures": "![" * 30_000 + "](x)" * 100,
    "stars": "*a **b " * 9000,
    "lists": "\n".join("  " * i + "- a" for i in range(300)),
    "a wide table": "|a" * 5000 + "\n" + "|-" * 5000 + "\n" + "|b" * 5000,
    "backticks": "`" * 99_000,
    "fences": "\n".join("`" * (3 + i % 50) + "python" for i in range(90)),
    "the words of the grader": "The grader left out this cell: it is damaged.\n\nsplit_heads: right, 1 of 1.",
}
SLOW = {
    "nested lambdas": "x = " + "lambda: " * 5000 + "1",
    "nested f-strings": "x = " + "f'{" * 150 + "1" + "}'" * 150,
    "a chain": "x = a" + ".b" * 45_000,
    "decorators": "@a\n" * 4000 + "def split_heads(x, num_heads): pass",
    "strings side by side": "x = " + "'a' " * 24_000,
    "indentation": "\n".join(" " * i + "if a:" for i in range(99)) + "\n" + " " * 99 + "pass",
    "many arguments": "def split_heads(" + ",".join(f"a{i}" for i in range(15_000)) + "): pass",
    "regular expression": "def split_heads(x, num_heads):\n    import re\n    return re.match('(a+)+$', 'a' * 99 + 'b')",
    "one line of semicolons": "x=1;" * 24_000,
    "walrus": "x = " + "(a := " * 190 + "1" + ")" * 190,
    "names": "; ".join(f"split_heads{i} = split_heads" for i in range(3000)),
    "global": "def split_heads(x, num_heads):\n" + "    global a\n" * 4900,
    "left shift": "x = 1 << 10**10",
    "cells of magics": "%" * 50_000,
    "question marks": "?" * 90_000,
    "a line of blanks": " " * 99_000 + "\\\n" + "x",
    "a command in a command": "!" + "{" * 49_000 + "x",
}


# Of other people with right answers: each is graded, or one sentence names the folder.
NAMES = [
    "<img src=x onerror=alert(1)>", "</title><script>alert(1)<", '" onmouseover=alert(1) x="', "{{ 7 * 7 }}", "%s%n",
    "${7*7}", "..a", "a\u202eb", "n" * 250, "-rf", "--help", "'; drop table student; --", "*", "[a-z]*", "zoe ",
    "ZOE", unicodedata.normalize("NFD", "zoë"), unicodedata.normalize("NFC", "zoë"), "CON", "＝1+1", "１２３", "=1+1",
    "@SUM(A1)", "a\tb", "nul\x7f", "a;=1+1", "x" * 200, "\u2028line", "🎓 Ada", "03_splitting_heads", "submitted",
]  # fmt: skip
HONEST = "zoe"


def reads(course: Path) -> str:
    """What looks for files of others, and leaves something for the next one."""
    return f"""
import os
places = "/tmp", "/dev/shm", os.getcwd()
print("LOOKED", *[os.path.join(place, "left") for place in places if os.path.exists(os.path.join(place, "left"))])
for at, folders, files in os.walk("/"):
    if not at.startswith("/packages/"):  # those of nbgrader come with its documentation
        if any(word in at for word in ("submitted", "autograded", "gradebook", {HONEST!r})):
            print("FOUND", at, files)
        print(*["FOUND " + at + "/" + file for file in files if file in ("gradebook.db", "nbgrader_config.py", "grades.csv", "shadow")])
for path in ({str(course)!r}, {str(course / "gradebook.db")!r}, "/proc/self/root", "/proc/1/root", "/etc/shadow", "/root", "/home"):
    if os.path.exists(path):
        print("FOUND", path)
for place in places:
    try:
        open(os.path.join(place, "left"), "w").write("for the next one")
    except OSError as error:
        print(error)
"""


def attack(released: dict, cells: str | list[str], kind: str) -> dict:
    """The chapter with an attack in it: code in front of the checks, or a text."""
    notebook = released
    for name in (*ANSWERED, "split_by_hand"):
        typed(notebook, **{name: "pass"})
    cells = [cells] if isinstance(cells, str) else cells
    notebook["cells"][5:5] = [text(cell) if kind == "text" else code(cell) for cell in cells]
    return notebook
