"""Chapter 05: heads picked in a picture, whose sizes add up to 0 in a shared column of the output."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, _picked
from mha_lab import scaled_dot_product_scores, split_heads, toy

SUM = "3 The projection is a sum over heads"
STRENGTH = (1.0, -0.55, 0.4, 0.0, -0.25, -0.75)
DOG, SAW, CAT = 1, 2, 4
NEAR = 0.03


def heads_that_cancel():
    """Heads of the picture that fetch 0 together for *saw*, and none of them alone."""
    return [0, 1, 4]


def sizes():
    """What each head of the picture fetches for *saw*: its weight on the dog minus that on the cat."""
    w_q, w_k, *_ = toy.multi_head_weights()
    query, key = (split_heads(toy.embeddings() @ w, 2)[0] for w in (w_q, w_k))
    scores = torch.tensor(STRENGTH)[:, None, None] * scaled_dot_product_scores(query, key)
    weights = torch.softmax(scores, dim=-1)[:, SAW]
    return weights[:, DOG] - weights[:, CAT]


def _accepts(result, fetched):
    if told := _picked.flaw(result, len(fetched)):
        return told
    fetched, picked = fetched.double().numpy(), _picked.heads(result)

    def right(heads):
        return abs(fetched[heads].sum()) <= NEAR and (abs(fetched[heads]) > NEAR).all()

    if right(picked):
        return None
    total = fetched[picked].sum()
    each = ", ".join(f"{round(number, 2) + 0:.2f}" for number in fetched[picked])
    seen = f"For saw, your heads {picked} fetch {each}. The column holds {round(total, 2) + 0:.2f}."
    if picked == [0, 1, 2, 3]:
        return "where-the-picture-begins", seen
    if (abs(fetched[picked]) <= NEAR).any():
        return "a-head-that-fetches-0", seen
    if picked[0] > 0 and right(list(np.array(picked) - 1)):
        return "counted-from-1", seen
    return "too-much-of-the-dog" if total > 0 else "too-much-of-the-cat", seen


EXERCISE = Exercise(
    answer=heads_that_cancel,
    chapter="05_output_projection",
    section=SUM,
    points=1,
    problems=lambda rng: iter([(sizes(),)]),
    call=lambda answer, fetched: answer(),
    accepts=_accepts,
    mistakes={
        **_picked.mistakes(SUM, "picture", 6, "A column to which no head writes is always 0."),
        "a-head-that-fetches-0": Mistake(
            "One of your heads gives dog and cat the same weight, so it already fetches 0 on its own. "
            "Leave it out.",
            SUM,
            (),
        ),
        "too-much-of-the-dog": Mistake(
            "Together, your heads have more weight on the dog than on the cat: the sum is above 0.", SUM, ()
        ),
        "too-much-of-the-cat": Mistake(
            "Together, your heads have more weight on the cat than on the dog: the sum is below 0.", SUM, ()
        ),
    },
)
