"""Chapter 07: the two heads of a layer of real size whose weights differ least."""

import torch

from mha_course.exercises import Exercise, Mistake, either
from mha_course.exercises._results import as_array

EQUAL = "8 Break it: heads that start equal"
LOOKS = "6 What the heads learned"
PARTS = 4096  # weights are whole multiples of 1 / PARTS: sums are exact, whatever the order


def most_similar_heads(weights):
    """``(num_heads, n_q, n_k)`` to the two heads with the smallest difference, ``(2,)``."""
    flat = weights.flatten(1)
    first, second = torch.triu_indices(len(flat), len(flat), offset=1)
    pair = (flat[first] - flat[second]).abs().sum(-1).argmin()
    return torch.stack([first[pair], second[pair]])


def _exact(weights):
    """The same weights, as whole multiples of 1 / PARTS that sum to 1."""
    counts = (weights * PARTS).floor()
    top = weights.argmax(-1, keepdim=True)
    return counts.scatter_add(-1, top, PARTS - counts.sum(-1, keepdim=True)).div(PARTS).float()


def _sharp(firsts, n_k):
    """Nearly all weight of each query on one key."""
    return 0.05 / n_k + 0.95 * torch.nn.functional.one_hot(firsts, n_k)


def _layer(rng, num_heads, n_q, n_k):
    """Weights as of a trained layer, in which other pairs are alike in other ways than the most similar one.

    The most similar pair differs on two keys of each query, and for three queries a lot. Another pair has the
    same first keys, another the same total for each key, and another the same sharp weights for many queries.
    Three pairs differ more in sum, but one has the smallest sum of squares, another the smallest largest
    difference, and another the smallest difference for the query where two heads differ most. The first
    query alone, and the last one alone, have other pairs that agree.
    """

    def scores():
        return rng.normal(n_q, n_k).double()

    alike, rows = torch.softmax(scores(), dim=-1), torch.arange(n_q)
    copy, top = alike.clone(), alike.argmax(-1)
    copy[rows, top] -= 0.03
    copy[rows, (top + 1 + rows % (n_k - 1)) % n_k] += 0.03
    copy[[0, n_q // 2, -1]] = _sharp(torch.tensor([rng.below(n_k) for _ in range(3)]), n_k).double()
    firsts = scores().argmax(-1)
    moved = torch.where((rows % 2 == 1) & (rows < n_q - 1), firsts, (firsts + n_k // 3) % n_k)
    same_firsts, same_totals, same_squares = scores(), torch.softmax(scores(), dim=-1), scores()
    strength = torch.where(rows % 5 < 2, 0.7, 0.02)[:, None]
    nearly = torch.softmax(same_squares + strength * scores(), dim=-1)
    nearly[1] = 0.7 * nearly[1] + 0.3 * torch.nn.functional.one_hot(nearly[1].argmin(), n_k)
    side = torch.where(scores() > 0, 0.9, -0.9)
    broad, two = 0.35 * torch.softmax(scores(), dim=-1), torch.stack([scores().argmax(-1) for _ in "ab"])
    two[1] += two[0] == two[1]
    two = torch.nn.functional.one_hot(two % n_k, n_k)
    heads = [
        alike,
        copy,
        torch.softmax(0.5 * same_firsts, dim=-1),
        torch.softmax(torch.where(rows == 0, 0.5, 6.0)[:, None] * same_firsts, dim=-1),
        same_totals,
        same_totals[torch.tensor([*rng.shuffled(range(n_q - 1)), n_q - 1])],
        _sharp(firsts, n_k),
        _sharp(moved, n_k),
        torch.softmax(same_squares, dim=-1),
        nearly,
        (1 + side) / (1 + side).sum(-1, keepdim=True),
        (1 - side) / (1 - side).sum(-1, keepdim=True),
        broad + 0.45 * two[0] + 0.2 * two[1],
        broad + 0.2 * two[0] + 0.45 * two[1],
    ]
    heads += [torch.softmax((1 + number % 3) * scores(), dim=-1) for number in range(num_heads - len(heads))]
    order = rng.shuffled(range(num_heads))
    while abs(order.index(0) - order.index(1)) == 1 or order[0] < 2:
        order = rng.shuffled(range(num_heads))  # the pair is not 0 and 1, nor two neighbours; 0 is not in it
    return _exact(torch.stack([heads[number] for number in order]))


def _problems(rng):
    last = [0.25, 0.75]
    yield (torch.tensor([[[1.0, 0.0], last], [[0.625, 0.375], last], [[0.375, 0.625], last]]),)
    yield (_layer(rng, 14, 128, 128),)
    yield (_layer(rng, 16, 64, 64),)
    yield (_layer(rng, 15, 50, 77),)
    twins = _layer(rng, 6, 8, 8)
    twins[4] = twins[1]  # the difference is 0
    yield (twins,)
    yield (torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]),)  # no two heads differ more


def _table(compare):
    """A number for each pair of heads, ``(num_heads, num_heads)``; infinity on the diagonal."""

    def table(weights):
        numbers = torch.stack([torch.stack([compare(one, other) for other in weights]) for one in weights])
        return numbers.fill_diagonal_(torch.inf)

    return table


def _pair(compare, place=torch.argmin):
    """The pair for which ``compare`` returns the smallest number."""

    def answer(weights):
        numbers = _table(compare)(weights.double())
        found = place(numbers).item()
        return torch.tensor(sorted(divmod(found, len(weights))))

    return answer


def _difference(one, other):
    return (one - other).abs().sum()


def _squares(one, other):
    return (one - other).square().sum()


def _cosine(one, other):
    return -(one * other).sum() / (one.norm() * other.norm())


def _correlation(one, other):
    return _cosine(one - one.mean(), other - other.mean())


def _divergence(one, other):
    """Of Jensen and Shannon."""
    middle = (one + other) / 2
    return torch.special.entr(middle).sum() - (torch.special.entr(one) + torch.special.entr(other)).sum() / 2


def _hellinger(one, other):
    return (one.sqrt() - other.sqrt()).square().sum()


def _one_sided(one, other, least=1e-9):
    """The divergence of Kullback and Leibler, which sees one of the two heads from the other."""
    return (one * ((one + least) / (other + least)).log()).sum()


ONE_SIDED = _one_sided, lambda one, other: _one_sided(other, one)


def _all(weights):
    """The difference of each pair of different heads, smallest pair first."""
    first, second = torch.triu_indices(len(weights), len(weights), offset=1)
    return (weights[first] - weights[second]).abs().sum((1, 2))


def _neighbours(weights):
    at = (weights[1:] - weights[:-1]).abs().sum((1, 2)).argmin()
    return torch.stack([at, at + 1])


def _from_0(weights):
    return (weights - weights[0]).abs().sum((1, 2))


def _explains(problems, results):
    """How much the returned heads differ, if each result is a pair of heads."""
    wrong = []
    for (weights,), result in zip(problems, results, strict=True):
        array, right = as_array(result), most_similar_heads(weights).tolist()
        if array is None or array.shape != (2,) or array.dtype.kind not in "iuf":
            return None
        if array[0] not in range(len(weights)) or array[1] not in range(len(weights)) or array[0] == array[1]:
            return None
        if sorted(array.tolist()) != right:
            wrong.append((weights, [int(number) for number in array], right))
    if not wrong:
        return None
    weights, (i, j), (first, second) = min(wrong, key=lambda case: case[0].numel())
    one, other = (_difference(weights[a], weights[b]).item() for a, b in ((i, j), (first, second)))
    if one - other < 0.005:  # they differ only in what is printed as the same number
        return None
    return (
        "another-pair",
        f"In the example below, heads {i} and {j} differ by {one:.2f}, added up over all queries and keys. "
        f"Heads {first} and {second} differ by {other:.2f} only.",
    )


RIGHT = _pair(_difference)
EXERCISE = Exercise(
    answer=most_similar_heads,
    chapter="07_why_more_heads",
    section=EQUAL,
    points=2,
    problems=_problems,
    explains=_explains,
    mistakes={
        "a-head-and-itself": Mistake(
            "In your function, a head that is compared with itself, or a place of a table that belongs to no "
            "pair, has the difference 0, and 0 is the smallest. Only pairs of different heads may count.",
            EQUAL,
            (lambda w: torch.tensor([0, 0]),),
        ),
        "signs-cancel": Mistake(
            "Your function adds up the differences with their signs. Each row of weights sums to 1, so the "
            "sum is 0 for every pair. Use the size of each difference.",
            EQUAL,
            (lambda w: torch.tensor([0, 1]),),
        ),
        "first-keys-only": Mistake(
            "Your function compares only which key has the largest weight for each query, or how large that "
            "weight is. Two heads can agree in this and have very different weights elsewhere.",
            EQUAL,
            (
                _pair(lambda a, b: (a.argmax(-1) != b.argmax(-1)).double().sum()),
                _pair(lambda a, b: (a.amax(-1) - b.amax(-1)).abs().sum()),
            ),
        ),
        "queries-added-up": Mistake(
            "Your function adds up the queries before it compares. Then it no longer matters which query "
            "gave the weight. Compare first.",
            LOOKS,
            (_pair(lambda a, b: (a.sum(0) - b.sum(0)).abs().sum()),),
        ),
        "dot-product": Mistake(
            "Your function looks for the largest dot product of two heads. Two sharp heads that agree for "
            "some queries have a larger one than two broad heads that agree everywhere.",
            EQUAL,
            (_pair(lambda a, b: -(a * b).sum()),),
        ),
        "largest-single-difference": Mistake(
            "Your function compares the largest single difference of two heads. Add up all differences.",
            EQUAL,
            (_pair(lambda a, b: (a - b).abs().max()),),
        ),
        "squared-instead-of-absolute": either(
            "Your function finds the two heads {}. There, a small difference counts less, and a large one "
            "more. Add up the sizes of the differences.",
            EQUAL,
            {
                words: tuple(map(_pair, compares))
                for words, compares in {
                    "with the smallest sum of squared differences": (_squares,),
                    "that are most similar by a cosine or a correlation": (_cosine, _correlation),
                    "that are most similar by a divergence": (_divergence, _hellinger, *ONE_SIDED),
                }.items()
            },
        ),
        "largest-row": Mistake(
            "Your function compares two heads for one query only: the one for which they differ most. Add up "
            "the differences for all queries.",
            EQUAL,
            (_pair(lambda a, b: (a - b).abs().sum(-1).max()),),
        ),
        "one-query-only": Mistake(
            "Your function compares the heads for one query only. Add up the differences for all queries.",
            LOOKS,
            (_pair(lambda a, b: (a - b)[-1].abs().sum()), _pair(lambda a, b: (a - b)[0].abs().sum())),
        ),
        "neighbours-only": Mistake(
            "Your function compares each head with the next one only. Compare every pair.",
            EQUAL,
            (_neighbours,),
        ),
        "head-0-only": Mistake(
            "Your function compares all heads with head 0 only. Compare every pair.",
            EQUAL,
            (
                lambda w: _from_0(w).argsort()[:2],
                lambda w: torch.stack([torch.tensor(0), _from_0(w)[1:].argmin() + 1]),
            ),
        ),
        "least-similar": Mistake(
            "Your function finds the two heads with the largest difference. The smallest one is asked for.",
            EQUAL,
            (_pair(lambda a, b: -_difference(a, b)),),
        ),
        "larger-index-first": Mistake(
            "Your function finds the right pair, but it returns the larger index first.",
            EQUAL,
            (lambda w: RIGHT(w).flip(0),),
        ),
        "place-in-the-table": Mistake(
            "Your function returns one number: a place in a table of pairs, with its rows one after "
            "another. Turn it into two indices.",
            EQUAL,
            (
                lambda w: _table(_difference)(w.double()).argmin(),
                lambda w: _all(w).argmin(),
            ),
        ),
        "difference-returned": Mistake(
            "Your function returns how much the two heads differ, and not which heads they are.",
            EQUAL,
            (lambda w: _all(w).min(), lambda w: _all(w).min() / w[0].numel(), lambda w: _all(w)),
        ),
        "counted-from-1": Mistake(
            "Each number of your result is larger by 1 than the index of the head. Python counts from 0.",
            EQUAL,
            (lambda w: RIGHT(w) + 1,),
        ),
    },
)
