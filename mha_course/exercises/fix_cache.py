"""Chapter 10: a causal mask that forgets the cache."""

from functools import partial

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _hide, _scale, deviations


def fix_cache(query, key, value, old_key, old_value):
    """New tokens attend to old and new ones: ``(batch, heads, n_new, d_k)``."""
    key, value = torch.cat([old_key, key], dim=-2), torch.cat([old_value, value], dim=-2)
    scores = query @ key.mT / query.shape[-1] ** 0.5
    n_q, n_k = scores.shape[-2:]
    mask = torch.ones(n_q, n_k, dtype=torch.bool).tril(diagonal=n_k - n_q)
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
    return weights @ value


def _stub(query, key, value, old_key, old_value):
    key = torch.cat([old_key, key], dim=-2)
    value = torch.cat([old_value, value], dim=-2)
    mask = torch.ones(query.shape[-2], key.shape[-2]).tril().bool()
    return mha_lab.scaled_dot_product_attention(query, key, value, mask)[0]


def _problems(rng):
    def tokens(*rows):
        return torch.tensor([[rows]])

    yield (
        tokens([1.0, 0.5], [-0.5, 2.0]),
        tokens([0.5, 1.0], [1.5, -1.0]),
        tokens([9.0, 1.0], [4.0, -2.0]),
        tokens([2.0, 0.0], [-1.0, 1.0], [0.0, 1.5]),
        tokens([3.0, 5.0], [-6.0, 2.0], [8.0, 7.0]),
    )
    yield tokens([1.0, 0.5]), tokens([0.5, 1.0]), tokens([9.0, 1.0]), tokens([2.0, 0.0]), tokens([3.0, 5.0])
    for n_old in (None, None, 0):
        batch, heads, n_new, d_k = rng.primes(4, at_least=3)
        n_old = n_new + 2 if n_old is None else n_old
        new, old = (batch, heads, n_new, d_k), (batch, heads, n_old, d_k)
        yield tuple(2 * rng.normal(*shape) for shape in (new, new, new, old, old))


def _both(old, new):
    return torch.cat([old, new], dim=-2)


def _triangle(shift):
    """Query ``i`` sees the keys up to ``i`` plus ``shift(n_new, n_old, query)``."""

    def mask(query, keys, n_old):
        full = torch.ones(query.shape[-2], keys, dtype=torch.bool)
        return full.tril(shift(query.shape[-2], n_old, query))

    return mask


RIGHT = _triangle(lambda n_new, n_old, query: n_old)


FILLED = _hide.Steps(then=_hide.THEN[:1]).ways(_hide.HIDE[:1], ())


def _build(keys=_both, values=_both, mask=RIGHT, divisor=_scale.right, weigh=None, after=lambda sizes: 1.0):
    """A tuple of answers: a token that sees nothing gets 0, or NaN."""

    def answer(query, key, value, old_key, old_value, weigh):
        joined = keys(old_key, key)
        sizes = _scale.Sizes.of(query, joined)
        seen = mask(query, joined.shape[-2], old_key.shape[-2])
        weights = weigh(query @ joined.mT / divisor(sizes), seen) / after(sizes)
        return weights @ values(old_value, value)

    return tuple(
        partial(answer, weigh=way) for way in ((_hide.right, *FILLED) if weigh is None else (weigh,))
    )


STEP = "7 One more word"
MASKS = {
    "triangle-as-before": (
        "The triangle still starts at the first key, as before: the new tokens do not see all kept ones.",
        STEP,
        (_triangle(lambda n_new, n_old, q: 0),),
    ),
    "mask-ignored": (
        "Nothing is hidden any more: if several tokens are new, the first sees those after it.",
        STEP,
        (lambda q, n_k, n_old: torch.ones(q.shape[-2], n_k, dtype=torch.bool),),
    ),
    "mask-without-a-cache-only": (
        "With kept keys your function hides nothing: if several tokens are new, the first sees those after "
        "it.",
        STEP,
        (lambda q, n_k, n_old: RIGHT(q, n_k, n_old) | (n_old > 0),),
    ),
    "columns-of-the-mask-swapped": (
        "In your mask the triangle of the new keys comes before the columns of the kept ones; the kept keys "
        "should come first.",
        STEP,
        (lambda q, n_k, n_old: RIGHT(q, n_k, n_old).roll(-n_old, dims=1),),
    ),
    "hides-own-key": (
        "The triangle is shifted one place too little: a new token does not see its own key.",
        STEP,
        (_triangle(lambda n_new, n_old, q: n_old - 1),),
    ),
    "sees-the-next-token": (
        "The triangle is shifted one place too far: a new token sees the one after it.",
        STEP,
        (_triangle(lambda n_new, n_old, q: n_old + 1),),
    ),
    "shifted-by-a-fixed-number": (
        "The triangle is shifted by a fixed number of places; shift it by the number of kept tokens.",
        STEP,
        tuple(_triangle(lambda n_new, n_old, q, i=i: i) for i in range(1, 8)),
    ),
    "shifted-by-the-number-of-new-tokens": (
        "The triangle is shifted by the number of new tokens; shift it by the number of kept tokens.",
        STEP,
        (_triangle(lambda n_new, n_old, q: n_new),),
    ),
    "shifted-the-other-way": (
        "The triangle is shifted the other way: a negative diagonal hides more, not less.",
        STEP,
        (_triangle(lambda n_new, n_old, q: -n_old),),
    ),
    "shifted-by-another-axis": (
        "The triangle is shifted by the size of another axis: the batch, the heads or d_k.",
        STEP,
        tuple(_triangle(lambda n_new, n_old, q, i=i: q.shape[i]) for i in (0, 1, -1)),
    ),
    "mask-inverted": (
        "The mask is inverted: it hides what may be seen, and shows what may not be seen.",
        STEP,
        (lambda q, n_k, n_old: ~RIGHT(q, n_k, n_old),),
    ),
    "first-triangle-hidden": (
        "The mask hides the triangle that starts at the first key, and shows the rest.",
        STEP,
        (lambda q, n_k, n_old: ~_triangle(lambda a, b, c: 0)(q, n_k, n_old),),
    ),
    "upper-triangle": (
        "The triangle is the upper one: a new token sees itself and those after it, but none before it.",
        STEP,
        (lambda q, n_k, n_old: torch.ones(q.shape[-2], n_k, dtype=torch.bool).triu(n_old),),
    ),
    "only-kept-tokens-seen": (
        "The new tokens see the kept ones only: their own are hidden.",
        STEP,
        (lambda q, n_k, n_old: (torch.arange(n_k) < n_old).expand(q.shape[-2], n_k),),
    ),
}


def _in_front(old, new):
    return torch.cat([new, old], dim=-2)


DIVISORS = _scale.wrong(STEP, "lengths")
WEIGHTS = _hide.wrong(STEP, "heads", "batch", but=("mask-inverted", "mask-ignored"), see=_hide.CHAPTER_04)
KNOBS = {
    "mask": MASKS,
    "keys": {
        "keys-in-another-order": (
            "The new keys come before the kept ones, but the new values come after them.",
            STEP,
            (_in_front,),
        ),
    },
    "values": {
        "values-in-another-order": (
            "The new values come before the kept ones, but the new keys come after them.",
            STEP,
            (_in_front,),
        ),
    },
    "divisor": {name: DIVISORS[name] for name in ("not-scaled", "scaled-by-d_k")},
}


EXERCISE = Exercise(
    answer=fix_cache,
    chapter="10_small_language_model",
    section=STEP,
    points=2,
    problems=_problems,
    bug=_stub,
    mistakes={
        **deviations(_build, {"divisor": DIVISORS, "weigh": WEIGHTS}, pairs=False),
        **deviations(_build, KNOBS),
        "order-swapped": Mistake(
            "The kept keys and values come after the new ones, but the mask expects them first.",
            STEP,
            _build(keys=_in_front, values=_in_front),
        ),
        "cache-ignored": Mistake(
            "The new tokens see only each other: the kept keys and values are hidden, or left out.",
            STEP,
            (
                lambda q, k, v, ok, ov: fix_cache(q, k, v, ok[..., :0, :], ov[..., :0, :]),
                lambda q, k, v, ok, ov: torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v,
            ),
        ),
        "scaled-after-the-softmax": Mistake(
            _scale.AFTER,
            STEP,
            tuple(
                answer
                for after in _scale.afterwards("lengths")
                for answer in _build(divisor=lambda sizes: 1.0, after=after)
            ),
        ),
        "weights-as-well": Mistake(
            "Your function returns (output, weights); it should return the output alone.",
            STEP,
            (
                lambda q, k, v, ok, ov: mha_lab.scaled_dot_product_attention(
                    q,
                    _both(ok, k),
                    _both(ov, v),
                    torch.ones(q.shape[-2], k.shape[-2] + ok.shape[-2]).tril(ok.shape[-2]).bool(),
                ),
            ),
        ),
    },
)
