"""Questions of chapter 01: scores, weights, and why the scores are scaled."""

import math

import torch

from mha_course.exercises import Rng
from mha_course.quiz import Question, from_mistakes, vector
from mha_lab import toy

WEIGHTS = "3 Weights: from scores to numbers that sum to 1"
ROOT = "5 Why divide by the square root of d_k?"


def same_differences(rng: Rng | None) -> Question:
    """What a softmax makes of two large numbers."""
    gap, large = (2, 1000) if rng is None else (rng.below(3) + 1, 100 * (rng.below(9) + 1))
    scores = torch.tensor([[0.0, gap]], dtype=torch.float64)
    answer, wrong = from_mistakes(
        "attention_weights",
        (scores + large,),
        {
            "divided-without-exp": "A softmax looks at the difference of the scores, not at their ratio.",
            "one-key-takes-all": "Here the best key gets all the weight. But with a difference of "
            f"{gap}, the other one gets {1 / (1 + math.exp(gap)):.2f}.",
        },
        vector,
    )
    exps = {"not-divided": f"These are exp(0) and exp({gap}). They are not yet divided by their sum."}
    wrong |= from_mistakes("attention_weights", (scores,), exps, vector)[1]
    return Question(
        text=f"A query has two scores, {large} and {large + gap}. Which two weights does the softmax give, "
        f"rounded to two digits? Help: exp({gap}) is about {math.exp(gap):.3g}.",
        answer=answer,
        wrong=wrong,
        because=f"The scores 0 and {gap} give the same weights: both exponentials contain the factor "
        f"exp({large}), which cancels in the division.",
        section=WEIGHTS,
    )


def row_of_weights(rng: Rng | None) -> Question:
    """From a row of dot products to a row of weights."""
    x, (w_q, w_k, w_v), row = toy.embeddings(), toy.single_head_weights(), 2
    names = [f"{token} ({i})" for i, token in enumerate(toy.tokens())]
    if rng is not None:  # 3 queries and keys, 4 wide, so that the root of d_k is 2
        x, row, products = torch.eye(3), rng.below(3), torch.full((3, 3), 2.0)
        products[row] = torch.tensor(rng.shuffled((6.0, 4.0, 2.0 * rng.below(2))))
        w_q, w_k, w_v = torch.cat([products, torch.zeros(3, 1)], 1), torch.eye(3, 4), torch.ones(3, 2)
        names = [f"key {j}" for j in range(3)]
    asked = vector(((x @ w_q) @ (x @ w_k).mT)[row], 0)
    d_k, who = w_q.shape[1], f"query {row}" if rng else f'the query of "{toy.tokens()[row]}"'
    # For the wrong answers, too: what helps only with the right one would give it away.
    divisors = 1, math.sqrt(d_k), d_k
    helps = sorted({round(p / by, 2) for p in map(float, asked.split(", ")) for by in divisors})
    answer, wrong = from_mistakes(
        "single_head_attention",
        (x, w_q, w_k, w_v),
        {
            "not-scaled": "Here the dot products are not divided by sqrt(d_k).",
            "scaled-by-d_k": "Here the dot products are divided by d_k, not by its square root.",
            "not-divided": "These weights do not sum to 1. Divide each exp(score) by the sum of all.",
        },
        lambda result: _in_hundredths(result[1][row].tolist()),
    )
    products = ((x @ w_q) @ (x @ w_k).mT)[row]
    wrong["These are the shares of the scores. First take exp of each."] = _in_hundredths(
        (products / products.sum()).tolist()
    )
    if rng is None:  # on a screen, one may set any bars
        wrong |= {
            "The largest score does not take all: every key gets exp(score), divided by the sum.": [
                float(bar == max(answer)) for bar in answer
            ],
            "The weights would be equal only if the scores were equal.": [1 / len(names)] * len(names),
        }
    # Bars that are off by at most 0.1 count as right.
    far = {
        i: bars
        for i, bars in wrong.items()
        if torch.dist(*map(torch.tensor, (answer, bars)), math.inf) > 0.12
    }
    return Question(
        text=f"The dot products of {who} with the {len(names)} keys are {asked}, and d_k is "
        f"{d_k}. Which weights does this query give to the keys? Help: "
        + ", ".join(f"exp({score:g}) is {'about ' * (score > 0)}{math.exp(score):.3g}" for score in helps)
        + "."
        + (" All numbers are rounded, so the last digit may differ by 1." if rng else ""),
        answer=answer,
        wrong=far,
        because=f"Divide by sqrt({d_k}), take exp, then divide each by the sum of the row.",
        section=WEIGHTS,
        labels=names,
    )


def largest_weight(rng: Rng | None) -> Question:
    """The largest score does not always get the largest weight."""
    columns = [f"{token} ({i})" for i, token in enumerate(toy.tokens())]
    rows = columns[:3]
    others = ' The rows of the second "a" and of "cat" are left out: they equal those of "a" and "dog".'
    some_help = " Help: exp(2.31) is about 10, exp(1.73) is about 5.64, exp(2.89) is about 18."
    w_q, w_k, _ = toy.single_head_weights()
    x = toy.embeddings()
    scores = (x @ w_q) @ (x @ w_k).mT / math.sqrt(3)
    if rng is not None:  # one score stands out; the largest one has a rival; three share
        high = 5.0 + rng.below(3)
        alone, rivals, three = [1, 0, 0, 0], [high / (high - 1), 1, 0, 0], [1, 1, 1, 0]
        scores = torch.tensor(rng.shuffled(rng.shuffled(row) for row in (alone, rivals, three))) * (high - 1)
        rows, columns, others = [f"query {i}" for i in range(3)], [f"key {j}" for j in range(4)], ""
        some_help = ""
    scores = scores[:3]
    answer, wrong = from_mistakes(
        "attention_weights",
        (scores,),
        {
            "softmax-over-everything": "This is the largest score. But the weight also depends on the other "
            "scores of its row.",
            "softmax-over-queries": "With a softmax along each column, no cell would get more. But it goes "
            "along each row.",
        },
        _largest,
    )
    most = int(scores.sum(dim=-1).round(decimals=3).argmax())
    equal = (scores[most] > scores[most].max() - 1e-3).nonzero().flatten().tolist()
    for column in equal if rng is None else equal[:1]:
        if (most, column) not in (answer, *wrong.values()):
            wrong[
                f"In this row, {columns[column]} is one of {len(equal)} keys with the highest score. They "
                "share the weight."
            ] = (most, column)
    table = "; ".join(f"{name}: {_short(row)}" for name, row in zip(rows, scores, strict=True))
    return Question(
        text=f"The scores of three queries with {len(columns)} keys are: {table}.{others} In which cell of "
        "these three rows does the softmax give the largest weight? Pick its row (query) and column (key)."
        + some_help,
        answer=answer,
        wrong=wrong,
        because="A weight is a share of its row. What counts is how far a score stands above the others of "
        "its row.",
        section=WEIGHTS,
        labels=[rows, columns],
    )


def spread_of_scores(rng: Rng | None) -> Question:
    """How far dot products of random vectors spread."""
    d_k = 64 if rng is None else (16, 25, 36, 49, 81, 100)[rng.below(6)]
    return Question(
        text="The entries of a query and of a key are random and independent, with mean 0 and variance 1. "
        f"Both vectors have d_k = {d_k} entries. What is the standard deviation of their dot product? Help: "
        "the product of two entries has variance 1, and the variances of independent numbers add up.",
        answer=round(math.sqrt(d_k), 4),
        wrong={
            f"This is the variance: {d_k} products, each of variance 1. Take its square root.": float(d_k),
            "This is the standard deviation of one product. A dot product adds d_k of them.": 1.0,
            "This is half of the variance. Take the square root of the variance.": d_k / 2,
        },
        because=f"The dot product adds {d_k} products of variance 1, so its variance is {d_k}, and its "
        f"standard deviation is sqrt({d_k}).",
        section=ROOT,
    )


def _in_hundredths(weights: list[float]) -> list[float]:
    """Rounded so that weights that sum to 1 still do. Else the sum could tell which answer is right."""
    whole = [100 * min(weight, 1.0) for weight in weights]
    cut = [math.floor(x) for x in whole]
    most = sorted(range(len(whole)), key=lambda i: cut[i] - whole[i])
    for i in most[: round(sum(whole)) - sum(cut)]:
        cut[i] += 1
    return [x / 100 for x in cut]


def _largest(weights: torch.Tensor) -> tuple[int, int]:
    return divmod(int(weights.argmax()), weights.shape[1])


def _short(row: torch.Tensor) -> str:
    return ", ".join(f"{round(number, 2):g}" for number in row.tolist())
