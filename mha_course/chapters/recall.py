"""Associative recall with several lookups at once: problems, a model around one attention layer, training.

A problem is a list of records, each a name and a content, and a question that asks for some of the names,
in an order. The answer is the contents under these names, in that order. The weights of the
attention come from the names; the averaged values come from the contents.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Generator, Tensor, nn

from mha_lab import _expect as expect
from mha_lab.multihead import MultiHeadAttention

NUM_NAMES, NUM_CONTENTS, NUM_RECORDS = 8, 10, 6
# Queries and keys start small, so that at first all records get nearly the same weight. A head that starts
# with one large weight tends to keep it, and then two heads may learn the same lookup.
START = 0.1


@dataclass(frozen=True)
class RecallBatch:
    """Many problems at once, as whole numbers.

    ``names`` and ``contents`` are ``(batch, n)``: record ``j`` of problem ``b`` has the content
    ``contents[b, j]`` and the name ``names[b, j]``. ``asked``, ``(batch, num_lookups)``, are the names
    that the question asks for, in its order.

    >>> question = RecallBatch(torch.tensor([[3, 5]]), torch.tensor([[7, 2]]), torch.tensor([[5, 3]]))
    >>> question.answers
    tensor([[2, 7]])
    """

    names: Int64[Tensor, "batch n"]
    contents: Int64[Tensor, "batch n"]
    asked: Int64[Tensor, "batch num_lookups"]

    @property
    def answers(self) -> Int64[Tensor, "batch num_lookups"]:
        """``answers[b, l] = contents[b, j]`` for the ``j`` with ``names[b, j] = asked[b, l]``.

        Raises:
            ValueError: a question asks for a name that none of its records has.
        """
        found = self.asked[:, :, None] == self.names[:, None, :]
        if not found.any(dim=-1).all():
            expect.fail(ValueError, "asked", "only names of the problem's own records", "another one")
        return self.contents.gather(1, found.long().argmax(dim=-1))


def sample_problems(
    count: int,
    num_lookups: int = 2,
    *,
    generator: Generator,
    n: int = NUM_RECORDS,
    num_names: int = NUM_NAMES,
    num_contents: int = NUM_CONTENTS,
) -> RecallBatch:
    """Random problems: in each, all names differ, all contents differ, and no name is asked for twice.

    Args:
        count: how many problems.
        num_lookups: how many names a question asks for.
        generator: the source of random numbers; the same state gives the same problems.
        n: how many records a problem has.
        num_names: names are whole numbers from 0 to ``num_names - 1``.
        num_contents: contents are whole numbers from 0 to ``num_contents - 1``.

    >>> problems = sample_problems(5, generator=torch.Generator().manual_seed(0))
    >>> problems.names.shape, problems.asked.shape, problems.answers.shape
    (torch.Size([5, 6]), torch.Size([5, 2]), torch.Size([5, 2]))
    """
    for name, size in (
        ("count", count),
        ("num_lookups", num_lookups),
        ("n", n),
        ("num_names", num_names),
        ("num_contents", num_contents),
    ):
        expect.whole_number(name, size)
    for name, size, limit_name, limit in (
        ("n", n, "num_names", num_names),
        ("n", n, "num_contents", num_contents),
        ("num_lookups", num_lookups, "n", n),
    ):
        if size > limit:
            expect.fail(ValueError, name, f"at most {limit_name} = {limit}, so that all differ", size)
    _source("generator", generator)
    names, contents = (
        torch.rand(count, most, generator=generator).argsort(dim=-1)[:, :n]
        for most in (num_names, num_contents)
    )
    places = torch.rand(count, n, generator=generator).argsort(dim=-1)[:, :num_lookups]
    return RecallBatch(names, contents, names.gather(1, places))


class RecallModel(nn.Module):
    """One attention layer, with embeddings before it and a linear readout after it.

    The query of a problem is ``sum over l of ask[l, asked[l]]``, its keys are the embedded names, its
    values the embedded contents, and ``logits = readout(attention(query, key, value))``. No path
    bypasses the attention, and the number of parameters does not depend on ``num_heads``.

    Args:
        d_model: the width of query, keys, values and output.
        num_heads: how many heads; it must divide ``d_model``.
        num_lookups: how many names a question asks for.
        num_names, num_contents: as in ``sample_problems``.

    Source of the layer: Vaswani et al. 2017, section 3.2.2.

    >>> problems = sample_problems(5, generator=torch.Generator().manual_seed(0))
    >>> logits, weights = RecallModel(d_model=16, num_heads=2)(problems)
    >>> logits.shape, weights.shape
    (torch.Size([5, 2, 10]), torch.Size([5, 2, 1, 6]))
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_lookups: int = 2,
        *,
        num_names: int = NUM_NAMES,
        num_contents: int = NUM_CONTENTS,
    ) -> None:
        super().__init__()
        self.num_lookups = expect.whole_number("num_lookups", num_lookups)
        self.num_names = expect.whole_number("num_names", num_names)
        self.num_contents = expect.whole_number("num_contents", num_contents)
        self.attention = MultiHeadAttention(d_model, num_heads)
        self.ask = nn.Parameter(START * torch.randn(num_lookups, num_names, d_model))
        self.name = nn.Embedding(num_names, d_model)
        self.content = nn.Embedding(num_contents, d_model)
        self.readout = nn.Linear(d_model, num_lookups * num_contents)
        nn.init.normal_(self.name.weight, std=START)

    def forward(
        self, problems: RecallBatch
    ) -> tuple[Float[Tensor, "batch num_lookups num_contents"], Float[Tensor, "batch num_heads 1 n"]]:
        """A score for each content as each answer, and the weights of the question, the only query.

        Returns:
            ``(logits, weights)``: ``(batch, num_lookups, num_contents)``, ``(batch, num_heads, 1, n)``.

        Raises:
            ValueError: the problems ask for a number of names other than ``num_lookups``.
        """
        if problems.asked.shape[1] != self.num_lookups:
            expected, got = f"{self.num_lookups} names in each question", problems.asked.shape[1]
            expect.fail(ValueError, "asked", expected, got, "Was num_lookups passed to sample_problems too?")
        order = torch.arange(self.num_lookups)
        query = self.ask[order, problems.asked].sum(dim=1, keepdim=True)
        output, weights = self.attention(query, self.name(problems.names), self.content(problems.contents))
        return self.readout(output[:, 0]).unflatten(-1, (self.num_lookups, self.num_contents)), weights


def train(
    model: RecallModel,
    steps: int,
    *,
    generator: Generator,
    batch: int = 128,
    lr: int | float = 0.01,
    n: int = NUM_RECORDS,
) -> Iterator[float]:
    """Train ``model`` on fresh problems, and yield each step's loss when the step is done.

    A step draws ``batch`` problems and moves the parameters once by Adam, on the mean cross-entropy of all
    answers. Training starts when the first loss is asked for.

    Args:
        model: changed in place.
        steps: how many steps.
        generator: the source of the problems.
        batch: how many problems a step has.
        lr: Adam's learning rate.
        n: how many records a problem has.

    Yields:
        The loss before the step, in nats per answer.

    Source of the optimiser: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.

    >>> losses = list(train(RecallModel(16, 2), 3, generator=torch.Generator().manual_seed(0)))
    >>> len(losses)
    3
    """
    for name, size in (("steps", steps), ("batch", batch), ("n", n)):
        expect.whole_number(name, size)
    if expect.real_number("lr", lr) <= 0:
        expect.fail(ValueError, "lr", "a learning rate above 0", lr)
    _source("generator", generator)
    return _steps(model, steps, generator, batch, lr, n)


def _steps(
    model: RecallModel, steps: int, generator: Generator, batch: int, lr: int | float, n: int
) -> Iterator[float]:
    """The loop. It is a separate function so that ``train`` checks its arguments when it is called."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        problems = sample_problems(
            batch,
            model.num_lookups,
            generator=generator,
            n=n,
            num_names=model.num_names,
            num_contents=model.num_contents,
        )
        logits, _ = model(problems)
        loss = F.cross_entropy(logits.flatten(0, 1), problems.answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def fit(
    seed: int,
    num_heads: int,
    steps: int,
    *,
    num_lookups: int = 2,
    d_model: int = 16,
    kind: type[RecallModel] = RecallModel,
    change: Callable[[RecallModel], object] | None = None,
    done: Callable[[], object] | None = None,
) -> tuple[RecallModel, list[float]]:
    """A model made and trained from one seed.

    The seed decides the start of the parameters and the problems. So two models with the same seed, which
    differ only in ``num_heads``, start with the same parameters and see the same problems. PyTorch's global
    source of random numbers is left as it was.

    Args:
        seed: the seed of the model and of its problems.
        num_heads, num_lookups, d_model: as in ``RecallModel``.
        steps: how many steps of ``train``.
        kind: the class of the model.
        change: called with the new model before it is trained.
        done: called without arguments after each step, for example to move a progress bar.

    Returns:
        ``(model, losses)``, with a loss for each step.

    >>> model, losses = fit(0, num_heads=2, steps=3)
    >>> len(losses)
    3
    """
    expect.whole_number("seed", seed, at_least=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(d_model, num_heads, num_lookups)
        if change is not None:
            change(model)
    losses = []
    for loss in train(model, steps, generator=Generator().manual_seed(seed)):
        losses.append(loss)
        if done is not None:
            done()
    return model, losses


@torch.no_grad()
def is_correct(model: RecallModel, problems: RecallBatch) -> Bool[Tensor, "batch num_lookups"]:
    """Which answers are right: those where the content with the highest logit is the one asked for.

    >>> problems = sample_problems(5, generator=torch.Generator().manual_seed(0))
    >>> is_correct(RecallModel(16, 2), problems).shape
    torch.Size([5, 2])
    """
    return model(problems)[0].argmax(dim=-1) == problems.answers


@torch.no_grad()
def looked_at(model: RecallModel, problems: RecallBatch) -> Float[Tensor, "num_heads num_lookups"]:
    """Each head's mean weight on the record asked for first, on the one asked for second, and so on.

    >>> problems = sample_problems(5, generator=torch.Generator().manual_seed(0))
    >>> looked_at(RecallModel(16, 2), problems).shape
    torch.Size([2, 2])
    """
    return _on_asked(model(problems)[1], problems)


def ruled_heads(problems: RecallBatch) -> Float[Tensor, "8 questions n"]:
    """Eight heads that were made by rules, and not trained, for questions about two records.

    All problems have the same records. Most heads put 0.9 of their weight on one record; the third and the
    sixth have less, and the fourth divides its weight between the records asked for.

    >>> asked = torch.tensor([[5, 3], [3, 5], [5, 3], [3, 5], [5, 3]])
    >>> names, contents = torch.tensor([[3, 5, 1]]).expand(5, 3), torch.tensor([[7, 2, 8]]).expand(5, 3)
    >>> ruled_heads(RecallBatch(names, contents, asked)).shape
    torch.Size([8, 5, 3])
    """
    n, heads = problems.names.shape[1], []
    found = problems.asked[:, :, None] == problems.names[:, None, :]
    for question, (first, second) in enumerate(found.long().argmax(dim=-1).tolist()):
        names = problems.names[question]
        place = first if names[first] < names[second] else second
        earlier, later = sorted((first, second))
        rows = (
            {(second if question == 3 else first): 0.9},
            {place: 0.9},
            {second: 0.4},
            {earlier: 0.47, later: 0.43},
            {(first if question == 1 else second): 0.9},
            {first: 0.5, second: 0.3},
            {int((names == problems.asked[0, 0]).nonzero()): 0.9},
            {later: 0.9},
        )
        heads.append(
            [[row.get(j, (1 - sum(row.values())) / (n - len(row))) for j in range(n)] for row in rows]
        )
    return torch.tensor(heads).transpose(0, 1)


@dataclass(frozen=True)
class Recording:
    """What a training looked like after some of its steps, from ``record``.

    ``steps``, ``(moments,)``, says how many steps were done. ``losses`` and ``right``, ``(moments,)``, are
    the loss in nats per answer, and the share of problems with all answers right, on problems that no
    training used. ``looked``, ``(moments, num_heads, num_lookups)``, is each head's mean weight there on the
    records asked for.

    The others belong to a few example problems: ``weights``, ``(moments, num_heads, batch, n)``, of each
    head; ``answers``, ``(moments, batch, num_lookups)``, the contents with the highest logits; and ``sure``,
    of the same shape, the probabilities that the model gives to them.
    """

    steps: Int64[Tensor, " moments"]
    losses: Float[Tensor, " moments"]
    right: Float[Tensor, " moments"]
    looked: Float[Tensor, "moments num_heads num_lookups"]
    weights: Float[Tensor, "moments num_heads batch n"]
    answers: Int64[Tensor, "moments batch num_lookups"]
    sure: Float[Tensor, "moments batch num_lookups"]


def record(
    model: RecallModel,
    examples: RecallBatch,
    held_out: RecallBatch,
    steps: Sequence[int],
    *,
    generator: Generator,
    n: int = NUM_RECORDS,
) -> Recording:
    """Train ``model`` as ``train`` does, and write down how it is doing after some of the steps.

    Recording changes nothing in the training. With a model of float64, every computer gets the same numbers,
    up to about ``1e-11``.

    Args:
        model: changed in place; after the call, it is trained.
        examples: the problems whose weights and answers are recorded.
        held_out: the problems for losses and shares.
        steps: after how many steps, each number larger than the one before; 0 is before the training.
        generator: the source of the problems to train on.
        n: how many records these have.

    Returns:
        The recording.

    >>> problems = sample_problems(5, generator=torch.Generator().manual_seed(0))
    >>> model, source = RecallModel(16, 2), torch.Generator().manual_seed(0)
    >>> record(model, problems, problems, [0, 3], generator=source).weights.shape
    torch.Size([2, 2, 5, 6])
    """
    for step in steps:
        expect.whole_number("steps", step, at_least=0)
    if not steps or list(steps) != sorted(set(steps)):
        expect.fail(ValueError, "steps", "one number or more, each larger than the one before", list(steps))
    done, seen, training = 0, [], train(model, max(steps[-1], 1), generator=generator, n=n)
    for step in steps:
        for _ in range(step - done):
            next(training)
        done = step
        seen.append(_looked_at(model, examples, held_out))
    return Recording(torch.tensor(list(steps)), *map(torch.stack, zip(*seen, strict=True)))


@torch.no_grad()
def _looked_at(model: RecallModel, examples: RecallBatch, held_out: RecallBatch) -> tuple[Tensor, ...]:
    """One moment of a recording, in the order of its fields."""
    logits, weights = model(held_out)
    loss = F.cross_entropy(logits.flatten(0, 1), held_out.answers.flatten())
    right = (logits.argmax(dim=-1) == held_out.answers).all(dim=1).to(loss.dtype).mean()
    looked = _on_asked(weights, held_out)
    logits, weights = model(examples)
    sure, answers = logits.softmax(dim=-1).max(dim=-1)
    return loss, right, looked, weights[:, :, 0].transpose(0, 1), answers, sure


def _on_asked(
    weights: Float[Tensor, "batch num_heads 1 n"], problems: RecallBatch
) -> Float[Tensor, "num_heads num_lookups"]:
    """The mean weight on each of the records asked for."""
    wanted = problems.asked[:, :, None] == problems.names[:, None, :]  # (batch, num_lookups, n)
    return (weights * wanted[:, None]).sum(dim=-1).mean(dim=0)


def _source(name: str, value: object) -> None:
    """``value`` is a generator of random numbers, and not a seed."""
    if not isinstance(value, Generator):
        hint = "Did you mean torch.Generator().manual_seed(...)?" if isinstance(value, int) else ""
        expect.fail(TypeError, name, "a torch.Generator", type(value).__name__, hint)
