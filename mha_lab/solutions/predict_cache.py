"""Chapter 10: how much a key-value cache holds."""

import torch

from mha_lab import language_model
from mha_lab.check.exercise import Exercise, Mistake


def predict_cache(num_layers, num_heads, n, d_model):
    """How many numbers are kept for one text of ``n`` tokens; counted, not computed."""
    model = language_model.Decoder(
        2, d_model=d_model, num_heads=num_heads, num_layers=num_layers, max_length=n
    )
    with torch.no_grad():
        _, caches = model.extend(torch.zeros(1, n, dtype=torch.long))
    return sum(kept.numel() for cache in caches for kept in cache)


def _problems(draw):
    yield 2, 4, 96, 64
    yield 3, 5, 7, 20
    for _ in range(3):
        num_layers, num_heads, n, half = draw.primes(4)
        yield num_layers, num_heads, n, 2 * half * num_heads


STEP = "6 Keep keys and values"
EXERCISE = Exercise(
    answer=predict_cache,
    chapter="10_small_language_model",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "counted-per-head": Mistake(
            "You count the whole width d_model for each head: the heads share it among them.",
            STEP,
            (lambda layers, h, n, d: 2 * layers * h * n * d, lambda layers, h, n, d: layers * h * n * d),
        ),
        "keys-only": Mistake(
            "You count keys or values: both are kept.",
            STEP,
            (lambda layers, h, n, d: layers * n * d,),
        ),
        "queries-kept": Mistake(
            "You count queries as well: a query is used once, when its token is new.",
            STEP,
            (lambda layers, h, n, d: 3 * layers * n * d,),
        ),
        "one-layer": Mistake(
            "You count one layer: each has keys and values of its own.",
            STEP,
            (lambda layers, h, n, d: 2 * n * d, lambda layers, h, n, d: n * d),
        ),
        "one-head": Mistake(
            "You count one head, of width d_model / num_heads: all heads keep theirs.",
            STEP,
            (lambda layers, h, n, d: 2 * layers * n * d // h, lambda layers, h, n, d: layers * n * d // h),
        ),
        "weights-kept": Mistake(
            "You count attention weights, n of them for each token: they are computed anew and not kept.",
            STEP,
            (
                lambda layers, h, n, d: layers * h * n * n,
                lambda layers, h, n, d: layers * n * n,
                lambda layers, h, n, d: 2 * layers * h * n * n,
            ),
        ),
        "one-token": Mistake(
            "You count one token: the cache grows with each.",
            STEP,
            (lambda layers, h, n, d: 2 * layers * d,),
        ),
    },
)
