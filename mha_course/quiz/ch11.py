"""Questions of chapter 11: what a layer computes that has a published bug."""

import math

import torch

from mha_course.exercises import find
from mha_course.quiz import Question, from_mistakes


def factor_of_the_root(rng):
    """How much too small scores are that are divided by the root of the model's width."""
    num_heads, d_k = (9, 8) if rng is None else (rng.shuffled((4, 16, 25, 36))[0], rng.shuffled((8, 12))[0])
    d_model = num_heads * d_k
    return Question(
        text=f"A layer has d_model = {d_model} and {num_heads} heads. It divides its scores by the square "
        "root of d_model instead of the square root of d_k. So the scores are too small. By what "
        "factor should they be larger?",
        answer=math.sqrt(num_heads),
        wrong={
            "This is the factor between the widths. Take the factor between their square roots.": float(
                num_heads
            ),
            "This is the whole divisor. A correct layer divides too, by the square root of d_k.": math.sqrt(
                d_model
            ),
            "This would be so with one head, which is as wide as the model.": 1.0,
            f"This is the divisor of the correct layer. By what factor is sqrt({d_model}) larger?": math.sqrt(
                d_k
            ),
        },
        because=f"The model is {num_heads} times as wide as a head. So the square root of its "
        f"width is {math.isqrt(num_heads)} times as large.",
        section="2 Bugs in the scores",
    )


def softmax_over_queries(rng):
    """What weights are if the softmax runs over the wrong axis."""
    n_q, n_k = (4, 2) if rng is None else rng.shuffled((2, 3, 4, 5))[:2]
    scores = torch.zeros(n_q, n_k)

    ideas = ["softmax-over-queries", "softmax-over-everything"]
    right, found = from_mistakes(
        "attention_weights",
        (scores,),
        ideas,
        lambda weights: [round(weight, 4) for weight in weights[0].tolist()],
    )
    answer, everything = found.values()
    return Question(
        text=f"A layer has {n_q} queries and {n_k} keys, and all scores are equal. Its softmax runs over the "
        "queries, not over the keys. How much weight does query 0 give to each key?",
        answer=answer,
        wrong={
            "This is the correct layer: its softmax runs over the keys.": right,
            f"Here all {n_q * n_k} weights sum to 1. But the {n_q} weights of each key sum to 1.": everything,
            "Here one key gets everything. Equal scores give equal weights.": [1.0] + [0.0] * (n_k - 1),
        },
        because=f"For each key, the {n_q} queries share a weight of 1. The scores are equal, so each query "
        f"gives {1 / n_q:.2f}.",
        section="2 Bugs in the scores",
        labels=[f"key {j}" for j in range(n_k)],
    )


def merged_by_view(rng):
    """Where a number comes from if heads are put together by a bare reshape."""
    h, n, d_k, column = (3, 4, 2, 4) if rng is None else _merge(rng)
    wrong, answer = _sources(h, n, d_k, column)
    return Question(
        text=f"The heads are (num_heads, n, d_k) = ({h}, {n}, {d_k}), stored head by head. A bare reshape "
        f"gives them the shape ({n}, {h * d_k}). Counting starts at 0. Which head and which token does the "
        f"number in row 0, column {column} come from?",
        answer=answer,
        wrong=wrong,
        because=f"The reshape keeps the order. Number {column} of all numbers is in head {answer[0]}. "
        f"There each token has {d_k} numbers, so it belongs to token {answer[1]}.",
        section="3 A bug in the heads",
        labels=([f"head {i}" for i in range(h)], [f"token {i}" for i in range(n)]),
    )


def _sources(h, n, d_k, column):
    """Head and token of a number in row 0: right for the bug, and with other ideas of the merge."""
    numbers = torch.arange(h * n * d_k, dtype=torch.float32).view(1, h, n, d_k)

    def read(merged):
        head, rest = divmod(int(merged[0].reshape(n, h * d_k)[0, column]), n * d_k)
        return head, rest // d_k

    names = ["merge-without-transpose", "heads-interleaved"]
    right, others = from_mistakes("merge_heads", (numbers,), names, read)
    bug, interleaved = (others.get(find("merge_heads").mistakes[name].says) for name in names)
    ideas = {
        "This is the correct merge: all numbers of token 0 are in row 0.": right,
        f"Head 0 comes first, with {n} · {d_k} = {n * d_k} numbers. Only then comes head 1.": interleaved,
        "Here every number is taken for a token of its own. A token has d_k numbers in each head.": (
            (0, column) if column < n else None
        ),
    }
    answer, wrong = bug or right, {}
    for idea, place in ideas.items():
        if place not in (None, answer, *wrong.values()):
            wrong[idea] = place
    return wrong, answer


def _merge(rng):
    """Sizes and a column for which the ideas give at least two wrong answers."""
    while True:
        h, n, d_k = rng.shuffled((2, 3, 4, 5))[:3]
        column = rng.below(h * d_k)
        if column < n * d_k and len(_sources(h, n, d_k, column)[0]) >= 2:
            return h, n, d_k, column


def mask_by_accident(rng):
    """How many keys a query sees if a mask of the batch is taken for one of the queries."""
    lengths, query, text = ([5, 4, 3, 2, 1], 1, 2) if rng is None else _lengths(rng)
    n = len(lengths)
    right, found = from_mistakes(
        "fix_padding",
        (torch.zeros(n, n, n), torch.tensor(lengths)),
        ["axis-of-queries-missing", "mask-ignored"],
        lambda weights: float((weights[text, query] > 0).sum()),
    )
    answer, without = found.values()
    return Question(
        text=f"A batch has {n} samples of {n} tokens. The samples have {', '.join(map(str, lengths))} real "
        f"tokens, with padding on the right. The mask is ({n}, {n}): row i says which tokens of sample i "
        "are real. By accident, this mask is applied to scores of shape (batch, num_heads, n_q, n_k), "
        "and it is broadcast. Counting "
        f"starts at 0. How many keys may query {query} of sample {text} see?",
        answer=answer,
        wrong={
            "The mask was made for this. But here its first axis belongs to queries, not to samples.": right,
            f"These are all keys. But row {query} of the mask hides some of them.": without,
            "These are the hidden keys. True means may attend.": float(n - lengths[query]),
        },
        because=f"The mask fits the last two axes, (n_q, n_k). So query {query} of every sample gets row "
        f"{query}, which was made for sample {query}.",
        section="4 Bugs in the masks",
    )


def _lengths(rng):
    """Lengths, a query and a text for which all answers differ."""
    while True:
        lengths, (query, text) = rng.shuffled((1, 2, 3, 4, 5)), rng.shuffled(range(5))[:2]
        if 5 not in (lengths[query], lengths[text]) and lengths[query] + lengths[text] != 5:
            return lengths, query, text
