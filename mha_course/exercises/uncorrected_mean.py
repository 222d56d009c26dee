"""Chapter 08: scores with which uncorrected sums count all keys alike, found in a picture."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _results as compare

ONE_PASS = "3 The softmax in one pass"
VALUES, BLOCK = np.arange(10.0, 70.0, 10.0), 2
BEGINS = np.log([1.0, 4.0, 2.0, 8.0, 1.0, 4.0])
MEAN, NEAR, LEAST = VALUES.mean(), 0.5, 54.0


def uncorrected_mean():
    """Six scores: without a correction, all keys count alike; with it, the last block has most weight."""
    return torch.tensor([-3.0, -3.0, 1.0, 1.0, 5.0, 5.0])


def _outputs(scores):
    """The output of the sums that are never corrected, and the right one; 0 if no key is seen."""
    before = np.maximum.accumulate([scores[i : i + BLOCK].max() for i in range(0, len(scores), BLOCK)])
    found = []
    for shift in (np.repeat(before, BLOCK), scores.max()):
        with np.errstate(invalid="ignore"):
            weights = np.exp(np.where(scores == -np.inf, -np.inf, scores - shift))
        found.append(weights @ VALUES / weights.sum() if weights.sum() > 0 else 0.0)
    return found


def _accepts(result):
    array = compare.as_array(result)
    kind = f"Your function returns {compare.kind(result)}."
    if "OnlineSoftmax" in getattr(result, "dtype", ""):
        return "the-picture", "Your function returns the picture itself."
    if array is not None and array.size == 1:
        return "output-returned", kind
    if array is None or array.shape != VALUES.shape or array.dtype == bool:
        return "wrong-shape", f"{kind} A tensor of shape (6,) is expected: a score for each key."
    scores = array.astype(float)
    if np.isnan(scores).any() or (scores == np.inf).any():
        return "wrong-shape", "A score must be a number, or -inf for a hidden key."
    wrong, right = _outputs(scores)
    if abs(wrong - MEAN) <= NEAR and right >= LEAST:
        return None
    seen = f"Without a correction, your scores give the output {wrong:.2f}. The right output is {right:.2f}."
    if np.allclose(scores, BEGINS, atol=1e-3):
        return "where-the-picture-begins", seen
    if np.ptp(scores) < 0.01:
        return "all-equal", seen
    if (scores >= 0).all() and abs(scores.sum() - 1) < 1e-3:
        return "weights-returned", seen
    if abs(wrong - MEAN) <= NEAR:
        return "right-output-too-small", seen
    if right >= LEAST:
        return "keys-counted-differently", seen
    return "neither-output", seen


EXERCISE = Exercise(
    answer=uncorrected_mean,
    chapter="08_what_attention_costs",
    section=ONE_PASS,
    points=1,
    problems=lambda rng: iter([()]),
    accepts=_accepts,
    mistakes={
        "the-picture": Mistake("Its scores are in `picture.scores`.", ONE_PASS, ()),
        "output-returned": Mistake("Return the six scores, `picture.scores`, not an output.", ONE_PASS, ()),
        "where-the-picture-begins": Mistake(
            "These are the scores with which the picture begins. Did you change them, and has the kernel "
            "been restarted since? A restart forgets your scores.",
            ONE_PASS,
            (),
        ),
        "all-equal": Mistake(
            "All your scores are equal. Then no block raises `m`, so nothing has to be corrected, and both "
            "outputs are the same.",
            ONE_PASS,
            (),
        ),
        "weights-returned": Mistake(
            "Your six numbers sum to 1, as weights do. Return the scores, `picture.scores`.", ONE_PASS, ()
        ),
        "right-output-too-small": Mistake(
            "Without a correction, all keys count alike, as they should here. But in the right output, the "
            "first blocks still have too much weight.",
            ONE_PASS,
            (),
        ),
        "keys-counted-differently": Mistake(
            "The right output is large enough. But without a correction, the keys do not count alike: "
            "compare the two scores in a block, and the highest scores of the blocks.",
            ONE_PASS,
            (),
        ),
        "neither-output": Mistake("Neither of the two outputs is as it should be yet.", ONE_PASS, ()),
    },
)
