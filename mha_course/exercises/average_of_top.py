"""Chapter 00: a weighted average of the tokens with the largest weights alone."""

import torch

from mha_course.exercises import Exercise, Mistake


def average_of_top(weights, values, k):
    """``(n_k,)``, ``(n_k, d_v)`` and the number ``k`` to ``(d_v,)``."""
    kept, where = weights.topk(k)
    return kept / kept.sum() @ values[where]


def _problems(rng):
    values = torch.tensor([[2.0, 1.0, 0.0], [0.0, 8.0, 4.0], [5.0, 5.0, 5.0], [8.0, 0.0, 12.0]])
    yield torch.tensor([0.1, 0.2, 0.1, 0.6]), values, 2
    # Three equal weights, of which one is kept. Their values are equal too, so it does not matter which.
    yield torch.tensor([0.2, 0.1, 0.2, 0.3, 0.2]), values[[0, 1, 0, 3, 0]], 2
    for n_k, d_v, k in ((5, 2, 3), (7, 3, 5), (6, 1, 4), (11, 5, 1), (1000, 64, 20), (1000, 64, 3)):
        yield (2 * rng.normal(n_k)).softmax(0), rng.normal(n_k, d_v), k


def _renewed(kept):
    return kept / kept.sum()


def _top(w, v, k):
    kept, where = w.topk(k)
    return kept, v[where]


def _not_below(w, k):
    """0 in place of the weights that are smaller than the k-th largest."""
    return torch.where(w >= w.topk(k).values[-1], w, torch.zeros_like(w))


def _first(w, v, m):
    """The first m of the tokens, from the largest weight to the smallest."""
    where = w.argsort(descending=True)[:m]
    return w[where], v[where]


def _smallest(w, v, k):
    where = w.argsort()[:k]
    return w[where], v[where]


def _by(make):
    """A function that gets the kept weights, their values and ``k``."""
    return lambda w, v, k: make(*_top(w, v, k), k)


RULES, HEATMAP = "Three rules that cover all the shapes", "4 The first heatmap"
EXERCISE = Exercise(
    answer=average_of_top,
    chapter="00_start_here",
    section=HEATMAP,
    points=2,
    problems=_problems,
    mistakes={
        "not-sum-1": Mistake(
            "Your function keeps the right weights, but they do not sum to 1 any more: the weights that were "
            "left out are missing.",
            HEATMAP,
            (_by(lambda kept, v, k: kept @ v),),
        ),
        "equal-weights-kept": Mistake(
            "Your function keeps all weights that are equal to the k-th largest, so there can be more than "
            "k. Keep exactly k.",
            HEATMAP,
            (lambda w, v, k: _renewed(_not_below(w, k)) @ v,),
        ),
        "equal-weights-kept-and-not-sum-1": Mistake(
            "Your function keeps the largest weights, but they do not sum to 1 any more: the weights that "
            "were left out are missing. And: it keeps all weights that are equal to the k-th largest, so "
            "there can be more than k.",
            HEATMAP,
            (lambda w, v, k: _not_below(w, k) @ v,),
        ),
        "one-token-too-few": Mistake(
            "Your function keeps k - 1 tokens, one too few. The slice `[:k]` has k entries.",
            HEATMAP,
            (lambda w, v, k: _renewed(_first(w, v, k - 1)[0]) @ _first(w, v, k - 1)[1],),
        ),
        "one-token-too-many": Mistake(
            "Your function keeps k + 1 tokens, one too many. The slice `[:k]` has k entries.",
            HEATMAP,
            (lambda w, v, k: _renewed(_first(w, v, k + 1)[0]) @ _first(w, v, k + 1)[1],),
        ),
        "values-on-the-left": Mistake(
            "Your product has the values on the left, so it would sum over d_v. To sum over the tokens, put "
            "the weights on the left.",
            RULES,
            (_by(lambda kept, v, k: v @ _renewed(kept)), _by(lambda kept, v, k: v @ kept)),
        ),
        "plain-mean": Mistake(
            "Your function returns the plain mean of the kept values: the weights only choose them.",
            HEATMAP,
            (_by(lambda kept, v, k: v.mean(0)),),
        ),
        "plain-sum": Mistake(
            "Your function adds up the kept values as they are: the weights only choose them.",
            HEATMAP,
            (_by(lambda kept, v, k: v.sum(0)),),
        ),
        "divided-by-k": Mistake(
            "Your function divides the weighted sum by k. The kept weights do not sum to k.",
            HEATMAP,
            (_by(lambda kept, v, k: kept @ v / k), _by(lambda kept, v, k: _renewed(kept) @ v / k)),
        ),
        "softmax-of-the-weights": Mistake(
            "Your function takes a softmax of the kept weights. They sum to 1 then, but their ratios are "
            "not those of the weights.",
            HEATMAP,
            (_by(lambda kept, v, k: kept.softmax(0) @ v),),
        ),
        "rest-shared-equally": Mistake(
            "Your function shares out what is missing to 1, the same amount to each kept weight. So a small "
            "weight grows more, for its size, than a large one, and the ratios change.",
            HEATMAP,
            (_by(lambda kept, v, k: (kept + (1 - kept.sum()) / k) @ v),),
        ),
        "all-tokens": Mistake(
            "Your function returns the weighted average of all tokens: k is not used.",
            HEATMAP,
            (lambda w, v, k: w @ v,),
        ),
        "plain-mean-of-any": Mistake(
            "Your function returns the plain mean of all values, or of the first k: the weights are not "
            "used.",
            HEATMAP,
            (lambda w, v, k: v.mean(0), lambda w, v, k: v[:k].mean(0)),
        ),
        "first-k-tokens": Mistake(
            "Your function uses the first k tokens. The largest weights can be anywhere.",
            HEATMAP,
            (lambda w, v, k: _renewed(w[:k]) @ v[:k], lambda w, v, k: w[:k] @ v[:k]),
        ),
        "first-k-values": Mistake(
            "Your function finds the largest weights, but multiplies them by the first k values. Each weight "
            "belongs to the value of its own token.",
            RULES,
            (
                lambda w, v, k: _renewed(w.topk(k).values) @ v[:k],
                lambda w, v, k: w.topk(k).values @ v[:k],
            ),
        ),
        "smallest-weights": Mistake(
            "Your function keeps the k smallest weights.",
            HEATMAP,
            (
                lambda w, v, k: _renewed(_smallest(w, v, k)[0]) @ _smallest(w, v, k)[1],
                lambda w, v, k: _smallest(w, v, k)[0] @ _smallest(w, v, k)[1],
            ),
        ),
        "largest-only": Mistake(
            "Your function returns the value with the largest weight: k is not used.",
            HEATMAP,
            (lambda w, v, k: v[w.argmax()],),
        ),
        "weights-returned": Mistake(
            "Your function returns the kept weights. They are not applied to the values yet.",
            HEATMAP,
            (_by(lambda kept, v, k: _renewed(kept)), _by(lambda kept, v, k: kept)),
        ),
        "not-summed": Mistake(
            "Your function multiplies each kept row by its weight, but does not add the rows up.",
            RULES,
            (
                _by(lambda kept, v, k: _renewed(kept)[:, None] * v),
                _by(lambda kept, v, k: kept[:, None] * v),
            ),
        ),
        "one-row-of-a-matrix": Mistake(
            "Your result has an axis of length 1 too many; it should be (d_v,).",
            RULES,
            (
                _by(lambda kept, v, k: (_renewed(kept) @ v)[None]),
                _by(lambda kept, v, k: (_renewed(kept) @ v)[:, None]),
            ),
        ),
        "largest-values": Mistake(
            "Your function takes the k largest numbers of each column of values. The weights say which "
            "tokens are kept, not the values.",
            HEATMAP,
            (lambda w, v, k: _renewed(w.topk(k).values) @ v.topk(k, dim=0).values,),
        ),
    },
)
