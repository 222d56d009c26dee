"""Chapter 16: one step of the delta rule with a decay."""

import math

import torch

from mha_course.chapters.delta import delta_rule, delta_rule_chunked
from mha_course.exercises import Exercise, Mistake, deviations

DECAY, STEP = "2 Let the matrix fade", "3 Erase, then write"


def delta_step(state, key, value, rate, decay):
    """``(d_k, d_v)``, ``(d_k,)``, ``(d_v,)`` and two numbers to the next state, ``(d_k, d_v)``."""
    state = decay * state
    return state + torch.outer(key, rate * (value - key @ state))


def _problems(rng):
    yield torch.tensor([[8.0], [4.0]]), torch.tensor([1.0, 0.0]), torch.tensor([2.0]), 0.5, 0.5
    yield torch.tensor([[8.0], [4.0]]), torch.tensor([0.0, 1.0]), torch.tensor([2.0]), 0.25, 0.75
    for rate, decay in ((0.25, 0.75), (0.75, 0.5), (0.5, 0.875)):
        d_k, d_v = rng.primes(2, at_least=3)
        key = rng.normal(d_k)
        yield rng.normal(d_k, d_v), key / key.norm(), rng.normal(d_v), rate, decay
    d_k, d_v = rng.primes(2, at_least=3)
    yield rng.normal(d_k, d_v), rng.normal(d_k), rng.normal(d_v), 0.75, 0.25  # a key of another length


def _build(
    kept=lambda state, decay: decay * state,
    found=lambda key, state, faded: key @ faded,
    wrote=lambda rate, value, found: rate * (value - found),
    joined=lambda faded, written, decay: faded + written,
):
    def answer(state, key, value, rate, decay):
        faded = kept(state, decay)
        return joined(faded, torch.outer(key, wrote(rate, value, found(key, state, faded))), decay)

    return answer


KNOBS = {
    "kept": {
        "no-decay": (
            "The matrix does not fade in your function. Multiply it by `decay` first.",
            DECAY,
            (lambda state, decay: state,),
        ),
        "decay-the-other-way": (
            "Your function multiplies the matrix by `1 - decay`. A decay of 1 forgets nothing, and a decay "
            "of 0 forgets all.",
            DECAY,
            (lambda state, decay: (1 - decay) * state,),
        ),
        "exp-of-the-decay": (
            "Your function multiplies the matrix by `exp(decay)`, as if `decay` was a logarithm. Multiply it "
            "by `decay`.",
            DECAY,
            (lambda state, decay: math.exp(decay) * state,),
        ),
        "fades-too-late-or-twice": (
            "Your function multiplies the old matrix by the square of `decay`. It fades once in a step.",
            DECAY,
            (lambda state, decay: decay * decay * state,),
        ),
    },
    "found": {
        "only-adds": (
            "Your function erases nothing: it adds a part of the value to what the key reads already.",
            STEP,
            (lambda key, state, faded: torch.zeros_like(key @ faded),),
        ),
        "read-before-the-decay": (
            "Your function reads what the key finds in the matrix before it has faded. So it erases too "
            "much. Let the matrix fade first, and then read it.",
            STEP,
            (lambda key, state, faded: key @ state,),
        ),
    },
    "wrote": {
        "rate-ignored": (
            "Your function replaces what the key reads, whatever `rate` is.",
            STEP,
            (lambda rate, value, found: value - found,),
        ),
        "erases-all": (
            "Your function erases all that the key reads, and writes only the share `rate` of the value. "
            "The same share is erased and written.",
            STEP,
            (lambda rate, value, found: rate * value - found,),
        ),
        "writes-all": (
            "Your function erases only the share `rate` of what the key reads, and writes the whole value. "
            "The same share is erased and written.",
            STEP,
            (lambda rate, value, found: value - rate * found,),
        ),
        "sign-of-what-was-found": (
            "Your function adds what the key reads once more. Subtract it from the value.",
            STEP,
            (lambda rate, value, found: rate * (value + found),),
        ),
        "value-taken-from-what-was-found": (
            "Your function writes what the key reads minus the value. Write the value minus what the key "
            "reads.",
            STEP,
            (lambda rate, value, found: rate * (found - value),),
        ),
        "rate-the-other-way": (
            "Your function erases and writes the share `1 - rate`. With `rate = 1`, the value replaces "
            "what was there.",
            STEP,
            (lambda rate, value, found: (1 - rate) * (value - found),),
        ),
    },
    "joined": {
        "old-matrix-lost": (
            "Your function returns only what this token writes, without the matrix of the tokens before.",
            STEP,
            (lambda faded, written, decay: written,),
        ),
        "write-fades-too": (
            "In your function, what the token writes also fades in the same step. Only the old matrix does.",
            DECAY,
            (lambda faded, written, decay: faded + decay * written,),
        ),
    },
}
EXERCISE = Exercise(
    answer=delta_step,
    chapter="16_a_state_in_place_of_a_cache",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS, pairs=False),
        "fades-at-the-end": Mistake(
            "In your function the token reads and writes first, and then all fades. Let the old matrix fade "
            "first.",
            DECAY,
            (lambda state, key, value, rate, decay: decay * delta_step(state, key, value, rate, 1.0),),
        ),
        "key-divided-by-its-length": Mistake(
            "Your function divides the key by its length first. Use the key as it is.",
            STEP,
            (lambda state, key, value, rate, decay: delta_step(state, key / key.norm(), value, rate, decay),),
        ),
        "rate-and-decay-exchanged": Mistake(
            "Your function uses `rate` as the decay, and `decay` as the rate.",
            STEP,
            (lambda state, key, value, rate, decay: delta_step(state, key, value, decay, rate),),
        ),
    },
    same_as=(delta_rule, delta_rule_chunked),
)
