"""Chapter 01: softmax over the keys."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def attention_weights(scores):
    """``(..., n_q, n_k)`` to weights of the same shape."""
    shifted = scores - scores.max(dim=-1, keepdim=True).values
    raised = torch.exp(shifted)
    return raised / raised.sum(dim=-1, keepdim=True)


def _problems(draw):
    yield (torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]]),)
    for dtype, leading in ((torch.float32, 0), (torch.float64, 1), (torch.float64, 2)):
        yield (draw.normal(*draw.primes(2 + leading), dtype=dtype),)
    yield (torch.tensor([[1000.0, 999.0, 0.0]]),)
    yield (torch.tensor([[-1000.0, -1001.0], [800.0, -800.0]], dtype=torch.float64),)


def _naive(scores):
    return torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)


STEP = "3 Weights: from scores to numbers that sum to 1"
EXERCISE = Exercise(
    answer=attention_weights,
    chapter="01_single_head_attention",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=("masked_softmax",),
    mistakes={
        "softmax-over-queries": Mistake(
            "Your columns sum to 1, and not your rows: the softmax runs over the queries.",
            "7 Break it: softmax over the wrong axis",
            (lambda s: torch.softmax(s, -2), lambda s: torch.exp(s) / torch.exp(s).sum(-2, keepdim=True)),
        ),
        "softmax-over-heads": Mistake(
            "Your softmax runs over an axis in front, and not over the keys, the last axis.",
            "7 Break it: softmax over the wrong axis",
            (
                lambda s: torch.softmax(s, 0),
                lambda s: torch.softmax(s, 1),
                lambda s: torch.softmax(s, -3),
                lambda s: torch.exp(s) / torch.exp(s).sum(0, keepdim=True),
                lambda s: torch.exp(s) / torch.exp(s).sum(0),
            ),
        ),
        "unstable-softmax": Mistake(
            "Right on paper, and large scores make it NaN: exp(1000) is larger than any float.",
            STEP,
            (_naive, lambda s: torch.log(torch.exp(s)) - torch.log(torch.exp(s).sum(-1, keepdim=True))),
        ),
        "not-normalised": Mistake(
            "Your rows do not sum to 1: the numbers are raised and not divided by their sum.",
            STEP,
            (
                torch.exp,
                lambda s: torch.exp(s - s.max(-1, keepdim=True).values),
                lambda s: torch.exp(s - s.max()),
                lambda s: s / s.sum(-1, keepdim=True),
                lambda s: torch.exp(s - s.max()) / torch.exp(s - s.max()).sum(),
                lambda s: torch.exp(s) / torch.exp(s).sum(),
            ),
        ),
        "log-softmax": Mistake(
            "Your function returns the logarithms of the weights.",
            STEP,
            (lambda s: torch.log_softmax(s, -1), lambda s: torch.log(torch.softmax(s, -1))),
        ),
    },
)
