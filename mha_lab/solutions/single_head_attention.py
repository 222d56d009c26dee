"""Chapter 01: self-attention with one head."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake


def single_head_attention(x, w_q, w_k, w_v):
    """``(..., n, d_model)`` and three matrices to ``(output, weights)``."""
    query, key, value = x @ w_q, x @ w_k, x @ w_v
    weights = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)
    return weights @ value, weights


def _problems(draw):
    yield torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.eye(2), 2 * torch.eye(2), torch.tensor([[1.0], [3.0]])
    for dtype, leading in ((torch.float64, 0), (torch.float32, 1), (torch.float64, 1)):
        n, d_model, d_k, d_v, *batch = draw.primes(4 + leading)
        matrices = (draw.normal(d_model, d, dtype=dtype) / d_model**0.5 for d in (d_k, d_k, d_v))
        yield draw.normal(*batch, n, d_model, dtype=dtype), *matrices


def _attend(query, key, value, scale=None, dim=-1):
    scale = math.sqrt(query.shape[-1]) if scale is None else scale
    weights = torch.softmax(query @ key.mT / scale, dim=dim)
    return weights @ value, weights


ROOT = "5 Why divide by the square root of d_k?"
PROJECT = "2 Scores: how well does each query match each key?"
EXERCISE = Exercise(
    answer=single_head_attention,
    chapter="01_single_head_attention",
    section="6 Put together",
    points=2,
    problems=_problems,
    same_as=("SingleHeadAttention.forward",),
    mistakes={
        "not-scaled": Mistake(
            "Your weights are the softmax of plain dot products: they are not divided by sqrt(d_k).",
            ROOT,
            (lambda x, q, k, v: _attend(x @ q, x @ k, x @ v, 1.0),),
        ),
        "scaled-by-d_k": Mistake(
            "Your scores are divided by d_k, and not by its square root.",
            ROOT,
            (lambda x, q, k, v: _attend(x @ q, x @ k, x @ v, q.shape[-1]),),
        ),
        "scaled-by-d_model": Mistake(
            "Your scores are divided by the root of d_model, the width of x; the queries are d_k wide.",
            ROOT,
            (lambda x, q, k, v: _attend(x @ q, x @ k, x @ v, math.sqrt(x.shape[-1])),),
        ),
        "softmax-over-queries": Mistake(
            "Your columns of weights sum to 1, and not your rows: the softmax runs over the queries.",
            "7 Break it: softmax over the wrong axis",
            (lambda x, q, k, v: _attend(x @ q, x @ k, x @ v, dim=-2),),
        ),
        "shared-projection": Mistake(
            "Your function uses one matrix where queries, keys and values each have their own.",
            PROJECT,
            (
                lambda x, q, k, v: _attend(x @ q, x @ q, x @ q),
                lambda x, q, k, v: _attend(x @ q, x @ q, x @ v),
                lambda x, q, k, v: _attend(x @ k, x @ k, x @ v),
                lambda x, q, k, v: _attend(x @ q, x @ k, x @ k),
            ),
        ),
        "values-used-as-keys": Mistake(
            "Your function mixes up keys and values: keys give the weights, values are averaged.",
            "4 Output: the weighted average of the values",
            (
                lambda x, q, k, v: _attend(x @ q, x @ v, x @ v),
                lambda x, q, k, v: _attend(x @ q, x @ v, x @ k),
            ),
        ),
        "no-value-projection": Mistake(
            "Your output averages the rows of x themselves: they are not projected by w_v.",
            PROJECT,
            (lambda x, q, k, v: _attend(x @ q, x @ k, x),),
        ),
        "key-not-transposed": Mistake(
            "Your function multiplies query and key without turning the rows of key into columns.",
            PROJECT,
            (lambda x, q, k, v: _attend(x @ q, (x @ k).mT, x @ v),),
        ),
        "output-only": Mistake(
            "Your function returns the output alone; (output, weights) is asked for.",
            "6 Put together",
            (lambda x, q, k, v: _attend(x @ q, x @ k, x @ v)[0],),
        ),
        "outputs-swapped": Mistake(
            "Your function returns (weights, output); (output, weights) is asked for.",
            "6 Put together",
            (lambda x, q, k, v: _attend(x @ q, x @ k, x @ v)[::-1],),
        ),
    },
)
