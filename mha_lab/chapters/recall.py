"""Associative recall with several lookups at once: problems, a model around one attention layer, training.

A problem is a list of records, each a name and a content, and a question that asks for some of the names,
in an order. The answer is the contents under these names, in that order. The weights of the
attention come from the names; the averaged values come from the contents.

Raises: every function here checks its arguments before it computes anything. It raises ``TypeError`` for a
wrong type or dtype, and ``ValueError`` for a shape, size, number or device that does not fit. A function
says more only if it can raise for another reason.
"""

from collections.abc import Iterator
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


@torch.no_grad()
def is_correct(model: RecallModel, problems: RecallBatch) -> Bool[Tensor, "batch num_lookups"]:
    """Which answers are right: those where the content with the highest logit is the one asked for.

    >>> problems = sample_problems(5, generator=torch.Generator().manual_seed(0))
    >>> is_correct(RecallModel(16, 2), problems).shape
    torch.Size([5, 2])
    """
    return model(problems)[0].argmax(dim=-1) == problems.answers


def _source(name: str, value: object) -> None:
    """``value`` is a generator of random numbers, and not a seed."""
    if not isinstance(value, Generator):
        hint = "Did you mean torch.Generator().manual_seed(...)?" if isinstance(value, int) else ""
        expect.fail(TypeError, name, "a torch.Generator", type(value).__name__, hint)
