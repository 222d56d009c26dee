"""What is said of answers to the exercises of chapter 10, asked of the numbers."""

import numpy as np
import torch

from mha_course.chapters import story_model
from mha_course.explore._model import forward, rounded
from tests.check.claims.results import claims, of_result

CLAIMS = {
    ("next_token_loss", "no-gradient"): lambda problem, expected, got: len(problem) == 2 or not got[1],
    ("predict_cache", "true-or-false"): lambda problem, expected, got: got.dtype == bool,
}

# --- Heads that the model of the picture does not need, on the four texts.

MODEL = rounded(story_model.load())
RIGHT = {"Ada amused Ben": "she", "Ada admired Ben": "he", "Ben amused Ada": "he", "Ben admired Ada": "she"}


@torch.no_grad()
def smallest(heads):
    """The smallest probability of a right word, with these heads silent in the picture."""
    acts = ["silent" if divmod(i, 4) in set(heads) else "" for i in range(8)]
    found = []
    for text, word in RIGHT.items():
        logits = forward(MODEL, story_model.encode(f"{text} because").tolist(), acts)["logits"][-1]
        found.append(logits.softmax(-1)[story_model.NUMBER[word]].item())
    return min(found)


def pairs(got):
    return [tuple(int(number) for number in pair) for pair in got]


def known(got):
    return all(layer in (0, 1) and head in range(4) for layer, head in pairs(got))


SPARE = {
    "the-picture": lambda got: not isinstance(got, np.ndarray | tuple | list),
    "none-silent": lambda got: len(got) == 0,
    "no-pairs": lambda got: not all(np.shape(pair) == (2,) for pair in got) if np.iterable(got) else True,
    "head-before-layer": lambda got: smallest([(b, a) for a, b in pairs(got)]) >= 0.9,
    "counted-from-1": lambda got: smallest([(a - 1, b - 1) for a, b in pairs(got)]) >= 0.9,
    "no-such-head": lambda got: not known(got),
    "a-head-twice": lambda got: len(set(pairs(got))) < len(pairs(got)),
    "fewer-than-four": lambda got: len(pairs(got)) < 4,
    "more-than-four": lambda got: len(pairs(got)) > 4,
    "the-heads-left-on": lambda got: (
        smallest({divmod(i, 4) for i in range(8)} - set(pairs(got))) >= 0.9 and len(pairs(got)) == 4
    ),
    "pointing-head-silent": lambda got: (1, 0) in pairs(got) and smallest(pairs(got)) < 0.9,
    "another-answer": lambda got: smallest(pairs(got)) < 0.5,
    "not-sure-enough": lambda got: 0.5 <= smallest(pairs(got)) < 0.9,
}
CLAIMS |= claims("heads_to_spare", SPARE, of_result)
