"""A softmax in one pass over blocks of keys, and what happens if the old sums are not rescaled."""

import math
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import torch
import traitlets
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mha_course.explore._widget import COLOURS, Explorable, finite, module, name_rows, written
from mha_lab import _expect as expect

VISITED = "0.85"
RESCALED = ("l and o", "o", "neither")
MAX_SIZES = {"keys": 12, "d_v": 3}
ROOM = 2.5  # for dragging beyond the scores, at least


class Step(NamedTuple):
    """What is known after a block, in ``float64``; ``keys`` are its first key and the one after its last."""

    keys: tuple[int, int]
    m: Tensor
    factor: Tensor
    l: Tensor  # noqa: E741, its name in the papers
    o: Tensor

    @property
    def output(self) -> Tensor:
        return self.o / self.l if self.l > 0 else torch.zeros_like(self.o)


class OnlineSoftmax(Explorable):
    """The result of ``explore.online_softmax``: the picture, and its state as tensors, in both directions."""

    _public = "online_softmax"
    _esm = module("online_softmax")
    _scores = traitlets.List().tag(sync=True)
    _hidden = traitlets.List().tag(sync=True)  # for each key, whether its score is -inf
    _values = traitlets.List().tag(sync=True)
    _block = traitlets.Int().tag(sync=True)
    _step = traitlets.Int().tag(sync=True)
    _rescaled = traitlets.Unicode().tag(sync=True)
    _range = traitlets.List().tag(sync=True)  # the least and the highest score to drag to

    def __init__(self, dtype: torch.dtype, **state: Any) -> None:
        self._dtype = dtype
        super().__init__(**state)

    @property
    def scores(self) -> Float[Tensor, "n"]:
        """The scores as they are now; a hidden one is ``-inf``. Assigning changes the picture."""
        return self._seen().to(self._dtype)

    @scores.setter
    def scores(self, value: Tensor) -> None:
        low, high = _range(_checked(value, len(self._values)))
        self._range = [min(low, self._range[0]), max(high, self._range[1])]
        self._scores, self._hidden = _stored(value)

    @property
    def block(self) -> int:
        """How many keys are read together. Assigning changes it; the steps begin again."""
        return self._block

    @block.setter
    def block(self, value: int) -> None:
        self._block, self._step = _block(value, len(self._values)), 0

    @property
    def step(self) -> int:
        """How many blocks are read. Assigning moves the picture there."""
        return min(self._step, math.ceil(len(self._values) / self._block))

    @step.setter
    def step(self, value: int) -> None:
        self._step = _step(value, len(self._values), self._block)

    @property
    def rescaled(self) -> str:
        """Which old sums get the factor: "l and o" (right), "o" or "neither". Assigning chooses it."""
        return self._rescaled

    @rescaled.setter
    def rescaled(self, value: str) -> None:
        self._rescaled = _rescaled(value)

    @property
    def m(self) -> Float[Tensor, ""]:
        """The highest score so far; ``-inf`` if no key was seen."""
        return self._now().m.to(self._dtype)

    @property
    def l(self) -> Float[Tensor, ""]:  # noqa: E743, its name in the papers
        """The denominator so far, with the bug if one is chosen."""
        return self._now().l.to(self._dtype)

    @property
    def o(self) -> Float[Tensor, "d_v"]:
        """The numerator so far, with the bug if one is chosen."""
        return self._now().o.to(self._dtype)

    @property
    def output(self) -> Float[Tensor, "d_v"]:
        """``o / l``; zeros if no key was seen."""
        return self._now().output.to(self._dtype)

    def _seen(self) -> Tensor:
        hidden = torch.tensor(self._hidden)
        return torch.tensor(self._scores, dtype=torch.float64).masked_fill(hidden, -math.inf)

    def _now(self) -> Step:
        return self._steps()[self.step]

    def _steps(self, rescaled: str | None = None) -> list[Step]:
        """Before the first block, and after each; with ``rescaled`` in place of what is chosen."""
        scores, values = self._seen(), torch.tensor(self._values, dtype=torch.float64)
        m, l, o = torch.tensor(-math.inf).double(), scores.new_zeros(()), values.new_zeros(values.shape[-1])  # noqa: E741
        found = [Step((0, 0), m, l, l, o)]
        given = rescaled or self._rescaled
        for start in range(0, len(scores), self._block):
            part = slice(start, min(start + self._block, len(scores)))
            raised = torch.maximum(m, scores[part].max())
            shift = raised.masked_fill(raised == -math.inf, 0.0)  # -inf - (-inf) would be NaN
            weights, factor = torch.exp(scores[part] - shift), torch.exp(m - shift)
            l = (factor if given == "l and o" else 1.0) * l + weights.sum()  # noqa: E741
            o = (1.0 if given == "neither" else factor) * o + weights @ values[part]
            m = raised
            found.append(Step((part.start, part.stop), m, factor, l, o))
        return found

    def describe(self) -> str:
        """What each block does to m, l and o, and both outputs."""
        steps, right = self._steps(), self._steps("l and o")[self.step]
        told = [f"Block {i} ({_told(step)})." for i, step in enumerate(steps) if i]
        scores = ", ".join(_short(x) for x in self._seen().tolist())
        text = (
            f"Scores {scores}, in blocks of {self._block} keys. Old sums that get the factor: "
            f"{self._rescaled}. {' '.join(told)} {self.step} of {len(told)} blocks are read: o / l is "
            f"{written(steps[self.step].output.tolist())}, softmax @ values {written(right.output.tolist())}."
        )
        return text.replace("−", "-")

    def still(self) -> Figure:
        """The scores in their blocks with the running maximum, and a table of all steps."""
        steps, right = self._steps(), self._steps("l and o")
        width = 8.6 + 1.2 * len(self._values[0])
        size = (width, 0.9 + 0.36 * max(len(self._values), len(steps) + 2))
        figure, (left, table) = plt.subplots(1, 2, figsize=size, layout="constrained", width_ratios=(4, 6))
        self._draw_scores(left, steps)
        cells = [
            [*_row(step), written(step.output.tolist()), written(true.output.tolist())]
            for step, true in zip(steps, right, strict=True)
        ][1:]
        names = ["keys", "m", "factor", "l", "o", "o / l", "softmax\n@ values"]
        drawn = table.table(cells, colLabels=names, loc="center", edges="horizontal")
        drawn.auto_set_column_width(list(range(len(names))))
        drawn.scale(1, 1.5)
        for column in range(len(names)):
            drawn[0, column].set_height(1.6 * drawn[0, column].get_height())
            if self.step:
                drawn[self.step, column].get_text().set_weight("bold")
        table.set_title(f"old sums that get the factor: {self._rescaled}", fontsize="medium")
        table.set_axis_off()
        return figure

    def _draw_scores(self, ax: Axes, steps: list[Step]) -> None:
        for i, (score, hidden) in enumerate(zip(self._scores, self._hidden, strict=True)):
            if hidden:
                ax.annotate(" −∞, hidden", (0, i), va="center")
            else:
                ax.barh(i, score, height=0.5, color=COLOURS["key"])
        for i, step in enumerate(steps[1:], 1):
            first, end = step.keys
            if i <= self.step:
                ax.axhspan(first - 0.5, end - 0.5, color=VISITED, zorder=0)
            ax.axhline(end - 0.5, color="0.5", linewidth=0.8)
            if step.m > -math.inf:
                ax.plot([step.m] * 2, [first - 0.5, end - 0.5], color="black", linewidth=3)
        names = [f"■ key {i}\n▲ {written(value, whole=True)}" for i, value in enumerate(self._values)]
        name_rows(ax, names, "small")
        ax.axvline(0, color="0.5", linewidth=0.8)
        ax.set(xlim=self._range, ylim=(len(names) - 0.5, -0.5))
        ax.set_title("scores; thick line: m; grey: read", fontsize="medium")


def online_softmax(
    scores: Float[Tensor, "n"],
    values: Float[Tensor, "n d_v"],
    *,
    block: int = 2,
    step: int = 0,
    rescaled: str = "l and o",
) -> OnlineSoftmax:
    """The output of one query in one pass over blocks of keys: ``softmax(scores) @ values``.

    It keeps ``m``, the highest score so far, and ``l`` and ``o``, the sums of ``exp(score - m)`` and of
    ``exp(score - m) * value``. For each block, with ``factor = exp(m_old - m_new)``,

    ``l = factor * l + sum(exp(score - m_new))`` and ``o = factor * o + sum(exp(score - m_new) * value)``.

    After the last block the output is ``o / l``. The picture shows these parts before and after each block.
    Scores can be dragged, typed and hidden (``-inf``). While no key was seen, ``m`` is ``-inf``, and 0 is
    subtracted in its place. ``rescaled`` can be a bug: some old sums do not get the factor. The state is in
    ``.scores``, ``.block``, ``.step``, ``.rescaled``, ``.m``, ``.l``, ``.o`` and ``.output``.

    Args:
        scores: ``(n,)``, of 2 to 12 keys; ``-inf`` hides a key.
        values: ``(n, d_v)``; ``d_v`` up to 3.
        block: how many keys are read together; it need not divide ``n``.
        step: how many blocks are read at first.
        rescaled: which old sums get the factor: "l and o", "o" or "neither".

    Raises:
        TypeError: not tensors, not of one floating-point dtype, or a block or step that is not an ``int``.
        ValueError: a wrong shape or size, NaN, a score of ``inf``, or a block or step that does not exist.

    Sources: Milakov and Gimelshein 2018, section 3, for ``m`` and ``l``; Rabe and Staats 2021, section 3, for
    ``o``; Dao et al. 2022, section 3.1, for blocks.

    >>> from mha_course import explore
    >>> scores, values = torch.tensor([1.0, 4.0]).log(), torch.tensor([[10.0], [20.0]])
    >>> picture = explore.online_softmax(scores, values, step=1)
    >>> picture.l, picture.o, picture.output
    (tensor(1.2500), tensor([22.5000]), tensor([18.]))
    """
    finite("values", expect.tensor("values", values, "(n, d_v)", min_rank=2, max_rank=2))
    n, d_v = values.shape
    for name, size, least in (("keys", n, 2), ("d_v", d_v, 1)):
        if not least <= size <= MAX_SIZES[name]:
            expect.fail(ValueError, "the picture", f"{least} to {MAX_SIZES[name]} for {name}", size)
    stored, hidden = _stored(_checked(scores, n))
    expect.same_kind(scores=scores, values=values)
    return OnlineSoftmax(
        scores.dtype,
        _scores=stored,
        _hidden=hidden,
        _values=values.tolist(),
        _block=_block(block, n),
        _step=_step(step, n, block),
        _rescaled=_rescaled(rescaled),
        _range=_range(scores),
    )


def _checked(value: Tensor, n: int) -> Tensor:
    """Scores of ``n`` keys; ``-inf`` is allowed."""
    expect.tensor("scores", value, "(n,)", min_rank=1, max_rank=1)
    finite("scores", value.masked_fill(value == -math.inf, 0.0))
    if len(value) != n:
        expect.fail(ValueError, "scores", f"one score for each of the {n} values", len(value))
    return value


def _stored(scores: Tensor) -> tuple[list[float], list[bool]]:
    """The numbers, and which are hidden: JSON has no infinity. A hidden score is 0 when it is shown again."""
    hidden = scores == -math.inf
    return scores.masked_fill(hidden, 0.0).tolist(), hidden.tolist()


def _range(scores: Tensor) -> list[int]:
    stored, _ = _stored(scores)
    low, high = min(0, *stored), max(0, *stored)
    room = max(ROOM, 0.25 * (high - low))
    return [math.floor(low - room), math.ceil(high + room)]


def _block(value: int, n: int) -> int:
    if expect.whole_number("block", value) > n:
        expect.fail(ValueError, "block", f"at most {n} keys", value)
    return value


def _step(value: int, n: int, block: int) -> int:
    steps = math.ceil(n / block)
    if expect.whole_number("step", value, at_least=0) > steps:
        expect.fail(ValueError, "step", f"at most {steps} blocks", value)
    return value


def _rescaled(value: str) -> str:
    if value not in RESCALED:
        expect.fail(ValueError, "rescaled", f"one of {', '.join(RESCALED)}", repr(value))
    return value


def _short(x: float) -> str:
    """As in the picture: a small factor keeps its digits."""
    return "−∞" if x == -math.inf else f"{x:.1e}" if 0 < x < 0.001 else f"{x:.2f}"


def _told(step: Step) -> str:
    return ", ".join(
        f"{name} {x}" for name, x in zip(("keys", "m", "factor", "l", "o"), _row(step), strict=True)
    )


def _row(step: Step) -> list[str]:
    first, end = step.keys
    keys = f"{first} to {end - 1}" if end - first > 1 else f"{first}"
    return [keys, *(_short(x.item()) for x in (step.m, step.factor, step.l)), written(step.o.tolist())]
