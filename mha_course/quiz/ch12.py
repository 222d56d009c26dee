"""Questions of chapter 12: which key a head uses, how far windows reach, what a published model keeps."""

import torch

from mha_course.chapters.published import MODELS, Published
from mha_course.quiz import Question, from_mistakes

MIB, GIB = 2**20, 2**30
PUBLISHED = "8 What published models keep"


def kv_head_of(rng):
    """The key and value head that a query head uses."""
    heads, kv, h = (8, 4, 6) if rng is None else _EXAMPLES[rng.below(len(_EXAMPLES))]
    group = heads // kv
    numbers = torch.arange(kv).view(1, kv, 1, 1)  # each key holds the number of its head
    answer, wrong = from_mistakes(
        "repeat_heads",
        (numbers, heads),
        {
            "whole-list-repeated": (
                f"KV head {h % kv} belongs to the query heads {h % kv * group} to {(h % kv + 1) * group - 1}."
            ),
            "divided-by-the-number-of-heads": (
                f"You divide by {kv}, the number of KV heads. Divide by the size of a group."
            ),
        },
        lambda repeated: float(repeated[0, h, 0, 0]),
    )
    return Question(
        text=f"A layer has {heads} query heads and {kv} KV heads. Neighbouring query heads form a group. "
        "Each group shares one KV head. All heads are counted from 0. "
        f"Which KV head does query head {h} use?",
        answer=answer,
        wrong=wrong | {"You count from 1, and the heads are counted from 0.": answer + 1},
        because=f"A group has {heads} / {kv} = {group} query heads, and {h} // {group} = {h // group}.",
        section="2 One key for several query heads",
    )


_EXAMPLES = [
    (heads, kv, h)
    for heads, kv in ((8, 4), (12, 6), (16, 8), (18, 6), (20, 5))
    for h in range(heads)
    if len({h // (heads // kv), h % kv, h // kv, h // (heads // kv) + 1}) == 4
]


def window_reach(rng):
    """How far back several layers with a window reach."""
    layers, window = (3, 4) if rng is None else (3 + rng.below(4), 4 + rng.below(6))
    one = window - 1
    return Question(
        text=f"A model has {layers} layers. In each of them a query sees {window} keys: its own, and the "
        f"{one} before it. The output of the last layer at some token depends on this token and on "
        "earlier ones. How many tokens back is the earliest of them?",
        answer=float(layers * one),
        wrong={
            f"One of the {window} keys is the query's own. So a layer reaches {one} tokens back.": (
                float(layers * window)
            ),
            "This is the reach of one layer. The tokens that it sees have seen others in the layer below.": (
                float(one)
            ),
            "Each layer adds its reach to the reach of the layers below. It does not multiply it.": (
                float(one**layers)
            ),
        },
        because=f"Each of the {layers} layers adds {one}.",
        section="4 Only the last tokens",
    )


def _bytes(model: Published, n: int, ideas: dict[str, str], unit: int) -> tuple[float, dict[str, float]]:
    """What a model keeps, in ``unit`` bytes, by the exercise ``cache_bytes`` and some of its mistakes."""
    sizes = model.num_layers, model.num_windowed, model.window or n
    arguments = (*sizes, model.num_heads, model.num_kv_heads, model.d_k, n)
    return from_mistakes("cache_bytes", arguments, ideas, lambda kept: kept / unit)


def cache_of_shared_keys(rng):
    """The cache of a model whose heads share keys and values."""
    name, n = "Falcon 7B", 8192
    if rng is not None:
        name, n = rng.shuffled(("Llama 3 8B", "Qwen3 8B"))[0], (4096, 8192, 16384)[rng.below(3)]
    model = MODELS[name]
    kept, wrong = _bytes(
        model,
        n,
        {
            "all-query-heads": (
                f"You counted a key and a value for each of the {model.num_heads} heads. Heads that share a "
                "key need it only once."
            ),
            "keys-only": "Half is missing. Count keys and values, and 2 bytes for each number.",
        },
        MIB,
    )
    heads, shared = model.num_heads, model.num_kv_heads
    keys = "one key and one value" if shared == 1 else f"{shared} keys and {shared} values"
    return Question(
        text=f"{name} has {model.num_layers} layers with {heads} heads. But in each layer, a token has "
        f"only {keys}, which all heads share. Each key and each value is {model.d_k} wide, and a number "
        f"takes 2 bytes. How many MiB (1 MiB = 2^20 bytes) does the cache hold after {n} tokens?",
        answer=kept,
        wrong=wrong
        | {
            "This is the cache of one layer. Each layer has keys and values of its own.": (
                kept / model.num_layers
            ),
        },
        because=f"It is {n} tokens · {model.num_layers} layers · {2 * shared} (keys and values) · "
        f"{model.d_k} numbers of 2 bytes. With a key for each head it would be {heads // shared} times as "
        "much.",
        section=PUBLISHED,
    )


def cache_with_windows(rng):
    """The cache of a long text, if most layers see only a window."""
    name, n = "Gemma 3 12B", 131072
    if rng is not None:
        name, n = rng.shuffled(("Gemma 2 9B", "GPT-OSS 20B"))[0], (16384, 32768, 65536)[rng.below(3)]
    model = MODELS[name]
    full = model.num_layers - model.num_windowed
    kept, wrong = _bytes(
        model,
        n,
        {
            "window-ignored": (
                "You counted the whole text in all layers. A layer with a window forgets what no later query "
                "can see."
            ),
            "window-in-all-layers": (
                f"You counted the window in all layers. The {full} layers without one keep the whole text."
            ),
            "all-query-heads": (
                f"A token has {model.num_kv_heads} keys and {model.num_kv_heads} values in a layer, not "
                f"{model.num_heads} of each."
            ),
        },
        GIB,
    )
    return Question(
        text=f"{name} has {model.num_layers} layers. In {model.num_windowed} of them a query sees only the "
        f"last {model.window} tokens, and in the other {full} it sees all tokens. Each layer has "
        f"{model.num_heads} heads, which share {model.num_kv_heads} keys and {model.num_kv_heads} values for "
        f"each token. Each key and each value is {model.d_k} wide, and a number takes 2 bytes. How many "
        f"GiB (1 GiB = 2^30 bytes) does the cache "
        f"hold after {n} tokens?",
        answer=kept,
        wrong=wrong,
        because=f"The {full} layers that see everything keep {n} tokens each, and the {model.num_windowed} "
        f"others keep {model.window} each.",
        section=PUBLISHED,
    )
