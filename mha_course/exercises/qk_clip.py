"""Chapter 16: the weights of queries and keys, made smaller where a head's scores have become too large."""

import torch

from mha_course.exercises import Exercise, deviations

STEP = "6 Break it: a key that is too long"


def qk_clip(w_q, w_k, largest, limit):
    """Twice ``(num_heads, d_k, d_model)``, ``(num_heads,)`` and a number to both weights, made smaller."""
    factor = (limit / largest).clamp(max=1).sqrt()[:, None, None]
    return factor * w_q, factor * w_k


def _problems(rng):
    yield torch.ones(2, 1, 1), torch.full((2, 1, 1), 2.0), torch.tensor([400.0, 50.0]), 100.0
    for below in (1, 2, 0):
        num_heads, d_k, d_model = rng.primes(3, at_least=3)
        largest = 120 + 300 * torch.sigmoid(rng.normal(num_heads))
        largest[:below] = torch.tensor([30.0, 60.0])[:below]
        at = rng.shuffled(range(num_heads))
        yield rng.normal(num_heads, d_k, d_model), rng.normal(num_heads, d_k, d_model), largest[at], 100.0


def _build(
    ratio=lambda largest, limit: limit / largest,
    bound=lambda ratio: ratio.clamp(max=1),
    share=lambda factor: (factor.sqrt(), factor.sqrt()),
    order=lambda w_q, w_k: (w_q, w_k),
):
    def answer(w_q, w_k, largest, limit):
        for_q, for_k = share(bound(ratio(largest, limit)))
        return order(for_q[:, None, None] * w_q, for_k[:, None, None] * w_k)

    return answer


def _one(factor):
    return torch.ones_like(factor)


KNOBS = {
    "ratio": {
        "one-factor-for-all-heads": (
            "Your function uses one factor for all heads. A head whose scores are small enough stays as it "
            "is.",
            STEP,
            (
                lambda largest, limit: (limit / largest.max()).expand(len(largest)),
                lambda largest, limit: (limit / largest.mean()).expand(len(largest)),
            ),
        ),
        "ratio-upside-down": (
            "Your function divides the largest score by the limit. So it changes the heads whose scores "
            "are small enough, and not the others.",
            STEP,
            (lambda largest, limit: largest / limit,),
        ),
    },
    "bound": {
        "small-scores-grow": (
            "Your function also makes weights larger, until the largest score of each head is the limit. "
            "Heads below the limit stay as they are.",
            STEP,
            (lambda ratio: ratio,),
        ),
        "nothing-changed": (
            "Your function returns both weights as they came, also of heads above the limit.",
            STEP,
            (torch.ones_like,),
        ),
        "only-small-scores-grow": (
            "Your function makes weights larger where the scores are below the limit, and never smaller.",
            STEP,
            (lambda ratio: ratio.clamp(min=1),),
        ),
    },
    "order": {
        "keys-first": (
            "Your function returns the weights of the keys first. Those of the queries come first.",
            STEP,
            (lambda w_q, w_k: (w_k, w_q),),
        ),
    },
    "share": {
        "whole-factor-twice": (
            "Your function multiplies both weights by the whole factor. A score is a product of both, so it "
            "becomes smaller by the square of the factor.",
            STEP,
            (lambda factor: (factor, factor),),
        ),
        "half-of-the-factor": (
            "Your function takes half of the factor for each of the weights. A score is their product, so "
            "two equal shares are two square roots.",
            STEP,
            (lambda factor: (factor / 2, factor / 2),),
        ),
        "queries-only": (
            "Your function makes only the weights of the queries smaller. The scores become right, but both "
            "weights should get the same factor.",
            STEP,
            (lambda factor: (factor, _one(factor)),),
        ),
        "keys-only": (
            "Your function makes only the weights of the keys smaller. The scores become right, but both "
            "weights should get the same factor.",
            STEP,
            (lambda factor: (_one(factor), factor),),
        ),
        "root-on-one-side": (
            "Your function takes the square root of the factor for one of the two weights only, and leaves "
            "the other as it is.",
            STEP,
            (lambda factor: (factor.sqrt(), _one(factor)), lambda factor: (_one(factor), factor.sqrt())),
        ),
    },
}
EXERCISE = Exercise(
    answer=qk_clip,
    chapter="16_a_state_in_place_of_a_cache",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes=deviations(_build, KNOBS, pairs=False),
    results=("w_q", "w_k"),
)
