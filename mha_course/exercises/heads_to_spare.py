"""Chapter 10: heads silenced in the picture of a model, half of all, without a loss of the right answers."""

from functools import cache

import numpy as np
import torch

from mha_course.chapters import language_model, story_model
from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _results as compare

AGAIN = "8 Back to the head of chapter 00"
TEXTS = {
    "Ada amused Ben because": "she",
    "Ada admired Ben because": "he",
    "Ben amused Ada because": "he",
    "Ben admired Ada because": "she",
}
LAYERS, HEADS, COUNT, SURE = 2, 4, 4, 0.9
NEAR = 0.01  # the picture rounds the weights of the model a little
ALL = frozenset((layer, head) for layer in range(LAYERS) for head in range(HEADS))


def heads_to_spare():
    """Four heads, as ``(layer, head)``, without which all four texts keep the right next word."""
    return [(0, 0), (1, 1), (1, 2), (1, 3)]


@cache
@torch.no_grad()
def _shares(heads):
    """The probability of the right word after each text, without these heads."""
    model = story_model.load()
    for layer, head in heads:
        model = language_model.ablate_head(model, layer, head)
    logits, _ = model(torch.stack([story_model.encode(text) for text in TEXTS]))
    right = [story_model.NUMBER[word] for word in TEXTS.values()]
    return logits[:, -1].softmax(-1)[range(len(right)), right].tolist()


def _right(heads):
    heads = frozenset(heads)
    return heads <= ALL and len(heads) == COUNT and min(_shares(heads)) >= SURE - NEAR


def _form(result):
    """What is wrong with the form of a list of heads, and what was seen."""
    if compare.is_a(result, "LiveModel"):
        return "the-picture", "Your function returns the picture itself; a list of heads is expected."
    array = compare.as_array(result)
    if result in ((), []) or (array is not None and array.shape == (0,)):
        return "none-silent", "Your list is empty."
    if array is None or array.ndim != 2 or array.shape[1] != 2:
        return "no-pairs", f"Your function returns {compare.kind(result)}; a list of pairs is expected."
    heads = [tuple(head) for head in array.tolist()]
    if not set(heads) <= ALL:
        seen = f"Your list is {compare.brief(heads)}."
        if _right((head, layer) for layer, head in heads):
            return "head-before-layer", seen
        return "counted-from-1" if _right((a - 1, b - 1) for a, b in heads) else "no-such-head", seen
    if len(set(heads)) < len(heads):
        return "a-head-twice", f"Your list is {compare.brief(heads)}."
    return None


def _accepts(result):
    if told := _form(result):
        return told
    heads = frozenset(tuple(map(int, head)) for head in compare.as_array(result).tolist())
    if _right(heads):
        return None
    if len(heads) != COUNT:
        name = "fewer-than-four" if len(heads) < COUNT else "more-than-four"
        return name, f"Heads in your list: {len(heads)}."
    shares = _shares(heads)
    worst = int(np.argmin(shares))
    text, word = list(TEXTS.items())[worst]
    seen = f"Without your heads, {word} gets {shares[worst]:.2f} after “{text}”."
    if _right(ALL - heads):
        return "the-heads-left-on", seen
    if (1, 0) in heads:
        return "pointing-head-silent", seen
    return "another-answer" if shares[worst] < 0.5 else "not-sure-enough", seen


EXERCISE = Exercise(
    answer=heads_to_spare,
    chapter="10_small_language_model",
    section=AGAIN,
    points=1,
    problems=lambda rng: iter([()]),
    accepts=_accepts,
    mistakes={
        "the-picture": Mistake("The silent heads are in `live.silenced`.", AGAIN, ()),
        "none-silent": Mistake(
            "No head is silent, and that is how the picture begins. Has the kernel been restarted since you "
            "silenced heads? A restart forgets them.",
            AGAIN,
            (),
        ),
        "no-pairs": Mistake(
            "A head has two numbers: its layer, and its number in this layer. Return a list of pairs "
            "`(layer, head)`, as `live.silenced` does.",
            AGAIN,
            (),
        ),
        "head-before-layer": Mistake(
            "In your pairs, the head comes before the layer. With the layer first, the list would be right.",
            AGAIN,
            (),
        ),
        "counted-from-1": Mistake(
            "If each number were 1 less, your list would be right. Layers and heads are counted from 0.",
            AGAIN,
            (),
        ),
        "no-such-head": Mistake(
            "The layers are 0 and 1, and each has the heads 0 to 3. A pair is `(layer, head)`.", AGAIN, ()
        ),
        "a-head-twice": Mistake("A head can be silenced only once.", AGAIN, ()),
        "fewer-than-four": Mistake("Your list has fewer than four heads. Silence four.", AGAIN, ()),
        "more-than-four": Mistake("Your list has more than four heads. Silence four.", AGAIN, ()),
        "the-heads-left-on": Mistake(
            "Your list has the four heads that the model needs. Silence the other four.", AGAIN, ()
        ),
        "pointing-head-silent": Mistake(
            "You silenced the pointing head, head 0 of layer 1. Without it and three others, at least one "
            "answer is no longer sure.",
            AGAIN,
            (),
        ),
        "another-answer": Mistake(
            "After at least one of the four texts, the right word now has less than 0.5.", AGAIN, ()
        ),
        "not-sure-enough": Mistake(
            "The right word has more than 0.5 after each text, but not always 0.9.", AGAIN, ()
        ),
    },
)
