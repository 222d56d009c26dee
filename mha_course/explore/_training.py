"""A training to scrub through: losses, weights and answers after each recorded step."""

import base64
import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
import traitlets
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from mha_course.chapters.recall import RecallBatch, Recording
from mha_course.explore._widget import COLOURS, Explorable, finite, module
from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab._texts import short, texts

COUNTS = ("no heads", "one head", "two heads", "three heads", "four heads")
PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
LINES = ("-", "--", ":")  # of the models' losses, in their order
MAX_SIZES = {"seeds": 5, "models": 3, "heads": 4, "problems": 8, "records": 8}
MAX_BYTES = 24_000  # of all recorded weights and answers


class Training(Explorable):
    """The result of ``explore.training``: the picture, and its state as tensors."""

    _esm = module("training")
    _names = traitlets.List().tag(sync=True)  # of the models
    _heads = traitlets.List().tag(sync=True)  # how many each model has
    _records = traitlets.List().tag(sync=True)
    _asked = traitlets.List().tag(sync=True)  # for each problem, the places of the records asked for
    _truth = traitlets.List().tag(sync=True)
    _seeds = traitlets.List().tag(sync=True)
    _steps = traitlets.List().tag(sync=True)
    _losses = traitlets.List().tag(sync=True)  # (seeds, models, moments)
    _right = traitlets.List().tag(sync=True)  # (seeds, models, moments)
    # A byte for each number, as base64: (seeds, moments, frame). A frame has the weights of all heads, the
    # mean weights on the records asked for, the answers of all models, and how sure they are; 255 is 1.
    _frames = traitlets.Unicode().tag(sync=True)
    _seed = traitlets.Int().tag(sync=True)
    _step = traitlets.Int().tag(sync=True)

    @property
    def seed(self) -> int:
        """The seed that is chosen. Assigning chooses another."""
        return self._seed

    @seed.setter
    def seed(self, value: int) -> None:
        self._seed = _one_of("seed", value, self._seeds)

    @property
    def step(self) -> int:
        """How many steps of the training are done. Assigning goes to this step; it must be a recorded one."""
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        self._step = _one_of("step", value, self._steps)

    @property
    def losses(self) -> Float[Tensor, " models"]:
        """The loss of each model at this step, on problems that no training used, in nats per answer."""
        return self._now(self._losses)

    @property
    def right(self) -> Float[Tensor, " models"]:
        """The share of these problems with all answers right, for each model."""
        return self._now(self._right)

    @property
    def weights(self) -> tuple[Float[Tensor, "num_heads problems n"], ...]:
        """For each model, the weights of its heads at this step, to the nearest 1/255."""
        return self._frame()[0].split(self._heads)

    @property
    def looked(self) -> tuple[Float[Tensor, "num_heads num_lookups"], ...]:
        """For each model, the mean weights of its heads on the records asked for, to the nearest 1/255."""
        return self._frame()[1].split(self._heads)

    @property
    def answers(self) -> Int64[Tensor, "models problems num_lookups"]:
        """What each model answers at this step."""
        return self._frame()[2]

    def _now(self, numbers: list) -> Tensor:
        return torch.tensor(numbers)[self._seeds.index(self._seed), :, self._steps.index(self._step)]

    def _frame(self) -> tuple[Tensor, ...]:
        """Weights, mean weights, answers and how sure they are, for this seed and step."""
        (problems, lookups), models = torch.tensor(self._truth).shape, len(self._names)
        heads, each = sum(self._heads), (models, problems, lookups)
        shapes = (heads, problems, len(self._records)), (heads, lookups), each, each
        data = torch.tensor(list(base64.b64decode(self._frames))).view(len(self._seeds), len(self._steps), -1)
        frame = data[self._seeds.index(self._seed), self._steps.index(self._step)]
        parts = frame.split([math.prod(shape) for shape in shapes])
        weights, looked, answers, sure = (x.view(shape) for x, shape in zip(parts, shapes, strict=True))
        return weights / 255, looked / 255, answers, sure / 255

    def _questions(self) -> list[str]:
        return [", ".join(self._records[j].partition(":")[0] for j in places) for places in self._asked]

    def _titles(self) -> list[str]:
        """A name for each head."""
        pairs = zip(self._names, self._heads, strict=True)
        return [f"{name}, head {h}" if count > 1 else name for name, count in pairs for h in range(count)]

    def _told(self) -> list[str]:
        """A line for each model."""
        rows = zip(self._names, self.losses.tolist(), self.right.tolist(), strict=True)
        which = {1: "answer", 2: "both answers"}.get(len(self._truth[0]), "all answers")
        return [
            f"{name}: loss {_written(loss)}, {which} right in {100 * right:.0f}\u00a0% of the test problems"
            for name, loss, right in rows
        ]

    def _given(self) -> list[list[str]]:
        """For each problem: the question, the truth, and each model's answers with how sure it is."""
        _, _, answers, sure = self._frame()
        rows = []
        for i, (question, truth) in enumerate(zip(self._questions(), self._truth, strict=True)):
            given = (
                ", ".join(
                    f"{answer} {'✓' if answer == right else '✗'} ({p:.2f})"
                    for answer, right, p in zip(*each, strict=True)
                )
                for each in zip(
                    answers[:, i].tolist(), [truth] * len(answers), sure[:, i].tolist(), strict=True
                )
            )
            rows.append([question, ", ".join(map(str, truth)), *given])
        return rows

    def describe(self) -> str:
        """Losses, where each head looks, and the answers."""
        weights, looked, _, _ = self._frame()
        heads = []
        for title, mean, rows in zip(self._titles(), looked.tolist(), weights.tolist(), strict=True):
            each = zip(self._questions(), self._asked, rows, strict=True)
            told = (f"{asked} {', '.join(f'{row[j]:.2f}' for j in places)}" for asked, places, row in each)
            heads.append(f"{title}: {_means(mean)}; here {'; '.join(told)}.")
        answers = (
            f"{question}: {truth}; {'; '.join(map(': '.join, zip(self._names, given, strict=True)))}."
            for question, truth, *given in self._given()
        )
        return (
            f"Seed {self._seed}, step {self._step} of {self._steps[-1]}. {'. '.join(self._told())}. "
            f"Weights on the records asked for. {' '.join(heads)} Answers. {' '.join(answers)}"
        )

    def still(self) -> Figure:
        """Losses with the chosen step, each head's weights with a box for what was asked, and the answers."""
        weights, looked, _, _ = self._frame()
        figure = plt.figure(figsize=(max(8, 3.3 * len(weights)), 8.2), layout="constrained")
        curves, maps, table = figure.subfigures(3, 1, height_ratios=(2.6, 3.2, 1.8))
        ax, lookups = curves.subplots(), len(self._truth[0])
        each = zip(
            LINES, self._told(), self._losses[self._seeds.index(self._seed)], self.losses, strict=False
        )
        for line, told, losses, loss in each:
            ax.plot(self._steps, losses, line, color="0.2", label=told)
            ax.plot(self._step, loss, "o", color=COLOURS["accent"])
        ax.axvline(self._step, color=COLOURS["accent"], linewidth=1)
        ax.axhline(math.log(lookups), color="0.5", linestyle="-.", linewidth=1)
        ax.text(self._steps[-1], math.log(lookups), f"ln {lookups}", va="bottom", ha="right")
        title = f"seed {self._seed}, step {self._step}"
        ax.set(xlabel="step", ylabel="loss (nats per answer)", ylim=(-0.05, None), title=title)
        ax.legend()
        axes = maps.subplots(1, len(weights), squeeze=False)[0]
        asked = "asked first" if lookups == 1 else "asked first; dashed: asked later"
        maps.supxlabel(f"solid box: {asked}", fontsize="medium")
        for ax, title, rows, mean in zip(axes, self._titles(), weights, looked.tolist(), strict=True):
            title = f"{title}\n" + _means(mean).replace(": ", ":\n")
            plot.attention_heatmap(rows, self._questions(), self._records, cbar=False, ax=ax)
            ax.set_title(title, fontsize="medium")
            for q, places in enumerate(self._asked):
                for order, j in enumerate(places):
                    line = "-" if order == 0 else (0, (2, 1.5))
                    box = Rectangle((j + 0.08, q + 0.08), 0.84, 0.84, fill=False, linestyle=line)
                    box.set(linewidth=2.5, edgecolor=COLOURS["accent"])
                    ax.add_patch(box)
        ax = table.subplots()
        columns = ["asked", "truth", *map(short, self._names)]
        ax.table(self._given(), colLabels=columns, loc="center", cellLoc="center", edges="horizontal").scale(
            1, 1.3
        )
        ax.set_axis_off()
        return figure


def training(
    problems: RecallBatch,
    recordings: Mapping[int, Sequence[Recording]],
    *,
    names: Sequence[str] | None = None,
) -> Training:
    """Trainings to scrub through: what models look at and answer after each recorded step.

    A slider moves through the steps, and a button plays them. The picture shows the loss of each model,
    ``-log p(right content)`` on average, with the chosen step; the weights of every head for a few problems,
    ``softmax(q @ k.mT / sqrt(d_k))``; and the answers beside the truth. The learner's state is in ``.seed``,
    ``.step``, ``.losses``, ``.right``, ``.weights``, ``.looked`` and ``.answers``.

    Weights, mean weights and probabilities are kept as bytes, in steps of 1/255. So they differ from the
    recorded ones by up to 1/510, about 0.002. Losses and shares have four digits after the point.

    Args:
        problems: up to 8 example problems, all with the same records, up to 8.
        recordings: for up to 5 seeds, the recordings of up to 3 models with 4 heads in all, from
            ``mha_course.chapters.recall.record`` with these problems. All have the same steps.
        names: one text for each model; ``None`` means "one head", "two heads" and so on.

    Raises:
        TypeError: not problems and recordings, or names that are not texts.
        ValueError: too many of something, problems with different records, recordings that do not fit
            together or to the problems, NaN or infinity, or a wrong number of names.

    Source: Vaswani et al. 2017, section 3.2.2.

    >>> from mha_course import explore
    >>> from mha_course.chapters import recall
    >>> problems = recall.sample_problems(1, generator=torch.Generator().manual_seed(0))
    >>> source = torch.Generator().manual_seed(0)
    >>> recording = recall.record(recall.RecallModel(16, 2), problems, problems, [0, 3], generator=source)
    >>> picture = explore.training(problems, {0: [recording]})
    >>> picture.step = 3
    >>> picture.weights[0].shape
    torch.Size([2, 1, 6])
    """
    if not isinstance(problems, RecallBatch):
        expect.fail(TypeError, "problems", "a RecallBatch", type(problems).__name__)
    runs = [each for models in recordings.values() for each in models]
    if not runs or not all(isinstance(each, Recording) for each in runs):
        expect.fail(TypeError, "recordings", "a list of recordings for each seed", recordings)
    for each in runs:
        finite("losses", each.losses)
    for seed in recordings:
        expect.whole_number("seed", seed, at_least=0)
    for part in (problems.names, problems.contents):
        if (part != part[0]).any():
            expect.fail(ValueError, "problems", "the same records in all of them", "different ones")
    steps, models = runs[0].steps.tolist(), next(iter(recordings.values()))
    heads = [each.weights.shape[1] for each in models]
    (count, lookups), n = problems.asked.shape, problems.names.shape[1]
    for each in recordings.values():
        if [one.weights.shape[1] for one in each] != heads or any(
            one.steps.tolist() != steps for one in each
        ):
            expect.fail(ValueError, "recordings", "the same models and steps for each seed", "different ones")
    if any(each.weights.shape[2:] != (count, n) or each.answers.shape[2] != lookups for each in runs):
        expect.fail(ValueError, "recordings", "the weights of these problems", "those of others")
    sizes = (len(recordings), len(heads), sum(heads), count, n)
    for (name, most), size in zip(MAX_SIZES.items(), sizes, strict=True):
        if size > most:
            expect.fail(ValueError, "the picture", f"1 to {most} {name}", size)
    if problems.names.max() > 25 or problems.contents.max() > 255:
        expect.fail(ValueError, "problems", "names from 0 to 25 and contents from 0 to 255", "larger ones")
    frames = torch.cat([_frames(each) for each in recordings.values()]).numpy().tobytes()
    if len(frames) > MAX_BYTES:
        expect.fail(ValueError, "recordings", f"{MAX_BYTES} numbers", len(frames), "Record fewer steps.")
    found = problems.asked[:, :, None] == problems.names[:, None, :]
    pairs = zip(problems.names[0].tolist(), problems.contents[0].tolist(), strict=True)
    return Training(
        _names=[COUNTS[h] for h in heads] if names is None else texts("names", names, len(heads)),
        _heads=heads,
        _records=[f"{chr(ord('A') + name)}:{content}" for name, content in pairs],
        _asked=found.long().argmax(dim=-1).tolist(),
        _truth=problems.answers.tolist(),
        _seeds=list(recordings),
        _steps=steps,
        _losses=[[_rounded(each.losses, 3) for each in models] for models in recordings.values()],
        _right=[[_rounded(each.right) for each in models] for models in recordings.values()],
        _frames=base64.b64encode(frames).decode(),
        _seed=next(iter(recordings)),
        _step=steps[0],
    )


def _frames(models: Sequence[Recording]) -> Tensor:
    """A row of bytes for each moment."""
    weights, looked, answers, sure = (
        [getattr(each, field).flatten(1) for each in models]
        for field in ("weights", "looked", "answers", "sure")
    )
    scaled = [(255 * x).round() for x in (*weights, *looked)]
    return torch.cat([*scaled, *answers, *((255 * x).round() for x in sure)], dim=1).to(torch.uint8)


def _rounded(numbers: Tensor, digits: int = 0) -> list[float]:
    """To four digits after the point, and below 0.01 to so many significant digits, if any."""
    return [float(f"{x:.{digits}g}") if digits and x < 0.01 else round(x, 4) for x in numbers.tolist()]


def _written(loss: float) -> str:
    """Two digits after the point, and two significant digits below 0.01."""
    digits = 2 if loss >= 0.01 else next((d for d in range(4, 9) if loss * 10**d >= 10), 2)
    return f"{loss:.{digits}f}"


def _means(looked: Sequence[float]) -> str:
    """A head's mean weights on the records asked for."""
    return "mean weight in the test problems: asked " + ", ".join(
        f"{place} {x:.2f}" for place, x in zip(PLACES, looked, strict=False)
    )


def _one_of(name: str, value: int, offered: Sequence[int]) -> int:
    if value not in offered:
        expect.fail(ValueError, name, f"one of {', '.join(map(str, offered))}", value)
    return value
