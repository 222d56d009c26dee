"""Chapter 10: a causal mask that forgets the cache."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def mend_cache(query, key, value, old_key, old_value):
    """New tokens attend to old and new ones: ``(batch, heads, n_new, d_k)``."""
    key, value = torch.cat([old_key, key], dim=-2), torch.cat([old_value, value], dim=-2)
    scores = query @ key.mT / query.shape[-1] ** 0.5
    n_q, n_k = scores.shape[-2:]
    mask = torch.ones(n_q, n_k, dtype=torch.bool).tril(diagonal=n_k - n_q)
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
    return weights @ value


def _kept(old_key):
    """How many tokens are kept, which is how far the triangle is shifted."""
    return old_key.shape[-2]


def _attend(query, key, value, shift, *, inverted=False):
    """Attention in which query ``i`` sees the keys up to ``i + shift``; ``None`` hides nothing."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    n_q, n_k = scores.shape[-2:]
    mask = torch.ones(n_q, n_k, dtype=torch.bool)
    mask = mask if shift is None else mask.tril(diagonal=shift)
    mask = ~mask if inverted else mask
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1).nan_to_num()
    return weights @ value


def _problems(draw):
    yield (
        torch.zeros(1, 1, 1, 2),
        torch.zeros(1, 1, 1, 2),
        torch.tensor([[[[9.0, 0.0]]]]),
        torch.zeros(1, 1, 2, 2),
        torch.tensor([[[[3.0, 0.0], [3.0, 6.0]]]]),
    )
    for dtype in (torch.float32, torch.float64, torch.float64):
        n_new, n_old, d_k = draw.primes(3, at_least=3)  # of two new tokens, one place too far hides nothing
        new, old = (2, 3, n_new, d_k), (2, 3, n_old, d_k)
        yield tuple(2 * draw.normal(*shape, dtype=dtype) for shape in (new, new, new, old, old))


def _both(old, new):
    return torch.cat([old, new], dim=-2)


CORNER = "6 Keep keys and values"
EXERCISE = Exercise(
    answer=mend_cache,
    chapter="10_small_language_model",
    section=CORNER,
    points=2,
    problems=_problems,
    bug=lambda q, k, v, ok, ov: _attend(q, _both(ok, k), _both(ov, v), 0),
    mistakes={
        "mask-ignored": Mistake(
            "Nothing is hidden any more: where several tokens are new, the first sees those after it.",
            CORNER,
            (lambda q, k, v, ok, ov: _attend(q, _both(ok, k), _both(ov, v), None),),
        ),
        "hides-own-key": Mistake(
            "The triangle is shifted one place too little: a new token does not see its own key.",
            CORNER,
            (lambda q, k, v, ok, ov: _attend(q, _both(ok, k), _both(ov, v), _kept(ok) - 1),),
        ),
        "sees-the-future": Mistake(
            "The triangle is shifted one place too far: a new token sees the one after it.",
            CORNER,
            (lambda q, k, v, ok, ov: _attend(q, _both(ok, k), _both(ov, v), _kept(ok) + 1),),
        ),
        "shifted-by-new": Mistake(
            "The triangle is shifted by the number of new tokens; it is the old ones that lie before it.",
            CORNER,
            (lambda q, k, v, ok, ov: _attend(q, _both(ok, k), _both(ov, v), q.shape[-2]),),
        ),
        "cache-ignored": Mistake(
            "The new tokens see only each other: the kept keys and values are not used.",
            CORNER,
            (
                lambda q, k, v, ok, ov: _attend(q, k, v, 0),
                lambda q, k, v, ok, ov: _attend(q, k, v, None),
            ),
        ),
        "new-ignored": Mistake(
            "The new tokens see only the kept keys: their own are missing.",
            CORNER,
            (lambda q, k, v, ok, ov: _attend(q, ok, ov, None),),
        ),
        "order-swapped": Mistake(
            "The kept keys stand behind the new ones, so the mask hides the wrong ones.",
            CORNER,
            (lambda q, k, v, ok, ov: _attend(q, _both(k, ok), _both(v, ov), _kept(ok)),),
        ),
        "mask-inverted": Mistake(
            "The mask is inverted: True means may attend.",
            CORNER,
            (
                lambda q, k, v, ok, ov: _attend(q, _both(ok, k), _both(ov, v), _kept(ok), inverted=True),
                lambda q, k, v, ok, ov: _attend(q, _both(ok, k), _both(ov, v), 0, inverted=True),
            ),
        ),
        "keys-and-values-apart": Mistake(
            "Only the keys, or only the values, are joined with the kept ones in the right order.",
            CORNER,
            (
                lambda q, k, v, ok, ov: _attend(q, _both(ok, k), _both(v, ov), _kept(ok)),
                lambda q, k, v, ok, ov: _attend(q, _both(k, ok), _both(ov, v), _kept(ok)),
            ),
        ),
    },
)
