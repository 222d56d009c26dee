"""How scores become weights, a softmax over the keys, and the wrong forms of it: written once for all."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from mha_course.exercises import Choice, Form, known

Weigh = Callable[[Tensor], Tensor]


def right(scores: Tensor) -> Tensor:
    """Over the last axis."""
    return torch.softmax(scores, -1)


def over(axis: int) -> Weigh:
    """Over another axis."""
    return lambda scores: torch.softmax(scores, axis)


def without_dim(scores: Tensor) -> Tensor:
    """The axis that ``torch.nn.functional.softmax`` takes if it gets no ``dim``."""
    return torch.softmax(scores, 0 if scores.ndim in (0, 1, 3) else 1)


def shifted(scores: Tensor) -> Tensor:
    """Not normalised: the exponentials, after the largest score of each row is subtracted."""
    return torch.exp(scores - scores.amax(-1, keepdim=True))


def with_one_more(scores: Tensor) -> Tensor:
    """As if each row had one more key, whose score is as large as the largest."""
    return shifted(scores) / (1 + shifted(scores).sum(-1, keepdim=True))


def cut_off(highest: float, *, both: bool, least: float = 0.0) -> Weigh:
    """Scores above ``highest``, and ``both`` if those below its opposite too, count as much as it does."""

    def weigh(scores: Tensor) -> Tensor:
        raised = torch.exp(scores.clamp(-highest if both else None, highest))
        return raised / (raised.sum(-1, keepdim=True) + least)

    return weigh


def causal(scores: Tensor) -> Tensor:
    """Each token sees itself and the tokens before it."""
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)


FORMS = {
    "softmax-over-queries": Form(
        "",
        "Your softmax runs over the queries; it should run over the keys, the last axis.",
        (over(-2),),
    ),
    "softmax-over-heads": Form(
        "heads",
        "Your softmax runs over the heads, so the heads compete with each other. (`F.softmax` without `dim` "
        "does the same.)",
        (over(-3),),
    ),
    "softmax-over-the-batch": Form("batch", "Your softmax runs over the batch, axis 0.", (over(0),)),
    "softmax-over-an-axis-from-the-front": Form(
        "front",
        "Your softmax runs over an axis counted from the front; the keys are the last axis, dim=-1.",
        (over(0), over(1)),
    ),
    "softmax-without-dim": Form(
        "front",
        "Your softmax runs over axis 0 if there are three axes, and over axis 1 if there are more, as "
        "`F.softmax` does without `dim`. The keys are the last axis: dim=-1.",
        (without_dim,),
    ),
    "softmax-over-everything": Form(
        "",
        "Your softmax runs over several axes at once, or over all scores; each row has its own.",
        (
            lambda scores: torch.softmax(scores.flatten(), 0).view(scores.shape),
            lambda scores: torch.softmax(scores.flatten(-2), -1).view(scores.shape),
        ),
    ),
    "no-softmax": Form(
        "",
        "Your function uses the scores as weights: there is no softmax.",
        (lambda scores: scores,),
    ),
    "softmax-twice": Form(
        "",
        "Your function takes the softmax twice.",
        (lambda scores: torch.softmax(torch.softmax(scores, -1), -1),),
    ),
    "log-softmax": Form(
        "",
        "Your function takes the logarithms of the weights.",
        (lambda scores: torch.log_softmax(scores, -1),),
    ),
    "not-divided": Form(
        "",
        "Your weights are exp of the scores, but are not divided by their sum.",
        (torch.exp, shifted),
    ),
    "divided-by-the-sum": Form(
        "",
        "Your function divides the scores by their sum; the softmax takes exp of them first.",
        (lambda scores: scores / scores.sum(-1, keepdim=True),),
    ),
    "one-added-to-the-sum": Form(
        "",
        "Your function adds 1 to the sum of the exponentials, so the weights of a row sum to less than 1.",
        (with_one_more, lambda scores: torch.exp(scores) / (1 + torch.exp(scores).sum(-1, keepdim=True))),
    ),
    "sigmoid-or-relu": Form(
        "",
        "Each of your weights comes from its own score alone, by {}. In a softmax, all keys of a row share a "
        "weight of 1.",
        {
            "a sigmoid": (torch.sigmoid,),
            "a ReLU": (torch.relu, lambda scores: torch.relu(scores) / scores.shape[-1]),
        },
    ),
    "equal-weights": Form(
        "",
        "In each row, all your weights are equal: the scores are not used.",
        (lambda scores: torch.full_like(scores, 1 / scores.shape[-1]),),
    ),
    "lowest-score-counts-most": Form(
        "",
        "Your softmax takes the scores with the other sign: the key with the lowest score gets the most.",
        (lambda scores: torch.softmax(-scores, -1),),
    ),
    "small-weights-dropped": Form(
        "",
        "Your function sets small weights to 0. A softmax gives some weight to each key.",
        tuple(
            lambda scores, least=least: (w := right(scores)).masked_fill(w < least, 0)
            for least in (1e-2, 1e-3)
        ),
    ),
    "scores-cut-off": Form(
        "far",
        "Your function cuts the scores off at a largest value, or at a smallest one too: scores beyond it "
        "count the same. Subtract the largest score instead; the weights stay the same.",
        tuple(
            cut_off(highest, both=both, least=least)
            for highest in (10, 20, 50, 80, 88, 100)
            for both in (False, True)
            for least in (0.0, 1e-8)
            if both or highest < 89  # exp(89) is infinite, with or without a largest value
        ),
    ),
    "causal-mask-kept": Form(
        "self",
        "Your function hides the later tokens from each token, as a decoder does. Nothing is hidden here: "
        "every token sees all tokens.",
        (causal,),
    ),
}


def wrong(section: str | Mapping[str, str], *there: str) -> dict[str, Choice]:
    """The wrong ways to weigh, as one knob of ``deviations``.

    ``there``: ``heads``, for scores ``(..., heads, n_q, n_k)``; ``batch``, if a batch is the first axis;
    ``front``, for any axes in front; ``far``, if scores are far apart; ``self``, if the tokens attend to each
    other, and no mask is asked for.
    """
    return known(FORMS, section, there)
