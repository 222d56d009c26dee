"""Chapter 10: how much a head looks at the token before."""

import torch

from mha_lab import language_model  # noqa: F401  (so that the finished function can be refused)
from mha_lab.check.exercise import Exercise, Mistake


def previous_token_score(weights):
    """``(..., n, n)`` to the mean of ``weights[..., i, i - 1]``, ``(...)``."""
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=-1)


def _problems(draw):
    yield (torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.1, 0.6, 0.3]]),)
    for dtype in (torch.float32, torch.float64, torch.float64):
        batch, heads, n = draw.primes(3, at_least=3)
        yield (torch.softmax(2 * draw.normal(batch, heads, n, n, dtype=dtype), dim=-1),)
    heads, n = draw.primes(2, at_least=3)
    hidden = torch.ones(n, n).triu(diagonal=1).bool()
    yield (torch.softmax(draw.normal(heads, n, n).masked_fill(hidden, -torch.inf), dim=-1),)


def _line(weights, offset=-1):
    return weights.diagonal(offset=offset, dim1=-2, dim2=-1)


def _share(weights):
    """In how many rows the token before has the largest weight."""
    n = weights.shape[-1]
    hits = weights[..., 1:, :].argmax(dim=-1) == torch.arange(n - 1)
    return hits.to(weights.dtype).mean(dim=-1)


STEP = "7 Read its heads"
EXERCISE = Exercise(
    answer=previous_token_score,
    chapter="10_small_language_model",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=("language_model.previous_token_score",),
    mistakes={
        "next-token": Mistake(
            "Your function reads the line above the diagonal: the weight on the token that comes after.",
            STEP,
            (lambda w: _line(w, 1).mean(-1), lambda w: _line(w.mT).mean(-1)),
        ),
        "own-token": Mistake(
            "Your function reads the diagonal itself: the weight that a token gives to itself.",
            STEP,
            (lambda w: _line(w, 0).mean(-1),),
        ),
        "two-back": Mistake(
            "Your function reads the weight on the token two places back.",
            STEP,
            (lambda w: _line(w, -2).mean(-1), lambda w: _line(w, -2).sum(-1) / (w.shape[-1] - 1)),
        ),
        "first-row-counted": Mistake(
            "You divide by n: the first token has none before it, so there are only n - 1 weights.",
            STEP,
            (lambda w: _line(w).sum(-1) / w.shape[-1],),
        ),
        "rolled-around": Mistake(
            "Your function counts the weight of the first token on the last one as well.",
            STEP,
            (
                lambda w: (_line(w).sum(-1) + w[..., 0, -1]) / w.shape[-1],
                lambda w: (_line(w).sum(-1) + w[..., 0, -1]) / (w.shape[-1] - 1),
            ),
        ),
        "summed": Mistake(
            "Your function adds the weights up; their mean is asked for, which is at most 1.",
            STEP,
            (lambda w: _line(w).sum(-1),),
        ),
        "averaged-over-heads": Mistake(
            "Your function returns one number for all heads together; each head has its own.",
            STEP,
            (
                lambda w: _line(w).mean(),
                lambda w: _line(w).mean(-1).mean(-1) if w.ndim > 2 else _line(w).mean(-1),
            ),
        ),
        "not-averaged": Mistake(
            "Your function returns the weights on the token before one by one; their mean is asked for.",
            STEP,
            (lambda w: _line(w).clone(),),
        ),
        "argmax": Mistake(
            "Your function counts rows where the token before has most weight; average the weight itself.",
            STEP,
            (_share,),
        ),
    },
)
