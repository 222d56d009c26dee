"""Chapter 01: softmax over the keys."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _softmax, deviations


def attention_weights(scores):
    """``(..., n_q, n_k)`` to weights of the same shape."""
    shifted = scores - scores.amax(dim=-1, keepdim=True)
    exps = torch.exp(shifted)
    return exps / exps.sum(dim=-1, keepdim=True)


def _problems(rng):
    yield (torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.5, -1.0]]),)
    yield (torch.tensor([[-1.0, 0.5], [4.0, 1.0], [2.0, 2.5]]),)
    yield (torch.tensor([[[1.0, 0.0, 2.0], [3.0, 1.5, 0.5]], [[-1.0, 2.5, 1.0], [0.0, 4.0, 2.0]]]),)
    for leading in (0, 1, 2, 2):
        yield (rng.normal(*rng.primes(2 + leading)),)
    yield (torch.tensor([[1000.0, 999.0, 0.0]]),)
    yield (torch.tensor([[-1000.0, -1001.0], [800.0, 799.0]]),)
    yield (torch.tensor([[-700.0, -701.5, -703.0]]),)
    yield (torch.tensor([[3.0], [-2.0]]),)
    yield (torch.tensor([[0.0, 8.2, 1.0]]),)  # a small weight is a weight
    yield (torch.tensor([[60.0, 0.0, 120.0]]),)  # too far above the smallest, and not above the mean


def _shifted(scores):
    return torch.exp(scores - scores.max(-1, keepdim=True).values)


def _over(dim, keepdim=True):
    """exp, divided by its sum along an axis, with and without care for large scores."""
    return (
        lambda s: torch.softmax(s, dim),
        lambda s: torch.exp(s) / torch.exp(s).sum(dim, keepdim=keepdim),
        lambda s: torch.exp(s - s.max()) / torch.exp(s - s.max()).sum(dim, keepdim=keepdim),
        lambda s: _shifted(s) / _shifted(s).sum(dim, keepdim=keepdim),
    )


def _naive(scores):
    return torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)


STEP = "3 Weights: from scores to numbers that sum to 1"
AXIS = "7 Break it: softmax over the wrong axis"
OTHERS = {
    name: choice
    for name, choice in _softmax.wrong(STEP, "front", "far").items()
    if name in ("softmax-without-dim", "one-added-to-the-sum", "sigmoid-or-relu", "equal-weights")
    or name in ("lowest-score-counts-most", "small-weights-dropped", "scores-cut-off")
}
EXERCISE = Exercise(
    answer=attention_weights,
    chapter="01_single_head_attention",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=(mha_lab.masked_softmax,),
    mistakes={
        **deviations(lambda weigh: weigh, {"weigh": OTHERS}, pairs=False),
        "softmax-over-queries": Mistake(
            "Your softmax runs over the queries, the second to last axis; it should run over the keys, the "
            "last axis.",
            AXIS,
            _over(-2),
        ),
        "softmax-over-an-axis-from-the-front": Mistake(
            "Your softmax runs over an axis counted from the front; the keys are the last axis, dim=-1, "
            "whatever axes come before it.",
            AXIS,
            (*_over(0), lambda s: torch.softmax(s, 1), *_over(0, keepdim=False), *_over(-3)),
        ),
        "softmax-over-everything": Mistake(
            "Your sum runs over the whole tensor: divide each row by its own sum.",
            STEP,
            (
                lambda s: torch.exp(s - s.max()) / torch.exp(s - s.max()).sum(),
                lambda s: torch.exp(s) / torch.exp(s).sum(),
                lambda s: _shifted(s) / _shifted(s).sum(),
                lambda s: torch.softmax(s.flatten(), 0).view(s.shape),
            ),
        ),
        "unstable-softmax": Mistake(
            "Your function takes exp of the scores as they are. exp(1000) is larger than any float, so it "
            "becomes inf, and exp(-1000) becomes 0: subtract the largest score of each row first.",
            STEP,
            (
                _naive,
                *(
                    lambda s, least=least: torch.exp(s) / (torch.exp(s).sum(-1, keepdim=True) + least)
                    for least in (1e-6, 1e-8, 1e-10)
                ),
            ),
        ),
        "shifted-by-the-overall-maximum": Mistake(
            "Your function subtracts the largest score of the whole tensor. A row far below it becomes all "
            "0, and 0 / 0 is NaN: each row needs its own largest score.",
            STEP,
            (lambda s: torch.exp(s - s.max()) / torch.exp(s - s.max()).sum(-1, keepdim=True),),
        ),
        "shifted-by-a-constant": Mistake(
            "Your function subtracts the same constant from all scores. In a row far below it, every exp "
            "becomes 0; in a row far above it, exp becomes inf. Both give NaN: subtract the largest score of "
            "each row.",
            STEP,
            tuple(lambda s, c=c: _naive(s - c) for c in (1000, 999, 900, 800, 500)),
        ),
        "shifted-by-the-mean": Mistake(
            "Your function subtracts a mean. A score far above the mean still overflows: subtract the "
            "largest score instead.",
            STEP,
            (
                lambda s: _naive(s - s.mean(-1, keepdim=True)),
                lambda s: _naive(s - s.mean()),
            ),
        ),
        "shifted-by-the-minimum": Mistake(
            "Your function subtracts the smallest score, so the others grow and overflow: subtract the "
            "largest score instead.",
            STEP,
            (lambda s: _naive(s - s.min(-1, keepdim=True).values), lambda s: _naive(s - s.min())),
        ),
        "shifted-along-another-axis": Mistake(
            "Your function takes the largest score along the wrong axis; take it over the keys of each row, "
            "like the sum.",
            STEP,
            (
                lambda s: _naive(s - s.max(-2, keepdim=True).values),
                lambda s: _naive(s - s.max(0).values),
                lambda s: _naive(s - s.max(0, keepdim=True).values),
            ),
        ),
        "divided-by-the-maximum": Mistake(
            "Your function divides the scores by a largest score before the exp. That changes their "
            "differences; subtracting it does not.",
            STEP,
            (
                lambda s: _naive(s / s.max(-1, keepdim=True).values),
                lambda s: _naive(s / s.max()),
            ),
        ),
        "divided-by-the-largest-size": Mistake(
            "Your function divides the scores by the largest of their absolute values before the exp. That "
            "changes their differences; subtracting the largest score does not.",
            STEP,
            (
                lambda s: _naive(s / s.abs().max(-1, keepdim=True).values),
                lambda s: _naive(s / s.abs().max()),
            ),
        ),
        "scaled-as-well": Mistake(
            "Your function divides the scores before the softmax; take these scores as they are.",
            STEP,
            (
                lambda s: torch.softmax(s / s.shape[-1] ** 0.5, -1),
                lambda s: torch.softmax(s / s.shape[-1], -1),
                lambda s: torch.softmax(s / 1000, -1),
            ),
        ),
        "not-divided": Mistake(
            "Your function takes exp of the scores, but does not divide by the sum of each row.",
            STEP,
            (torch.exp, _shifted, lambda s: torch.exp(s - s.max())),
        ),
        "divided-without-exp": Mistake(
            "Your function divides the scores by their sum without exp. Negative scores give negative "
            "shares.",
            STEP,
            (lambda s: s / s.sum(-1, keepdim=True),),
        ),
        "absolute-values-divided": Mistake(
            "Your function divides the absolute values of the scores by their sum; use exp to make the "
            "scores positive.",
            STEP,
            (lambda s: s.abs() / s.abs().sum(-1, keepdim=True),),
        ),
        "only-shifted": Mistake(
            "Your function subtracts the largest score, but stops there: exp and a division should follow.",
            STEP,
            (lambda s: s - s.max(-1, keepdim=True).values, lambda s: s - s.max()),
        ),
        "softmax-twice": Mistake(
            "Your function takes the softmax twice. The second time it sees weights, which lie close "
            "together.",
            STEP,
            (lambda s: torch.softmax(torch.softmax(s, -1), -1),),
        ),
        "log-softmax": Mistake(
            "Your function returns the logarithms of the weights.",
            STEP,
            (lambda s: torch.log_softmax(s, -1), lambda s: s - torch.logsumexp(s, -1, keepdim=True)),
        ),
        "one-key-takes-all": Mistake(
            "Your function gives all weight to the best key. A softmax gives some weight to every key.",
            STEP,
            (lambda s: (s == s.max(-1, keepdim=True).values).float(),),
        ),
        "scores-returned": Mistake(
            "Your function returns the scores unchanged.", STEP, (lambda s: s.clone(),)
        ),
    },
)
