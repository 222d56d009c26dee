"""Chapter 10: how much a head looks at the token before."""

import torch

from mha_course.chapters import language_model
from mha_course.exercises import Exercise, deviations


def previous_token_score(weights):
    """``(..., n, n)`` to the mean of ``weights[..., i, i - 1]``, ``(...)``."""
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=-1)


def _problems(rng):
    yield (torch.tensor([[0.7, 0.1, 0.2], [0.5, 0.2, 0.3], [0.25, 0.6, 0.15]]),)
    small = [
        [[0.4, 0.3, 0.3], [0.8, 0.1, 0.1], [0.2, 0.5, 0.3]],
        [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.6, 0.35, 0.05]],
    ]
    yield (torch.tensor(small),)
    hidden = torch.ones(5, 5).triu(diagonal=1).bool()
    yield (torch.softmax(rng.normal(5, 5).masked_fill(hidden, -torch.inf), dim=-1),)
    for _ in range(3):
        batch, heads, n = rng.primes(3, at_least=3)
        yield (torch.softmax(2 * rng.normal(batch, heads, n, n), dim=-1),)
    yield (torch.softmax(rng.normal(3, 2, 2), dim=-1),)
    yield (torch.softmax(rng.normal(1, 2, 3, 3), dim=-1),)


def _line(weights, offset=-1):
    return weights.diagonal(offset=offset, dim1=-2, dim2=-1)


def _around(weights):
    """The line below the diagonal, and the weight of the first token on the last."""
    return torch.cat([weights[..., 0, -1:], _line(weights)], dim=-1)


def _best(weights):
    hits = weights[..., 1:, :].argmax(dim=-1) == torch.arange(weights.shape[-1] - 1)
    return hits.float()


def _build(read=_line, reduce=lambda line, w: line.mean(-1)):
    return lambda weights: reduce(read(weights), weights)


STEP = "12 Appendix: Heads that look at the token before"
KNOBS = {
    "read": {
        "next-token": (
            "Your function reads the line above the diagonal: the weight on the token that comes after.",
            STEP,
            (lambda w: _line(w, 1),),
        ),
        "own-token": (
            "Your function reads the diagonal itself: the weight that a token gives to itself.",
            STEP,
            (lambda w: _line(w, 0),),
        ),
        "two-back": (
            "Your function reads the weight on the token two places back.",
            STEP,
            (lambda w: _line(w, -2),),
        ),
        "all-earlier-tokens": (
            "Your function adds up the weights on all earlier tokens; only the one before counts.",
            STEP,
            (lambda w: w.tril(-1).sum(-1)[..., 1:],),
        ),
        "whole-block": (
            "Your function takes all weights of the rows from 1 on and the columns before the last; use "
            "only those on the line below the diagonal.",
            STEP,
            (lambda w: w[..., 1:, :-1].flatten(-2),),
        ),
        "rolled-around": (
            "Your function counts the weight of the first token on the last one as well: index -1 is the "
            "last.",
            STEP,
            (_around,),
        ),
        "argmax": (
            "Your function counts rows where the token before has the most weight; average the weight "
            "itself.",
            STEP,
            (_best,),
        ),
        "first-column": (
            "Your function reads the first column: the weight on the first token of the text.",
            STEP,
            (lambda w: w[..., 1:, 0], lambda w: w[..., 0]),
        ),
        "last-row-only": (
            "Your function reads only the last token's row; each token but the first has one before it.",
            STEP,
            (lambda w: w[..., -1:, -2],),
        ),
    },
    "reduce": {
        "divided-by-n": (
            "You divide by n: the first token has none before it, so there are only n - 1 weights.",
            STEP,
            (lambda line, w: line.sum(-1) / w.shape[-1],),
        ),
        "summed": (
            "Your function adds the weights up; it should return their mean, which is at most 1.",
            STEP,
            (lambda line, w: line.sum(-1),),
        ),
        "averaged-over-heads": (
            "Your function averages over the axes in front as well; each head has its own number.",
            STEP,
            (
                lambda line, w: line.mean(),
                lambda line, w: line.mean(-1).mean(-1) if w.ndim > 2 else line.mean(-1),
            ),
        ),
        "averaged-over-tokens-of-the-wrong-axis": (
            "Your mean runs over the first axis; the weights of one head lie along the last.",
            STEP,
            (lambda line, w: line.mean(0),),
        ),
        "not-averaged": (
            "Your function returns the weights one by one; it should return their mean.",
            STEP,
            (lambda line, w: line.clone(),),
        ),
        "largest": (
            "Your function returns the largest of the weights; it should return their mean.",
            STEP,
            (lambda line, w: line.amax(-1),),
        ),
    },
}


def _front(weights):
    """Rows and columns taken from the two axes in front."""
    return weights.diagonal(offset=-1)


KNOBS["read"]["axes-in-front"] = (
    "Your diagonal is that of the first two axes, which `diagonal` takes by default: queries and keys are "
    "the last two, dim1=-2 and dim2=-1.",
    STEP,
    (_front,),
)
EXERCISE = Exercise(
    answer=previous_token_score,
    chapter="10_small_language_model",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=(language_model.previous_token_score,),
    mistakes=deviations(_build, KNOBS),
)
