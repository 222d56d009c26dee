"""A question: the learner commits to an answer before the truth is shown."""

import base64
import itertools
import json
import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
import traitlets
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from mha_course.explore._widget import Explorable, finite, module, unlike
from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab._texts import short, texts

MAX_ITEMS = 8  # options, bars, rows or columns
SLACK = 1 + 1e-5  # what is right by a hair stays right after rounding
STEP = 0.05  # of a bar
ASK = {"choice": "Pick one", "number": "Type a number", "cell": "Pick a cell", "bars": "Set bars from 0 to 1"}


class Predict(Explorable):
    """The result of ``explore.predict``: the question, and what the learner committed to."""

    _esm = module("predict")
    _kind = traitlets.Unicode().tag(sync=True)
    _text = traitlets.Unicode().tag(sync=True)
    _labels = traitlets.List().tag(sync=True)
    _truth = traitlets.Unicode().tag(sync=True)  # base64: not to be read by accident in a stored notebook
    _guess = traitlets.Any(None, allow_none=True).tag(sync=True)

    @property
    def answer(self) -> str | float | tuple[int, ...] | Float[Tensor, "n"] | None:
        """What the learner committed to; ``None`` before that."""
        kinds = {
            "choice": str,
            "number": float,
            "cell": tuple,
            "bars": lambda bars: torch.tensor(bars).float(),
        }
        return None if self._guess is None else kinds[self._kind](self._guess)

    @property
    def right(self) -> bool | None:
        """Whether that is right; ``None`` before the learner committed."""
        return None if self._guess is None else self._judged()[0]

    def _judged(self) -> tuple[bool, str, dict[str, Any]]:
        """Right or not, the sentence that says so, and the truth: as ``compute`` in the ES module."""
        truth, *ideas = json.loads(base64.b64decode(self._truth))
        off = [_off(self._kind, self._guess, each["value"]) for each in (truth, *ideas)]
        if off[0] <= truth["within"] * SLACK:
            return True, "Right.", truth
        near = [
            (d, w) for d, w in zip(off[1:], ideas, strict=True) if d < off[0] and d <= w["within"] * SLACK
        ]
        idea = min(near, key=lambda each: each[0])[1]["say"] if near else ""
        return False, f"Not this one. {idea}".strip(), truth

    def describe(self) -> str:
        """The question; after the learner committed, also the truth."""
        groups = self._labels
        if self._kind == "cell":
            groups = [
                f"{name} {', '.join(each)}" for name, each in zip(("rows", "columns"), groups, strict=True)
            ]
        asked = f"{ASK[self._kind]}{': ' if groups else ''}{'; '.join(groups)}."
        return " ".join(["Question:", self._text, asked, *self._after()])

    def _after(self) -> list[str]:
        if self._guess is None:
            return []
        _, verdict, truth = self._judged()
        mine = _words(self._kind, self._guess, self._labels)
        return [
            f"Your answer: {mine}.",
            f"The truth: {truth['shown']}.",
            verdict,
            *filter(None, [truth["say"]]),
        ]

    def still(self) -> Figure:
        """The question, with its options, an empty heatmap or empty bars."""
        grid, bars = self._kind == "cell", self._kind == "bars"
        lines = [self._text, *(f"○  {option}" for option in self._labels if self._kind == "choice")]
        lines += ["Your number: ____________"] * (self._kind == "number")
        above, below = (
            "\n".join(
                textwrap.fill(line, 68, subsequent_indent="     " * line.startswith("○")) for line in part
            )
            for part in (lines, [" ".join(self._after())])
        )
        rows = self._labels[0] if grid else self._labels if bars else []
        size = (
            6.4,
            0.3 + 0.22 * (above + below).count("\n") + 0.4 * (len(rows) + 2 * bool(rows) + bool(below)),
        )
        figure = plt.figure(figsize=size, layout="constrained" if rows else None)
        figure.suptitle(above, x=0.02, ha="left", fontsize=11, linespacing=1.5, parse_math=False)
        figure.supxlabel(below, x=0.02, ha="left", fontsize=11, parse_math=False)
        if not rows:
            figure.add_axes((0, 0, 1, 1)).set_axis_off()  # IPython draws no figure without axes
            return figure
        ax = figure.subplots()
        places = [i + 0.5 for i in range(MAX_ITEMS)]
        ax.set_yticks(places[: len(rows)], [*map(short, rows)], parse_math=False)
        ax.set(ylim=(len(rows), 0), xlim=(0, len(self._labels[1]) if grid else 1))
        if grid:
            ax.pcolormesh([[0] * len(self._labels[1])] * len(rows), cmap=plot.PALETTE, edgecolors="0.5")
            ax.set_xticks(places[: len(self._labels[1])], [*map(short, self._labels[1])], parse_math=False)
        else:
            ax.barh(places[: len(rows)], 1, 0.6, color="none", edgecolor="0.5")
            ax.spines[:].set_visible(False)
        return figure


def predict(
    text: str,
    answer: str | int | float | tuple[int, int] | Sequence[int | float] | Float[Tensor, "n"],
    wrong: dict[str, Any] | None = None,
    *,
    labels: Sequence[Any] | None = None,
    because: str = "",
) -> Predict:
    """A question at which the learner commits to an answer before the truth is shown.

    The type of ``answer`` says what the learner does: pick a text, type a number, pick a cell of an empty
    heatmap (a tuple: row, column), or set bars from 0 to 1 (a list, or a tensor of rank 1). What the learner
    committed to is in ``.answer`` and ``.right``. It stays on the learner's computer.

    An ``int`` is right if it is exact; a ``float`` within 1 % or 0.005 (below 0.01: half of its first digit).
    Bars are right if none of them is off by more than 0.1, nor their mean by more than 0.05, and if larger
    bars are larger. An answer is taken for a wrong idea if it is nearer: a ``float`` within half of its
    second digit, or 1 %, and bars within 0.05 (their mean within 0.025).

    Args:
        text: the question.
        answer: the truth.
        wrong: for each wrong idea, as a sentence, the answer that it leads to; a text offers all of them.
        labels: for a cell, the texts of the rows and of the columns; for bars, one text for each.
        because: what is said about the truth, after the learner committed.

    Raises:
        TypeError: an answer of another type, a wrong answer of another kind than the truth, or no texts.
        ValueError: a wrong answer that counts as right, or that is there twice; a wrong size; NaN.

    >>> from mha_course import explore
    >>> explore.predict("What is the shape of Q?", "(5, 3)", {"This is the shape of X.": "(5, 4)"})
    <explore.predict: Question: What is the shape of Q? Pick one: (5, 3); (5, 4).>
    """
    kind = _kind("answer", answer)
    for name, sentence in [
        ("text", text),
        ("because", because or "-"),
        *(("wrong", idea) for idea in wrong or {}),
    ]:
        if not isinstance(sentence, str) or not sentence.strip():
            expect.fail(TypeError, name, "a sentence", repr(sentence))
    names = _names(kind, answer, labels)
    known = [_value("answer", answer, kind, names) | {"say": because}]
    for idea, value in (wrong or {}).items():
        if _kind("wrong", value) != kind:
            expect.fail(TypeError, "wrong", "values of the same kind as answer", f"{value!r} for {idea!r}")
        found = _value("wrong", value, kind, names) | {"say": idea}
        if _off(kind, found["value"], known[0]["value"]) <= known[0]["within"] * SLACK:
            expect.fail(ValueError, "wrong", "values that do not count as right", f"{value!r} for {idea!r}")
        if found["value"] in [each["value"] for each in known]:
            expect.fail(ValueError, "wrong", "a different value for each idea", f"{value!r} again")
        known.append(found | {"within": min(found["within"], _as_typed(found["value"]))})
    if kind == "choice":
        names = _order([each["value"] for each in known])
        if not 2 <= len(names) <= MAX_ITEMS:
            expect.fail(ValueError, "wrong", f"1 to {MAX_ITEMS - 1} wrong answers to offer", len(names) - 1)
    truth = base64.b64encode(json.dumps(known).encode()).decode()
    return Predict(_kind=kind, _text=text, _labels=names, _truth=truth)


def _kind(name: str, value: Any) -> str:
    types = {"choice": str, "cell": tuple, "bars": list | Tensor, "number": int | float}
    for kind, each in types.items():
        if isinstance(value, each) and not isinstance(value, bool):
            return kind
    wanted = "a text, a number, a tuple (row, column), or a list of numbers"
    expect.fail(TypeError, name, wanted, type(value).__name__)


def _names(kind: str, answer: Any, given: Any) -> list:
    """The labels of bars, or of rows and columns; the other kinds have none."""
    if kind == "bars":
        return texts("labels", given, len(answer) if isinstance(answer, list) else answer.numel(), "bar {}")
    if kind == "cell":
        if not isinstance(given, list | tuple) or len(given) != 2:
            expect.fail(TypeError, "labels", "(row labels, column labels)", repr(given))
        for each in given:
            if not 1 <= len(each) <= MAX_ITEMS:
                expect.fail(ValueError, "labels", f"1 to {MAX_ITEMS} rows and columns", len(each))
        return [texts("labels", each, len(each)) for each in given]
    if given is not None:
        expect.fail(ValueError, "labels", "None, as only cells and bars have labels", repr(given))
    return []


def _value(name: str, value: Any, kind: str, names: list) -> dict[str, Any]:
    """The value for JSON, how far off is still right, and its words."""
    within = 0.0
    if kind == "choice" and not value.strip():
        expect.fail(ValueError, name, "a text", repr(value))
    if kind == "number":
        if isinstance(expect.real_number(name, value), float):
            value = float(f"{value:.6g}")  # as on every machine
        first = -math.floor(math.log10(abs(value))) if value else 0
        last = 0.5 if isinstance(value, int) else 10.0 ** -max(2, first) / 2
        within = last if isinstance(value, int) else max(last, abs(value) / 100)
    if kind == "cell":
        value = [expect.whole_number(name, i, at_least=0) for i in value]
        if len(value) != 2 or any(i >= len(texts) for i, texts in zip(value, names, strict=True)):
            expect.fail(
                ValueError, name, f"a cell (row, column) of {len(names[0])} by {len(names[1])}", value
            )
    if kind == "bars":
        if isinstance(value, list):
            value = torch.tensor([expect.real_number(name, bar) for bar in value], dtype=torch.float64)
        finite(name, expect.tensor(name, value, "(n,)", min_rank=1, max_rank=1))
        if len(value) != len(names):
            expect.fail(ValueError, name, f"{len(names)} bars", len(value))
        if not 1 <= len(value) <= MAX_ITEMS:
            expect.fail(ValueError, name, f"1 to {MAX_ITEMS} bars", len(value))
        if value.min() < 0 or value.max() > 1:
            expect.fail(ValueError, name, "numbers from 0 to 1", value.tolist())
        value, within = [round(bar, 6) for bar in value.tolist()], 0.1
    return {"value": value, "within": within, "shown": _words(kind, value, names)}


def _as_typed(value: Any) -> float:
    """How far off ``value`` may be with two digits, half of the second or 1 %; with bars, one step."""
    if isinstance(value, list):
        return STEP
    if not isinstance(value, float) or value == 0:
        return math.inf
    return max(abs(value) / 100, 10.0 ** (math.floor(math.log10(abs(value))) - 1) / 2)


def _words(kind: str, value: Any, names: list) -> str:
    if kind == "cell":
        places = [unlike(each)[at] for each, at in zip(names, value, strict=True)]
        if any(re.fullmatch(r"[a-z]+ \d+", name) for name in places):  # "head 0" says what it counts
            return ", ".join(places)
        return f"row {places[0]}, column {places[1]}"
    if kind == "bars":
        return ", ".join(f"{name} {bar:.2f}" for name, bar in zip(names, value, strict=True))
    if isinstance(value, float):
        digits = max(2, 1 - math.floor(math.log10(abs(value)))) if value else 2
        value = f"{value:.{digits}f}".removesuffix(".00")
    return str(value).replace("-", "−") if kind == "number" else value


def _off(kind: str, a: Any, b: Any) -> int | float:
    """How far a guess is from a known answer, as ``off`` in the ES module."""
    if kind == "number":
        return abs(a - b)
    if kind != "bars":
        return 0.0 if a == b else math.inf
    pairs = itertools.permutations(zip(a, b, strict=True), 2)
    if any(known - less > STEP * SLACK and mine <= other for (mine, known), (other, less) in pairs):
        return math.inf  # bars keep their order
    return max(2 * abs(sum(a) - sum(b)) / len(a), *(abs(x - y) for x, y in zip(a, b, strict=True)))


def _order(options: list[str]) -> list[str]:
    """Numbers by value, other texts by the alphabet: the same order, whichever of them is the answer."""
    try:
        return sorted(options, key=float)
    except ValueError:
        return sorted(options, key=str.casefold)
