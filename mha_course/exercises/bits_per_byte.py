"""Chapter 10: losses of two models that cut the same text into different tokens, made comparable."""

import math

from mha_course.exercises import Exercise, deviations

LOSS = "1 Texts with a known best loss"


def bits_per_byte(loss, num_tokens, num_bytes):
    """Bits that a model needs for each byte of a text; ``loss`` is its mean loss in nats per token."""
    return loss * num_tokens / (num_bytes * math.log(2))


def _problems(rng):
    yield math.log(4), 3, 6
    yield math.log(8), 10, 15
    for _ in range(4):
        num_tokens = 100_000 + rng.below(300_000)
        num_bytes = 3 * num_tokens + rng.below(2 * num_tokens)
        yield 2.2 + rng.below(1500) / 1000, num_tokens, num_bytes


def _build(bits=lambda nats: nats / math.log(2), share=lambda tokens, size: tokens / size):
    return lambda loss, num_tokens, num_bytes: bits(loss) * share(num_tokens, num_bytes)


KNOBS = {
    "bits": {
        "nats": ("Your result is in nats. One nat is `1 / log 2` bits.", LOSS, (lambda nats: nats,)),
        "multiplied-by-log-2": (
            "You multiply by `log 2`. A bit is smaller than a nat, so there are more bits than nats: divide.",
            LOSS,
            (lambda nats: nats * math.log(2),),
        ),
        "base-10": (
            "You divide by `log 10`. This would be right for digits. A bit has two possible values.",
            LOSS,
            (lambda nats: nats / math.log(10),),
        ),
        "divided-by-2": (
            "You divide by 2. To get from nats to bits, divide by the natural logarithm of 2.",
            LOSS,
            (lambda nats: nats / 2,),
        ),
        "logarithm-of-the-loss": (
            "You take the logarithm of the loss. The loss is already the mean of `-log p`.",
            LOSS,
            (lambda nats: math.log2(nats), lambda nats: math.log(nats)),
        ),
        "perplexity": (
            "You take exp of the loss, which is called perplexity. The loss itself is needed.",
            LOSS,
            (lambda nats: math.exp(nats), lambda nats: math.exp(nats) / math.log(2)),
        ),
    },
    "share": {
        "bytes-per-token": (
            "You multiply by the number of bytes in a token. A byte is a part of a token, so it needs fewer "
            "bits than a token.",
            LOSS,
            (lambda tokens, size: size / tokens,),
        ),
        "per-token": (
            "Your result is for each token. The text has fewer tokens than bytes.",
            LOSS,
            (lambda tokens, size: 1,),
        ),
        "whole-text": (
            "Your result is for the whole text. Divide by the number of bytes.",
            LOSS,
            (lambda tokens, size: tokens,),
        ),
        "loss-as-a-sum": (
            "You use `loss` as if it were the loss of the whole text. It is the mean over the tokens.",
            LOSS,
            (lambda tokens, size: 1 / size, lambda tokens, size: 1 / tokens),
        ),
        "divided-by-both": (
            "You divide by the number of tokens. The loss is already a mean over the tokens, so multiply.",
            LOSS,
            (lambda tokens, size: 1 / (tokens * size),),
        ),
        "per-bit": (
            "You divide by 8, the number of bits in a byte. The result is asked for each byte.",
            LOSS,
            (lambda tokens, size: tokens / (8 * size),),
        ),
        "times-8": (
            "You multiply by 8, the number of bits in a byte. That many bits would store the byte itself.",
            LOSS,
            (lambda tokens, size: 8 * tokens / size,),
        ),
        "whole-division": (
            "You divide with `//`, which cuts off everything behind the point. Use `/`.",
            LOSS,
            (lambda tokens, size: tokens // size,),
        ),
    },
}
EXERCISE = Exercise(
    answer=bits_per_byte,
    chapter="10_small_language_model",
    section=LOSS,
    points=1,
    problems=_problems,
    mistakes=deviations(_build, KNOBS),
)
