"""Chapter 13: rotary positions of new queries, whose keys come after kept ones."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _hide, _scale, deviations
from mha_lab import positions


def fix_rotary_offset(query, key):
    """``(num_heads, n_q, d_k)`` and ``(num_heads, n_k, d_k)`` to weights ``(num_heads, n_q, n_k)``."""
    query, key = positions.Rotary()(query, key)
    scores = mha_lab.scaled_dot_product_scores(query, key)
    return mha_lab.masked_softmax(scores, mha_lab.causal_mask(*scores.shape[-2:]))


def _stub(query, key):
    n_q, n_k = query.shape[-2], key.shape[-2]
    query = mha_lab.positions.apply_rotary(query, torch.arange(n_q))
    key = mha_lab.positions.apply_rotary(key, torch.arange(n_k))
    scores = mha_lab.scaled_dot_product_scores(query, key)
    return mha_lab.masked_softmax(scores, mha_lab.causal_mask(n_q, n_k))


def _problems(rng):
    yield torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    yield (
        torch.tensor([[[2.0, 1.0], [-1.0, 2.0]]]),
        torch.tensor([[[1.0, 2.0], [2.0, 0.0], [0.0, -2.0], [1.0, 1.0], [-1.0, 2.0]]]),
    )
    heads, n_q, pairs = rng.primes(3, at_least=3)
    yield 2 * rng.normal(heads, n_q, 2 * pairs), 2 * rng.normal(heads, n_q + 4, 2 * pairs)
    yield 2 * rng.normal(2, 3, 4), 2 * rng.normal(2, 3, 4)  # nothing is kept
    yield 2 * rng.normal(3, 2, 4), 2 * rng.normal(3, 301, 4)


def _at(start, key_start=lambda n_q, n_k: 0):
    """Queries from one position on, keys from another."""

    def turn(query, key):
        n_q, n_k = query.shape[-2], key.shape[-2]
        return (
            positions.apply_rotary(query, torch.arange(n_q) + start(n_q, n_k)),
            positions.apply_rotary(key, torch.arange(n_k) + key_start(n_q, n_k)),
        )

    return turn


def _all_last(query, key):
    at = torch.full((query.shape[-2],), key.shape[-2] - 1)
    return positions.apply_rotary(query, at), positions.apply_rotary(key)


RIGHT, CAUSAL = positions.Rotary(), mha_lab.causal_mask


def _build(
    turn=RIGHT,
    triangle=CAUSAL,
    divisor=_scale.right,
    weigh=mha_lab.masked_softmax,
    after=lambda sizes: 1.0,
):
    def answer(query, key):
        query, key = turn(query, key)
        sizes = _scale.Sizes.of(query, key)
        mask = triangle(query.shape[-2], key.shape[-2])
        return weigh(query @ key.mT / divisor(sizes), mask) / after(sizes)

    return answer


STEP = "6 Break it: rotary with a cache"
KNOBS = {
    "turn": {
        "queries-from-0": (
            "Your first query stands where the first key stands, although keys are kept that come before it. "
            "(If queries and keys are both moved by the same number of positions, nothing changes.)",
            STEP,
            (_at(lambda n_q, n_k: 0),),
        ),
        "one-position-too-far": (
            "Each of your queries stands one position after its own key. Both should have the same position.",
            STEP,
            (
                _at(lambda n_q, n_k: n_k - n_q + 1),
                _at(lambda n_q, n_k: 0, lambda n_q, n_k: n_q - n_k - 1),
            ),
        ),
        "queries-after-all-keys": (
            "Your first query stands after all keys. But the new tokens have keys too, which are the last "
            "n_q of the n_k keys.",
            STEP,
            (_at(lambda n_q, n_k: n_k),),
        ),
        "starts-at-the-last-key": (
            "Your first query stands where the last key stands. This is the position of the last query.",
            STEP,
            (_at(lambda n_q, n_k: n_k - 1),),
        ),
        "one-position-too-early": (
            "Each of your queries stands one position before its own key.",
            STEP,
            (_at(lambda n_q, n_k: n_k - n_q - 1),),
        ),
        "all-queries-at-the-end": (
            "All your queries have the position of the last key. Only the last query stands there.",
            STEP,
            (_all_last,),
        ),
        "moved-the-other-way": (
            "Each of your queries stands 2 * (n_k - n_q) positions before its own key. Both should have the "
            "same position.",
            STEP,
            (_at(lambda n_q, n_k: n_q - n_k), _at(lambda n_q, n_k: 0, lambda n_q, n_k: n_k - n_q)),
        ),
        "moved-by-the-number-of-queries": (
            "Your first query stands n_q positions after the first key. Count the kept keys instead.",
            STEP,
            (_at(lambda n_q, n_k: n_q),),
        ),
        "query-not-turned": (
            "Your function does not turn the queries.",
            STEP,
            (lambda query, key: (query, positions.apply_rotary(key)),),
        ),
        "key-not-turned": (
            "Your function does not turn the keys.",
            STEP,
            (lambda query, key: (positions.Rotary()(query, key)[0], key),),
        ),
        "nothing-turned": (
            "Your function turns neither queries nor keys, so it uses no positions.",
            STEP,
            (lambda query, key: (query, key),),
        ),
    },
    "triangle": {
        "mask-lost": (
            "Your function hides nothing: if several tokens are new, the first sees those after it.",
            STEP,
            (lambda n_q, n_k: torch.ones(n_q, n_k, dtype=torch.bool),),
        ),
        "triangle-from-the-first-key": (
            "The triangle of your mask starts at the first key, so your new tokens do not see all kept ones. "
            "The mask was right before.",
            STEP,
            (lambda n_q, n_k: torch.ones(n_q, n_k, dtype=torch.bool).tril(),),
        ),
    },
    "weigh": {
        "scores-returned": (
            "Your function returns the scores. Return the weights, as the function did before.",
            STEP,
            (lambda scores, mask: scores,),
        ),
    },
}
SOFTMAX = {
    "divisor": _scale.wrong(STEP, "lengths"),
    "weigh": _hide.wrong(STEP, "heads", but=("mask-ignored",), see=_hide.CHAPTER_04),
}
EXERCISE = Exercise(
    answer=fix_rotary_offset,
    chapter="13_longer_texts",
    section=STEP,
    points=1,
    problems=_problems,
    bug=_stub,
    mistakes={
        **deviations(_build, KNOBS),
        **deviations(_build, SOFTMAX, pairs=False),
        "scaled-after-the-softmax": Mistake(
            _scale.AFTER,
            STEP,
            tuple(_build(divisor=lambda s: 1.0, after=after) for after in _scale.afterwards("lengths")),
        ),
    },
)
