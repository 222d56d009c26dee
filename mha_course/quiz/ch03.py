"""Questions of chapter 03: what an average loses, where a split puts a number, and how heads are scaled."""

import math

import torch

from mha_course.exercises import Rng
from mha_course.quiz import Question, from_mistakes, reworded
from mha_lab import scaled_dot_product_attention, toy


def same_average(rng: Rng | None) -> Question:
    """Which two sizes one average cannot tell from two others."""
    small, half = (-1, 1) if rng is None else (rng.below(7) - 3, rng.below(3) + 1)
    large, middle = small + 2 * half, small + half
    return Question(
        text=f"One head gives two animals the weights 0.5 and 0.5. Their sizes are {large} and {small}. For "
        "which other two sizes does this head fetch the same number?",
        answer=_pair(middle, middle),
        wrong={
            "The larger size is the same, but the average is not.": _pair(large, middle),
            "The smaller size is the same, but the average is not.": _pair(middle, small),
            "The difference of the sizes is the same, but the average is not.": _pair(large + 1, small + 1),
        },
        because=f"The head fetches the average, 0.5 · {_factor(large)} + 0.5 · {_factor(small)} = {middle}.",
        section="1 What one head cannot do",
    )


def average_of_heads(rng: Rng | None) -> Question:
    """What is left when the weights of two heads are averaged."""
    if rng is None:
        # Not the chapter's own sentence: its weights would answer the prediction before.
        words = ("a", "mouse", "chased", "a", "horse")
        who, names = 'The word "chased"', [f"{token} ({i})" for i, token in enumerate(words)]
        x = toy.embeddings()[[0, 4, 2, 3, 1]] * torch.tensor([1.0, 1.0, 1.0, 0.75])
        w_q, w_k, w_v, _ = toy.multi_head_weights()
        heads = [
            scaled_dot_product_attention(x @ w_q[:, mine], x @ w_k[:, mine], x @ w_v[:, mine])[1][2]
            for mine in (slice(0, 2), slice(2, 4))
        ]
    else:
        who, names = "A query", [f"key {j}" for j in range(4)]
        first, second, *_ = rng.shuffled(range(4))
        high = (0.7, 0.76, 0.79, 0.82)[rng.below(4)]  # all weights have two digits
        heads = [
            torch.tensor([high if j == at else (1 - high) / 3 for j in range(4)]) for at in (first, second)
        ]
    rows = [[round(weight, 2) for weight in head.tolist()] for head in heads]
    both = list(zip(*rows, strict=True))
    table = ". In head 1, it has: ".join(", ".join(f"{weight:.2f}" for weight in row) for row in rows)
    return Question(
        text=f"{who} has these weights in head 0: {table}. You replace the two rows with their "
        "average. What are the weights in the new row?",
        answer=[sum(pair) / 2 for pair in both],
        wrong={
            "These are the weights of head 0 alone.": rows[0],
            "These are the larger weights of both heads. They sum to more than 1.": [max(p) for p in both],
            "These are the sums of both rows. The average is half of each sum.": [sum(p) for p in both],
            "Only the two rows are averaged, key by key. The keys do not become equal.": [1 / len(names)]
            * len(names),
        },
        because="The average looks equally at the favourites of both heads, so it is one head again: it "
        "cannot tell them apart.",
        section="1 What one head cannot do",
        labels=names,
    )


def place_after_split(rng: Rng | None) -> Question:
    """In which head and in which row a number stands after the split."""
    sizes = (2, 3, 3, 3, 2) if rng is None else rng.shuffled(_instructive())[0]
    token, column, n, num_heads, d_k = sizes
    answer, wrong = from_mistakes(
        "predict_place",
        sizes,
        {
            "view-without-transpose": "The bare view, without transpose, gives this. But "
            f"token {token} keeps row {token}.",
            "heads-interleaved": "Here the columns are given to the heads in turn. But a head gets d_k "
            "neighbouring columns.",
            "head-from-1": "Here the heads are counted from 1, not from 0.",
        },
        lambda place: place[:2],
    )
    return Question(
        text=f"x has {n} tokens of d_model = {num_heads * d_k} numbers. It is split into {num_heads} heads "
        f"of d_k = {d_k}. After the split, in which head and row is x[{token}, {column}]? "
        "Everything is counted from 0.",
        answer=answer,
        wrong={idea: (head, row) for idea, (head, row) in wrong.items() if head < num_heads and row < n},
        because=f"Token {token} keeps its row, and head {answer[0]} has the columns {answer[0] * d_k} to "
        f"{answer[0] * d_k + d_k - 1}.",
        section="3 The bare view",
        labels=[[f"head {h}" for h in range(num_heads)], [f"row {i}" for i in range(n)]],
    )


def score_of_a_head(rng: Rng | None) -> Question:
    """By which root a dot product is divided when there are several heads."""
    num_heads, root, score = (
        (2, 4, 2) if rng is None else (2 + rng.below(3), 3 + rng.below(3), 1 + rng.below(4))
    )
    d_k, product = root * root, root * score
    d_model = num_heads * d_k
    query, key = torch.zeros(2, 1, 2, d_model, dtype=torch.float64)
    query[..., 0, 0], key[..., 0, 0] = product, 1.0  # in head 0, key 0 has this product and key 1 has 0
    answer, wrong = from_mistakes(
        "per_head_weights",
        (query, key, num_heads),
        ["not-scaled", "scaled-by-d_model", "scaled-by-d_k", "scaled-by-d_model-itself"],
        lambda weights: round(math.log(weights[0, 0, 0, 0] / weights[0, 0, 0, 1]), 2),
    )
    return Question(
        text=f"A layer has d_model = {d_model} and {num_heads} heads. In one head, the dot product of a "
        f"query and a key is {product}. What is the score, after the division?",
        answer=answer,
        wrong=reworded(wrong, lambda idea: idea.replace("Your scores are", "This score is")),
        because=f"The dot product sums over one head, which is {d_model} / {num_heads} = {d_k} numbers wide. "
        f"The root of {d_k} is {root}.",
        section="6 A loop over heads equals one wide projection and a split",
    )


def _pair(one: int, other: int) -> str:
    return f"{one} and {other}"


def _factor(number: int) -> str:
    return f"({number})" if number < 0 else f"{number}"


def _instructive() -> list[tuple[int, int, int, int, int]]:
    """Arguments of ``predict_place`` where the bare view and dealt columns give other places."""
    return [
        (token, column, n, num_heads, d_k)
        for n, num_heads, d_k in ((3, 2, 3), (4, 2, 3), (4, 3, 2), (3, 4, 2), (5, 3, 2))
        for token in range(1, n)
        for column in range(num_heads * d_k)
        for bare in [_in_bare_view(token, column, n, num_heads, d_k)]
        if len({(column // d_k, token), (column % num_heads, token), bare}) == 3 and column != token
    ]


def _in_bare_view(token: int, column: int, n: int, num_heads: int, d_k: int) -> tuple[int, int]:
    return divmod((token * num_heads * d_k + column) // d_k, n)
