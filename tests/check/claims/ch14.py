"""What is said of answers to the exercises of chapter 14, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, same, says

CLAIMS = {}

# --- induction_score


def queries(tokens):
    """Each text, each query whose token stood before, and the places where it stood."""
    for b, text in enumerate(tokens.astype(int).tolist()):
        for i, token in enumerate(text):
            places = [j for j in range(i) if text[j] == token]
            if places:
                yield b, i, places


def mean_of(read):
    """The mean over the queries of what is read for one of them, ``(num_heads,)``."""

    def make(weights, tokens):
        return [np.mean([read(weights[b], i, places) for b, i, places in queries(tokens)], axis=0)]

    return says(make)


def at(w, i, keys):
    """The sum of the weights on those keys that are in the text."""
    return w[:, i, [j for j in keys if 0 <= j < w.shape[-1]]].sum(-1)


def around(w, i, keys):
    """The same, if the key before the first one is the last one."""
    return w[:, i, [j % w.shape[-1] for j in keys]].sum(-1)


def one_of(*predicates):
    return lambda *numbers: any(predicate(*numbers) for predicate in predicates)


def rows(weights, tokens):
    """What a right answer reads for each query, and which text it is of."""
    found = [(b, at(weights[b], i, [j + 1 for j in places])) for b, i, places in queries(tokens)]
    return np.array([b for b, _ in found]), np.array([row for _, row in found])


def texts(weights, tokens):
    """The mean of each text, ``(batch, num_heads)``."""
    of, row = rows(weights, tokens)
    return np.stack([row[of == b].mean(0) for b in range(len(tokens))])


def whole(weights, tokens):
    return rows(weights, tokens)[1].sum(0)


def hits(w, i, places):
    return np.isin(w[:, i].argmax(-1), [j + 1 for j in places]).astype(float)


def with_the_front(last_row_only):
    """For each query, also the weight on the first token, if the text ends with the query's token."""

    def make(weights, tokens):
        extra = [
            weights[b, :, i, 0]
            * (tokens[b, i] == tokens[b, -1] and (i == tokens.shape[1] - 1 or not last_row_only))
            for b, i, _ in queries(tokens)
        ]
        return [(rows(weights, tokens)[1] + np.array(extra)).mean(0)]

    return says(make)


def twice(tokens):
    """How many queries have a token that stands in the text more than once."""
    return sum(text.count(token) > 1 for text in tokens.tolist() for token in text)


CLAIMS |= {
    ("induction_score", name): predicate
    for name, predicate in {
        "earlier-place-itself": mean_of(at),
        "token-before": one_of(
            mean_of(lambda w, i, places: at(w, i, [j - 1 for j in places])),
            mean_of(lambda w, i, places: around(w, i, [j - 1 for j in places])),
        ),
        "last-column-first": one_of(with_the_front(last_row_only=False), with_the_front(last_row_only=True)),
        "two-after": mean_of(lambda w, i, places: at(w, i, [j + 2 for j in places])),
        "last-occurrence-only": mean_of(lambda w, i, places: w[:, i, places[-1] + 1]),
        "first-occurrence-only": mean_of(lambda w, i, places: w[:, i, places[0] + 1]),
        "token-before-the-query": one_of(
            mean_of(lambda w, i, places: w[:, i, i - 1]),
            says(lambda w, tokens: [w.diagonal(-1, 2, 3).mean((0, 2)), w.diagonal(-1, 2, 3).mean(-1)]),
        ),
        "largest-instead-of-the-sum": mean_of(
            lambda w, i, places: w[:, i, [j + 1 for j in places]].max(-1),
        ),
        "averaged-over-occurrences": mean_of(
            lambda w, i, places: w[:, i, [j + 1 for j in places]].mean(-1),
        ),
        "argmax": mean_of(hits),
        "queries-and-keys-exchanged": mean_of(
            lambda w, i, places: at(w.swapaxes(1, 2), i, [j + 1 for j in places])
        ),
        "all-queries": says(lambda w, tokens: [whole(w, tokens) / tokens.size]),
        "later-queries-too": says(lambda w, tokens: [whole(w, tokens) / twice(tokens)]),
        "all-but-the-first": says(lambda w, tokens: [whole(w, tokens) / (tokens.size - len(tokens))]),
        "summed": says(lambda w, tokens: [whole(w, tokens)]),
        "divided-by-occurrences": says(
            lambda w, tokens: [whole(w, tokens) / sum(len(places) for _, _, places in queries(tokens))]
        ),
        "averaged-over-heads": says(lambda w, tokens: [rows(w, tokens)[1].mean()]),
        "one-score-for-each-text": says(lambda w, tokens: [texts(w, tokens)]),
        "mean-of-the-texts": says(lambda w, tokens: [texts(w, tokens).mean(0)]),
        "heads-and-texts-exchanged": says(lambda w, tokens: [texts(w, tokens).mean(1)]),
    }.items()
}

# --- backup_pair


def pair_by(number):
    """The pair with the largest number; ``number`` gets the losses without both, without a, without b."""

    def make(intact, losses):
        n = len(losses)
        found = {
            (a, b): number(losses[a, b], losses[a, a], losses[b, b], float(intact))
            for a in range(n)
            for b in range(a + 1, n)
        }
        return [np.array(max(found, key=found.get))]

    return make


def extra(both, a, b, intact):
    return (both - intact) - (a - intact) - (b - intact)


RIGHT = pair_by(extra)


def extra_of(problem, pair):
    losses, (a, b) = array(problem[1]), np.asarray(pair).astype(int)
    return extra(losses[a, b], losses[a, a], losses[b, b], float(problem[0]))


def a_number(problem, expected, got):
    """A table of extra costs, or its largest number."""
    intact, losses = float(problem[0]), array(problem[1])
    alone = losses.diagonal() - intact
    table = losses - intact - alone[:, None] - alone
    np.fill_diagonal(table, -np.inf)
    free = got.copy() if got.ndim == 2 else got
    if got.ndim == 2 and got.shape == table.shape:
        np.fill_diagonal(free, -np.inf)
        return np.allclose(free, table, atol=1e-3)
    return same(got, table.max())


CLAIMS |= {
    ("backup_pair", name): predicate
    for name, predicate in {
        "costs-most-together": says(pair_by(lambda both, a, b, intact: both)),
        "costs-most-alone": says(lambda intact, losses: [np.sort(losses.diagonal().argsort()[-2:])]),
        "minus-the-costlier-one": says(pair_by(lambda both, a, b, intact: both - max(a, b))),
        "minus-the-cheaper-one": says(pair_by(lambda both, a, b, intact: both - min(a, b))),
        "minus-the-mean": says(pair_by(lambda both, a, b, intact: both - (a + b) / 2)),
        "ratio": says(pair_by(lambda both, a, b, intact: (both - intact) / (a + b - 2 * intact))),
        "smallest-extra": says(pair_by(lambda *numbers: -extra(*numbers))),
        "zero-counts": lambda problem, expected, got: extra_of(problem, expected) < 0 and not got[0] < got[1],
        "diagonal-counts": lambda problem, expected, got: (
            got[0] == got[1] and array(problem[1])[int(got[0]), int(got[0])] < float(problem[0])
        ),
        "without-sign": says(pair_by(lambda *numbers: abs(extra(*numbers)))),
        "neighbours-only": lambda problem, expected, got: abs(got[1] - got[0]) == 1,
        "larger-index-first": says(lambda intact, losses: [RIGHT(intact, losses)[0][::-1]]),
        "extra-cost-returned": a_number,
        "place-in-the-table": lambda problem, expected, got: np.asarray(got).ndim == 0,
        "counted-from-1": says(lambda intact, losses: [RIGHT(intact, losses)[0] + 1]),
    }.items()
}


# --- second_lookup_by_hand: a row of seven letters, and the keys that each of them sees

LETTERS = "sabacba"  # start a b a c b a


def seen(find, nothing="s"):
    """The mask in which query i sees the keys ``find(i)``, or else key 0, itself, all so far or none."""
    rows = np.zeros((7, 7), bool)
    for i in range(7):
        keys = {key for key in find(i) if 0 <= key < 7}
        others = {"s": {0}, "itself": {i}, "all": set(range(i + 1)), "none": set()}[nothing]
        rows[i, sorted(keys or others)] = True
    return rows


def places(i, stop):
    return [j for j in range(stop) if LETTERS[j] == LETTERS[i]]


def after(i):
    return [j + 1 for j in places(i, i)]


SECOND = seen(after)
OTHERS = {
    "the-earlier-place": seen(lambda i: places(i, i)),
    "one-before-the-earlier-place": seen(lambda i: [j - 1 for j in places(i, i)]),
    "later-places": seen(lambda i: [j + 1 for j in places(i, 7) if j != i]),
    "own-place": seen(lambda i: [j + 1 for j in places(i, i + 1)]),
    "own-and-later-places": seen(lambda i: [j + 1 for j in places(i, 7)]),
    "latest-place-only": seen(lambda i: after(i)[-1:]),
    "first-place-only": seen(lambda i: after(i)[:1]),
    "nothing-sees-nothing": seen(after, "none"),
    "nothing-sees-all": seen(after, "all"),
    "nothing-sees-itself": seen(after, "itself"),
    "start-everywhere": seen(lambda i: [*after(i), 0]),
    "itself-everywhere": SECOND | np.eye(7, dtype=bool),
    "rows-and-columns-swapped": SECOND.T,
    "mask-inverted": ~SECOND,
    "where-the-picture-begins": seen(lambda i: []),
}
CLAIMS |= {
    ("second_lookup_by_hand", name): lambda p, e, got, mask=mask: (
        got.dtype == bool and got.shape == (7, 7) and (got == mask).all()
    )
    for name, mask in OTHERS.items()
}
CLAIMS |= {
    ("second_lookup_by_hand", "first-lookup"): lambda p, e, got: (
        got.dtype == bool and (got[1:] == np.eye(7)[:-1].astype(bool)).all() and not got[0, 1:].any()
    ),
    ("second_lookup_by_hand", "numbers-in-place-of-booleans"): lambda p, e, got: (
        got.dtype != bool and (got == SECOND).all()
    ),
    ("second_lookup_by_hand", "additive-mask"): lambda p, e, got: (
        (got[SECOND] == 0).all() and (got[~SECOND] <= -1e4).all()
    ),
}
