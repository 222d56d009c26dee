"""A last chapter that no list knows, with one of everything that a page may get wrong."""

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from bench import examples
from mha_course.explore import _widget

NAME = "99_one_more"
LABELLED = ("query", "heads", "mask", "flow", "model", "state", "training")  # explorables that write labels
TITLE = "99 One more"
ANSWER = "It is forty-two."
TEXT = f"""\
# {TITLE}

You read a chapter that only the tests have. It has a second sentence.

**Time**: 5 minutes. See [the bare view](03_splitting_heads.ipynb#3-The-bare-view) and [README](../README.md).

## 1 A `formula` and a *table*

$$\\frac{{\\sum_j e^{{s_j}}\\, v_j}}{{\\sum_j e^{{s_j}}}} = {" + ".join(f"a_{i}" for i in range(60))}$$

Inline: $\\sqrt{{d_k}}$, and a price of {{5}} in `{{code}}`. [Up](#1-A-formula-and-a-table)

| {" | ".join(f"column number {i}" for i in range(12))} |
|{" --- |" * 12}
| {" | ".join(f"`cell_{i}`" for i in range(12))} |

<details><summary>Hint 1</summary>

Think of *rows*.

</details>"""
RED = "\x1b[0;31m"
TRACEBACK = [
    f"{RED}---------------------------------------------------------------------------\x1b[0m",
    f"{RED}ValueError\x1b[0m                                Traceback (most recent call last)",
    "Cell \x1b[0;32mIn[1], line 1\x1b[0m\n\x1b[0;32m----> 1\x1b[0m \x1b[38;5;28;01mraise\x1b[39;00m",
    f"{RED}ValueError\x1b[0m: query is (5, 4), <b>key</b> is (4, 5)",
]


def explorable(widget):
    """What a stored output of it holds."""
    data, metadata = widget._repr_mimebundle_()
    kept = {kind: data[kind] for kind in ("image/png", "text/plain", _widget.START)}
    return new_output("display_data", data=kept, metadata=metadata)


def chapter():
    outputs = [
        new_output("stream", name="stdout", text=f"{RED}red\x1b[0m and a line of {'words ' * 60}\n"),
        new_output("error", ename="ValueError", evalue="key", traceback=TRACEBACK),
        explorable(examples.split()),
        *(explorable(examples.ALL[kind](examples.NASTY)) for kind in LABELLED),
    ]
    code = new_code_cell("print(1)\nx = [1, 2]", execution_count=1, outputs=outputs, id="code")
    answer = [new_output("stream", name="stdout", text=ANSWER)]
    hidden = new_code_cell(
        "6 * 7", execution_count=2, outputs=answer, id="hidden", metadata={"tags": ["predict"]}
    )
    cells = [new_markdown_cell(TEXT, id="text"), code, hidden]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
