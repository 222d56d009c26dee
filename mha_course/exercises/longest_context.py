"""Chapter 08: how many tokens of keys and values fit into the memory."""

import math

from mha_course.exercises import Exercise, Mistake, deviations


def longest_context(room, num_layers, num_heads, d_k, bytes_per_number):
    """The largest number of tokens whose keys and values take at most ``room`` bytes."""
    one_token = 2 * num_layers * num_heads * d_k * bytes_per_number  # a key and a value
    return room // one_token


def _problems(rng):
    yield 500, 3, 2, 5, 2  # 4.17 tokens
    yield 700, 2, 5, 3, 4  # 2.92 tokens
    yield 1540, 2, 5, 7, 1  # 11 tokens exactly
    yield 90, 5, 2, 3, 2  # less than one
    yield 2**30, 12, 12, 64, 4  # GPT-2 in float32
    yield 10 * 10**9, 32, 32, 128, 2  # Llama 2 7B
    yield 24 * 10**9, 40, 40, 128, 1  # Llama 2 13B, in 8 bits
    yield 40 * 2**30, 96, 96, 128, 2  # GPT-3
    for size in (2, 4):
        num_layers, num_heads, d_k = rng.primes(3)
        one_token = 2 * num_layers * num_heads * d_k * size
        yield (20 + rng.below(1000)) * one_token + rng.below(one_token), num_layers, num_heads, d_k, size


def _build(
    kinds=2,
    layers=lambda count: count,
    heads=lambda count: count,
    width=lambda d_k: d_k,
    size=lambda count: count,
    fit=lambda room, one_token: room // one_token,
):
    return lambda room, num_layers, num_heads, d_k, bytes_per_number: fit(
        room, kinds * layers(num_layers) * heads(num_heads) * width(d_k) * size(bytes_per_number)
    )


STEP = "2 Count the bytes"
KNOBS = {
    "kinds": {
        "keys-only": ("You count only the keys or only the values; both are kept.", STEP, (1,)),
        "queries-kept": (
            "You count three vectors for each token. Keys and values are kept, and queries are not.",
            STEP,
            (3,),
        ),
    },
    "layers": {
        "one-layer": (
            "You count one layer: each has keys and values of its own.",
            STEP,
            (lambda count: 1,),
        ),
    },
    "heads": {
        "one-head": ("You count one head: each has keys and values of its own.", STEP, (lambda count: 1,)),
        "heads-counted-twice": (
            "You multiply by num_heads twice. `num_heads * d_k` is the width of all heads together.",
            STEP,
            (lambda count: count * count,),
        ),
    },
    "width": {
        "width-left-out": (
            "You count a key as one number: it has d_k numbers.",
            STEP,
            (lambda d_k: 1,),
        ),
        "width-squared": (
            "You count d_k * d_k numbers for a key: it is a vector of d_k numbers.",
            STEP,
            (lambda d_k: d_k * d_k,),
        ),
    },
    "size": {
        "numbers-not-bytes": (
            "You count numbers as if each took one byte: `bytes_per_number` is not in your count.",
            STEP,
            (lambda count: 1,),
        ),
        "bits": (
            "You count 8 times too many bytes for a number. `room` is in bytes, so no bits are needed.",
            STEP,
            (lambda count: 8 * count, lambda count: 8),
        ),
        "always-float32": (
            "You count 4 bytes for every number; `bytes_per_number` says how many it takes.",
            STEP,
            (lambda count: 4,),
        ),
        "always-float16": (
            "You count 2 bytes for every number; `bytes_per_number` says how many it takes.",
            STEP,
            (lambda count: 2,),
        ),
    },
    "fit": {
        "rounded-up": (
            "You round up: the last token then fits only in part.",
            STEP,
            (lambda room, one: -(-room // one),),
        ),
        "rounded-to-nearest": (
            "You round to the nearest whole number. If that is up, the last token fits only in part.",
            STEP,
            (lambda room, one: round(room / one),),
        ),
        "not-rounded": (
            "You do not round: part of a token cannot be kept.",
            STEP,
            (lambda room, one: room / one,),
        ),
        "one-token-fewer": (
            "You return one token fewer than fit.",
            STEP,
            (lambda room, one: room // one - 1,),
        ),
        "one-token-more": ("You return one token more than fit.", STEP, (lambda room, one: room // one + 1,)),
        "square-root": (
            "You take a square root, as for the table of weights. Each token has one key and one value in a "
            "head, however many tokens there are.",
            STEP,
            (
                lambda room, one: math.isqrt(room // one),
                lambda room, one: math.sqrt(room / one),
                lambda room, one: math.ceil(math.sqrt(room / one)),
            ),
        ),
        "what-is-left": (
            "You return the bytes that are left over; return the number of tokens.",
            STEP,
            (lambda room, one: room % one,),
        ),
        "bytes-of-one-token": (
            "You return the bytes of one token; how many times do they fit into `room`?",
            STEP,
            (lambda room, one: one,),
        ),
        "multiplied-by-room": (
            "You multiply the bytes of one token by `room`; how many times do they fit into it?",
            STEP,
            (lambda room, one: room * one,),
        ),
        "upside-down": (
            "You divide the bytes of one token by `room`; divide the other way.",
            STEP,
            (lambda room, one: one // room, lambda room, one: one / room),
        ),
    },
}


def _table(per_entry):
    """The longest square table, with ``per_entry`` bytes for an entry in all heads together."""
    return lambda room, layers, heads, d_k, size: math.isqrt(room // per_entry(layers, heads, size))


EXERCISE = Exercise(
    answer=longest_context,
    chapter="08_what_attention_costs",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS),
        "weights-instead": Mistake(
            "You count attention weights, n * n for each head, as in step 2. Here only keys and values are "
            "kept.",
            STEP,
            (
                _table(lambda layers, heads, size: layers * heads * size),
                _table(lambda layers, heads, size: heads * size),
                _table(lambda layers, heads, size: layers * heads * 4),
                _table(lambda layers, heads, size: heads * 4),
                _table(lambda layers, heads, size: 2 * layers * heads * size),
            ),
        ),
        "weights-as-well": Mistake(
            "You count the attention weights as well; here only keys and values are kept.",
            STEP,
            (
                # n² + 2 d_k n numbers in each head
                lambda room, layers, heads, d_k, size: (
                    math.isqrt(d_k * d_k + room // (layers * heads * size)) - d_k
                ),
            ),
        ),
    },
)
