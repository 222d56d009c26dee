"""Questions of chapter 08: what a layer computes and keeps, and the softmax in one pass."""

import math

import torch

from mha_course.quiz import Idea, Question, from_mistakes


def crossing(rng):
    """The length from which on the part with n² is the larger one."""
    d_model, num_heads = 512, 8
    if rng is not None:
        d_model, num_heads = 64 * (2, 3, 4, 6)[rng.below(4)], (4, 8)[rng.below(2)]
    n = 1024  # any length: the count of a layer has a part with n, which is known, and a part with n²
    projections = 8 * n * d_model**2
    answer, wrong = from_mistakes(
        "predict_flops",
        (n, n, d_model, num_heads),
        ["scores-halved", "one-head"],
        lambda flops: float(n * projections / (flops - projections)),
    )
    one_product, one_head = wrong.values()
    return Question(
        text=f"A layer has d_model = {d_model} and {num_heads} heads. For which n do the scores and the "
        "weighted sum together take as many FLOPs as the four projections?",
        answer=answer,
        wrong={
            Idea(
                "You compared the scores alone with the four projections. The weighted sum takes as many "
                "FLOPs as the scores.",
                "scores-halved",
            ): one_product,
            "You compared one projection with the scores. Count all four projections, and the weighted sum, "
            "too.": float(d_model),
            Idea(
                "Here the scores and the weighted sum are of one head only. All heads together are d_model "
                "wide.",
                "one-head",
            ): one_head,
        },
        because="The equation 8 n d_model² = 4 n² d_model has the solution n = 2 d_model. The number of "
        "heads does not matter.",
        section="1 Count the operations",
    )


def bytes_of_weights(rng):
    """The memory of one layer's weights."""
    n, num_heads = 4096, 8
    if rng is not None:
        n, num_heads = (2048, 4096, 8192)[rng.below(3)], (8, 16)[rng.below(2)]
    d_model, mib = 64 * num_heads, 2**20
    return Question(
        text=f"One sentence has n = {n} tokens. The layer has d_model = {d_model} and {num_heads} heads, and "
        "each number takes 4 bytes. How many MiB (1 MiB = 2^20 bytes) do all its attention weights take?",
        answer=4 * num_heads * n**2 / mib,
        wrong={
            "These are the weights of one head. Each head has its own weights.": 4 * n**2 / mib,
            "This counts the numbers, in units of 2^20. Each of them takes 4 bytes.": num_heads * n**2 / mib,
            "These are millions of bytes. A MiB has 2^20 = 1,048,576 bytes.": 4 * num_heads * n**2 / 10**6,
            "These are bytes. A MiB has 2^20 of them.": 4.0 * num_heads * n**2,
            "This is the size of the input, with one row of d_model numbers for each token. The weights have "
            "one number for each pair of tokens, in each head.": 4 * n * d_model / mib,
        },
        because=f"Each of the {num_heads} heads has n² = {n**2:,} weights of 4 bytes.",
        section="2 Count the bytes",
    )


def third_key(rng):
    """One more key for the running sums."""
    seen, new = ((1, 10.0), (4, 20.0)), (2, 30.0)
    if rng is not None:
        weights = rng.shuffled((1, 2, 4, 8))[:3]
        values = rng.shuffled((10.0, 20.0, 30.0, 40.0))[:3]
        *seen, new = zip(weights, values, strict=True)
    highest = max(weight for weight, _ in seen)
    total = sum(weight for weight, _ in seen) / highest
    output = sum(weight * value for weight, value in seen) / highest

    def column(*numbers):
        return [torch.tensor([[number]], dtype=torch.float64) for number in numbers]

    raises = new[0] > highest
    forgotten = "the old one is not corrected" if raises else "the new key is added with the weight 1"
    answer, wrong = from_mistakes(
        "merge_blocks",
        (*column(math.log(highest), total, output), *column(math.log(new[0]), 1.0, new[1])),
        {
            "not-corrected": "Here the old sums are not corrected. They were computed with the old m."
            if raises
            else "Here the new key has the weight 1. But its score is below m.",
            "corrections-exchanged": "Here the new key is corrected. The old sums need the correction: they "
            "were computed with the old m."
            if raises
            else "Here the old sums are corrected. But m does not grow, so they need no correction.",
            "sum-not-corrected": f"The o is right. But in l, {forgotten}.",
            "output-not-corrected": f"The l is right. But in o, {forgotten}.",
        },
        lambda result: f"l = {result[1].item():.4g}, o = {result[2].item():.4g}",
    )
    return Question(
        text=f"Two keys have been processed for one query. So far, m = ln {highest}, l = {total:.4g}, "
        f"o = {output:.4g}. The third key has the score ln {new[0]} and the value {new[1]:.0f}. What are l "
        "and o after it?",
        answer=answer,
        wrong=wrong,
        because=f"The new key raises m, so both sums are multiplied by {highest}/{new[0]}, and the new "
        "key has the weight 1."
        if raises
        else f"The new key does not raise m, so its weight is {new[0]}/{highest} and the sums are not "
        "corrected.",
        section="3 The softmax in one pass",
    )


def growth_of_blocked(rng):
    """How the time and the memory of attention in blocks grow with the text."""
    times, block = 2, 64
    if rng is not None:
        times, block = 2 + rng.below(4), (32, 64, 128)[rng.below(3)]
    square = times**2

    def shown(time, memory):
        return f"time {time} times, memory {memory} times"

    return Question(
        text=f"A function computes attention and takes {block} keys at a time. After each block, it "
        f"updates m, l and o and forgets the scores. Now the text is {times} times as long, with blocks of "
        "the same size. By about what factors do the time and the peak memory of the function grow?",
        answer=shown(square, times),
        wrong={
            f"There are {times} times as many blocks, but also {times} times as many queries: all n² scores "
            "are computed.": shown(times, times),
            "This is the growth of a function that keeps its weights. It has n² weights for each "
            "head.": shown(square, square),
            "You swapped them: all n² scores are computed, but not kept.": shown(times, square),
        },
        because=f"All n² scores are still computed: the time is about {square} times as large. But each "
        "query keeps only m, l and o, and forgets its scores.",
        section="5 Measure",
    )
