"""Chapter 02: a lookup with a temperature."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake


def soft_lookup(query, keys, values, temperature):
    """``(d_k,)``, ``(n_k, d_k)``, ``(n_k, d_v)`` to the average of the values, ``(d_v,)``."""
    return torch.softmax(keys @ query / temperature, dim=-1) @ values


def _problems(draw):
    yield torch.tensor([1.0, 0.0]), torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.0], [1.0]]), 2.0
    for dtype, temperature in ((torch.float32, 0.5), (torch.float64, 3.0), (torch.float64, 1.7)):
        d_k, n_k, d_v = draw.primes(3)
        shapes = (d_k,), (n_k, d_k), (n_k, d_v)
        yield *(draw.normal(*shape, dtype=dtype) for shape in shapes), temperature
    yield torch.tensor([1.0, 0.0]), torch.tensor([[900.0, 0.0], [899.0, 5.0]]), torch.eye(2), 1.0


def _look(query, keys, values, divisor):
    return torch.softmax(keys @ query / divisor, dim=-1) @ values


def _naive(query, keys, values, temperature):
    raised = torch.exp(keys @ query / temperature)
    return raised / raised.sum() @ values


TEMPERATURE = "5 Length is temperature"
EXERCISE = Exercise(
    answer=soft_lookup,
    chapter="02_toy_queries_keys_values",
    section=TEMPERATURE,
    points=2,
    problems=_problems,
    mistakes={
        "temperature-ignored": Mistake(
            "Your scores are not divided by the temperature.",
            TEMPERATURE,
            (lambda q, k, v, t: _look(q, k, v, 1.0), lambda q, k, v, t: _look(q, k, v, math.sqrt(len(q)))),
        ),
        "temperature-inverted": Mistake(
            "Your scores are multiplied by the temperature, and not divided by it.",
            TEMPERATURE,
            (lambda q, k, v, t: _look(q, k, v, 1 / t),),
        ),
        "scaled-as-well": Mistake(
            "Your scores are divided by sqrt(d_k) as well; here the temperature alone divides them.",
            TEMPERATURE,
            (lambda q, k, v, t: _look(q, k, v, t * math.sqrt(len(q))),),
        ),
        "temperature-after-softmax": Mistake(
            "Your function divides the weights by the temperature: it belongs inside the softmax.",
            TEMPERATURE,
            (lambda q, k, v, t: _look(q, k, v, 1.0) / t,),
        ),
        "unstable-softmax": Mistake(
            "Your formula is right on paper, and large scores make it NaN.",
            TEMPERATURE,
            (_naive,),
        ),
        "not-normalised": Mistake(
            "Your weights do not sum to 1: the numbers are raised and not divided by their sum.",
            TEMPERATURE,
            (
                lambda q, k, v, t: torch.exp(k @ q / t) @ v,
                lambda q, k, v, t: torch.exp(k @ q / t - (k @ q / t).max()) @ v,
                lambda q, k, v, t: (k @ q / t) @ v,
            ),
        ),
        "hard-lookup": Mistake(
            "Your function returns the value of the best key alone; a soft lookup averages all of them.",
            "1 One query, one key",
            (lambda q, k, v, t: v[(k @ q).argmax()],),
        ),
    },
)
