"""Chapter 09: rotary positions with a cache of keys, for one new token."""

import torch

from mha_course.exercises import Exercise, Mistake, _scale, deviations
from mha_lab import positions

ROTARY = "5 Rotary: turn queries and keys"


def score_new_token(query, key, cache):
    """``(num_heads, d_k)`` twice and ``(num_heads, n_old, d_k)`` to scores ``(num_heads, n_old + 1)``."""
    at = torch.tensor([cache.shape[1]])
    query, key = positions.apply_rotary(query[:, None], at), positions.apply_rotary(key[:, None], at)
    return (query @ torch.cat([cache, key], dim=1).mT)[:, 0] / query.shape[-1] ** 0.5


def _problems(rng):
    yield torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[[1.0, 0.0]]])
    yield _token(rng, 2, 3, 4)
    yield _token(rng, 3, 7, 6)
    yield _token(rng, 4, 500, 64)


def _token(rng, num_heads, n_old, d_k):
    return rng.normal(num_heads, d_k), rng.normal(num_heads, d_k), rng.normal(num_heads, n_old, d_k)


def _turn(shift=0, layout="pairs"):
    """Turned as at the position of the new token, or some steps from there."""

    def turn(x, n_old):
        return positions.apply_rotary(x[:, None], torch.tensor([n_old + shift]), layout=layout)[:, 0]

    return turn


def _heads(x, n_old):
    """The axis of the heads taken for tokens."""
    return positions.apply_rotary(x)


AS_NEW = _turn()


def _build(
    query=AS_NEW,
    key=AS_NEW,
    cache=lambda old: old,
    join=lambda old, new: torch.cat([old, new], dim=1),
    divisor=_scale.right,
    finish=lambda scores: scores,
):
    def answer(q, k, old):
        n_old, d_k = old.shape[1:]
        keys = join(cache(old), key(k, n_old)[:, None])
        sizes = _scale.Sizes(d_k, 1, n_old + 1, d_model=len(q) * d_k, heads=len(q))
        return finish((query(q, n_old)[:, None] @ keys.mT)[:, 0] / divisor(sizes))

    return answer


def _both(turn, cache=lambda old: old):
    return _build(query=turn, key=turn, cache=cache)


KNOBS = {
    "query": {
        "query-not-turned": (
            "Compared with the keys, your query is not turned by the angles of its position. Either it is "
            "not turned (without positions, `apply_rotary` counts from 0, where nothing is turned), or all "
            "keys are turned by these angles once more, which cancels them.",
            ROTARY,
            (lambda x, n_old: x,),
        ),
    },
    "key": {
        "new-key-not-turned": (
            "Your function does not turn the new key by the angles of its position. (If `apply_rotary` gets "
            "no positions, it counts from 0, and a token at position 0 is not turned.)",
            ROTARY,
            (lambda x, n_old: x,),
        ),
    },
    "cache": {
        "cache-turned-again": (
            "Your function turns the keys in the cache again. They were turned when they were new.",
            ROTARY,
            (positions.apply_rotary,),
        ),
    },
    "join": {
        "new-key-first": (
            "Your function puts the new key before the keys in the cache. Scores come in the order of the "
            "positions, so the new key is last.",
            ROTARY,
            (lambda old, new: torch.cat([new, old], dim=1),),
        ),
        "new-key-left-out": (
            "Your function leaves out the new key. A token may also attend to itself.",
            ROTARY,
            (lambda old, new: old,),
        ),
    },
    "divisor": _scale.wrong(ROTARY, "d_model", "heads"),
    "finish": {
        "weights-returned": (
            "Your function returns weights: each row sums to 1. Return the scores, before the softmax.",
            ROTARY,
            (lambda scores: torch.softmax(scores, dim=-1),),
        ),
    },
}
EXERCISE = Exercise(
    answer=score_new_token,
    chapter="09_scores_and_positions",
    section=ROTARY,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS),
        "nothing-turned": Mistake(
            "Compared with the keys in the cache, neither your query nor your new key is turned. Either they"
            " are not turned (without positions, `apply_rotary` counts from 0, where nothing is turned), or "
            "the cache is turned again by the same angles, which cancels them.",
            ROTARY,
            (_both(lambda x, n_old: x),),
        ),
        "heads-taken-for-tokens": Mistake(
            "`apply_rotary` takes the axis before the last for the tokens. In your function, this is the "
            "axis of the heads, so head `h` is turned as if it stood at position `h`.",
            ROTARY,
            (_both(_heads),),
        ),
        "one-position-too-far": Mistake(
            "Your function puts the new token one position too far. Positions are counted from 0, so the "
            "tokens in the cache have the positions 0 to `n_old - 1`.",
            ROTARY,
            (_both(_turn(1)),),
        ),
        "one-position-too-early": Mistake(
            "Your function puts the new token at the position of the last token in the cache.",
            ROTARY,
            (_both(_turn(-1)),),
        ),
        "number-of-heads-as-position": Mistake(
            "Your function uses the number of heads as the position of the new token. Its position is the "
            "number of old tokens, `n_old`.",
            ROTARY,
            (_both(lambda x, n_old: _turn()(x, len(x))),),
        ),
        "other-layout": Mistake(
            "Your function turns the query and the new key in the layout `halves`. The keys in the cache "
            "were turned in the layout `pairs`.",
            ROTARY,
            (_both(_turn(layout="halves")),),
        ),
        "axis-kept": Mistake(
            "Your result has an axis of length 1 too many. It should be (num_heads, n_old + 1).",
            ROTARY,
            (
                lambda q, k, old: _build()(q, k, old)[:, None],
                lambda q, k, old: _build()(q, k, old)[..., None],
            ),
        ),
    },
)
