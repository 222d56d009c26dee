"""Chapter 01: which key gets the most from all queries together, in each head of a layer of real size."""

from collections import Counter

import torch

from mha_course.exercises import Exercise, Mistake

WEIGHTS = "3 Weights: from scores to numbers that sum to 1"
SCORES = "2 Scores: how well does each query match each key?"
ALL = 4096  # weights are whole multiples of 1 / ALL: sums are exact, whatever the order


def most_attended_keys(weights):
    """``(num_heads, n_q, n_k)`` to the key of each head with the largest total weight, ``(num_heads,)``."""
    return weights.sum(dim=-2).argmax(dim=-1)


def _layer(rng, num_heads, n_q, n_k):
    """Weights as of a trained layer: in each head, all queries but the last give something to one key.

    In half of the heads this key is never first: a quarter of the queries prefer another one, and each of the
    others a key of its own.
    """
    heads = []
    for number in range(num_heads):
        most, often, *others = rng.shuffled(range(1, n_k))
        counts = torch.softmax(rng.normal(n_q, n_k).double(), dim=-1).mul(ALL * 0.2).floor()
        for query in range(n_q if number % 2 else 0):
            first = often if query % 4 == 1 else others[query % len(others)]
            # Query 2 has the largest single weight of the head.
            counts[query, first] += ALL * (0.65 if query == 2 else 0.45 + 0.01 * (query % 5))
        counts = counts.floor()
        counts[:, most] += ALL - counts.sum(dim=-1)
        counts[-1, others[0]] += counts[-1, most]
        counts[-1, most] = 0
        heads.append(counts / ALL)
    return torch.stack(heads).float()


def _problems(rng):
    yield (torch.tensor([[[0.6, 0.4, 0.0], [0.0, 0.4, 0.6]], [[0.2, 0.0, 0.8], [0.6, 0.0, 0.4]]]),)
    yield (_layer(rng, 12, 64, 64),)
    yield (_layer(rng, 16, 50, 77),)
    yield (_layer(rng, 4, 128, 96),)
    yield (_layer(rng, 1, 5, 7),)


def _votes(weights):
    """The key that is first for the most queries; of several, the one that comes first."""
    rows = weights.argmax(dim=-1).tolist()
    return torch.tensor([Counter(row).most_common(1)[0][0] for row in rows])


EXERCISE = Exercise(
    answer=most_attended_keys,
    chapter="01_single_head_attention",
    section=WEIGHTS,
    points=2,
    problems=_problems,
    mistakes={
        "key-0-everywhere": Mistake(
            "The sums of the rows are all 1, and `argmax` returns the first of equal numbers, which is key "
            "0. Add up over the queries, not over the keys.",
            WEIGHTS,
            (lambda w: w.sum(-1).argmax(-1),),
        ),
        "one-query-only": Mistake(
            "Your function looks at one query only, in each head. Add up what a key gets from all queries.",
            SCORES,
            (lambda w: w[:, 0].argmax(-1), lambda w: w[:, -1].argmax(-1), lambda w: w[:, 1].argmax(-1)),
        ),
        "largest-single-weight": Mistake(
            "Your function finds the key of the largest single weight. Add up the weights of each key first.",
            WEIGHTS,
            (
                lambda w: w.amax(-2).argmax(-1),
                lambda w: w.flatten(1).argmax(-1) % w.shape[-1],
            ),
        ),
        "smallest-single-weight": Mistake(
            "Your function compares the smallest weight of each key. Add up all weights of each key first.",
            WEIGHTS,
            (lambda w: w.amin(-2).argmax(-1),),
        ),
        "counted-firsts": Mistake(
            "Your function counts for how many queries a key is first. Add up the weights themselves: small "
            "weights from many queries can be the larger total.",
            WEIGHTS,
            (
                lambda w: w.argmax(-1).mode(-1).values,
                _votes,
                lambda w: torch.nn.functional.one_hot(w.argmax(-1), w.shape[-1]).sum(-2).argmax(-1),
            ),
        ),
        "heads-together": Mistake(
            "Your function puts the heads together before it looks for a key. Each head has its own key.",
            SCORES,
            (
                lambda w: w.sum((0, 1)).argmax(),
                lambda w: w.sum((0, 1)).argmax()[None],
                lambda w: w.sum((0, 1)).argmax().repeat(len(w)),
                lambda w: w.sum(0).argmax(-1),
            ),
        ),
        "heads-compared": Mistake(
            "Your `argmax` compares the heads with each other. Compare the keys of one head.",
            SCORES,
            (
                lambda w: w.sum(-2).argmax(0),
                lambda w: w.sum(-2).argmax(),
                lambda w: w.argmax(0),
            ),
        ),
        "one-for-each-query": Mistake(
            "Your function returns a key for each query of a head. One key for each head is asked for.",
            SCORES,
            (lambda w: w.argmax(-1),),
        ),
        "one-for-each-key": Mistake(
            "Your function returns a query for each key of a head. One key for each head is asked for.",
            SCORES,
            (lambda w: w.argmax(-2),),
        ),
        "totals-returned": Mistake(
            "Your function returns what each key gets. Say which key gets the most.",
            WEIGHTS,
            (lambda w: w.sum(-2), lambda w: w.mean(-2)),
        ),
        "largest-total": Mistake(
            "Your function returns how much the best key gets, and not which key it is.",
            WEIGHTS,
            (lambda w: w.sum(-2).amax(-1), lambda w: w.mean(-2).amax(-1)),
        ),
        "both-returned": Mistake(
            "`max` with a `dim` returns two tensors: the largest numbers, and their indices.",
            WEIGHTS,
            (lambda w: w.sum(-2).max(-1), lambda w: w.mean(-2).max(-1)),
        ),
        "axis-kept": Mistake(
            "Your result has an axis of length 1 too many. It should be (num_heads,).",
            SCORES,
            (
                lambda w: w.sum(-2).argmax(-1)[:, None],
                lambda w: w.sum(-2).argmax(-1)[None],
            ),
        ),
        "counted-from-1": Mistake(
            "Each number of your result is larger by 1 than the index of the key. Python counts from 0.",
            WEIGHTS,
            (lambda w: w.sum(-2).argmax(-1) + 1,),
        ),
    },
)
