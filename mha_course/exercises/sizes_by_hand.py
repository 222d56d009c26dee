"""Chapter 00: values dragged in a picture, until two tokens get what they should."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _results as compare
from mha_lab import scaled_dot_product_attention, toy

HEATMAP = "4 The first heatmap"
DOG, SAW = 1, 2
NEAR, LEAST = 0.105, 0.495  # the picture shows two digits


def sizes_by_hand():
    """Five sizes ``(5,)`` with which *saw* gets about 0, and *dog* at least 0.5."""
    # saw looks at dog (0.67) and cat (0.21), and dog looks at saw (0.72).
    return torch.tensor([0.0, 0.25, 0.8, 0.0, -1.0])


def at_the_start():
    """The heatmap of step 4, and the sizes as the picture begins."""
    query, key, value = (toy.embeddings() @ w for w in toy.single_head_weights())
    _, weights = scaled_dot_product_attention(query, key, value)
    return weights, value[:, 1]


def _form(array, result, weights):
    """What is wrong with the form, and what was seen."""
    seen = f"Your function returns {compare.kind(result)}; five sizes, (5,), are expected."
    if compare.is_a(result, "Flow"):
        return "the-picture", "Your function returns the picture itself; five sizes, (5,), are expected."
    if array is None or array.dtype == bool:
        return "wrong-shape", seen
    if array.shape == (2,):
        return "two-numbers", seen
    if array.shape in ((5, 2), (1, 5, 2)):
        return "both-numbers-of-each-value", seen
    if array.shape != (5,):
        return "wrong-shape", seen
    if not np.isfinite(array.astype(float)).all():
        return "not-finite", "Your sizes hold NaN or infinity."
    if any(np.allclose(array, row, atol=0.006) for row in weights):
        return "weights-returned", f"Your function returns {_listed(array)}."
    return None


def _accepts(result, weights, start):
    array, weights, start = compare.as_array(result), weights.double().numpy(), start.numpy()
    if told := _form(array, result, weights):
        return told
    sizes = array.astype(float)
    dog, saw = (float(weights[row] @ sizes) for row in (DOG, SAW))
    enough, near = dog >= LEAST - 1e-6, abs(saw) <= NEAR + 1e-6
    if enough and near:
        return None
    seen = (
        f"With your sizes {_listed(sizes)}, saw gets {_two(saw)} and dog gets {_two(dog)}. saw should get "
        "-0.1 to 0.1, and dog at least 0.5."
    )
    if np.allclose(sizes, start, atol=1e-4):
        return "where-the-picture-begins", seen
    if np.allclose(sizes, [0, 1, -1, 0, 1], atol=1e-4):
        return "first-numbers", seen
    if not enough and sizes[DOG] > start[DOG] + 0.01:
        return "own-value-of-dog", seen
    if enough:
        return "too-much-for-saw" if saw > 0 else "too-little-for-saw", seen
    return "too-little-for-dog" if near else "neither", seen


def _two(number):
    return f"{round(number, 2) + 0:.2f}"


def _listed(numbers):
    return f"({', '.join(f'{number:.4g}' for number in numbers)})"


EXERCISE = Exercise(
    answer=sizes_by_hand,
    chapter="00_start_here",
    section=HEATMAP,
    points=1,
    problems=lambda rng: iter([at_the_start()]),
    call=lambda answer, weights, start: answer(),
    accepts=_accepts,
    mistakes={
        "the-picture": Mistake(
            "The values are in `flow.values`; the sizes are the second number of each.", HEATMAP, ()
        ),
        "two-numbers": Mistake(
            "Two numbers can be what two tokens get. The task asks for what you changed: the size in each of "
            "the five values.",
            HEATMAP,
            (),
        ),
        "both-numbers-of-each-value": Mistake(
            "A value has two numbers, and only the second one is the size.", HEATMAP, ()
        ),
        "weights-returned": Mistake(
            "These five numbers are a row of weights. The sizes are the second numbers of the values.",
            HEATMAP,
            (),
        ),
        "where-the-picture-begins": Mistake(
            "These are the sizes with which the picture begins. Did you drag them, and has the kernel been "
            "restarted since? A restart forgets what you dragged.",
            HEATMAP,
            (),
        ),
        "first-numbers": Mistake(
            "These are the first numbers of the values at the start. The size is the second number.",
            HEATMAP,
            (),
        ),
        "own-value-of-dog": Mistake(
            "You made the size of dog itself larger. But dog gives itself a weight of 0.07 only: read its "
            "row in the heatmap.",
            HEATMAP,
            (),
        ),
        "too-much-for-saw": Mistake(
            "dog gets enough. saw still gets too much: which value counts most for saw, and little for dog?",
            HEATMAP,
            (),
        ),
        "too-little-for-saw": Mistake(
            "dog gets enough. saw gets too little: one of the values that count for saw is now too small.",
            HEATMAP,
            (),
        ),
        "too-little-for-dog": Mistake(
            "saw gets what it should, but dog does not. The token that dog looks at most has too small a "
            "size: read the row of dog in the heatmap.",
            HEATMAP,
            (),
        ),
        "neither": Mistake(
            "Neither of the two words gets what it should. Begin with dog: read its row in the heatmap, and "
            "change the value that counts most for it.",
            HEATMAP,
            (),
        ),
    },
)
