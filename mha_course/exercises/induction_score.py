"""Chapter 14: how much a head looks at the token that came after an earlier occurrence."""

import torch

from mha_course.chapters import induction
from mha_course.exercises import Exercise, Mistake, deviations


def induction_score(weights, tokens):
    """``(batch, num_heads, n, n)`` and ``(batch, n)`` to one score for each head, ``(num_heads,)``."""
    earlier = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)  # (batch, n, n): j < i has the token of i
    after = earlier.roll(1, dims=-1)  # j = n - 1 is never earlier, so nothing comes round
    total = (weights * after[:, None]).sum(dim=-1)  # (batch, num_heads, n)
    return total.transpose(0, 1)[:, earlier.any(dim=-1)].mean(dim=-1)


def _earlier(tokens):
    """Which places ``j < i`` hold the token of query ``i``: ``(batch, n, n)``."""
    return (tokens[:, :, None] == tokens[:, None, :]).tril(-1)


def _shift(places, by):
    """Moved along the keys; what leaves the text is lost."""
    n = places.shape[-1]
    return places.roll(by, dims=-1) * ((torch.arange(n) - by >= 0) & (torch.arange(n) - by < n))


def _after(earlier):
    return _shift(earlier, 1)


def _before(earlier):
    """Before the first token there is none: its own place is taken then."""
    return _shift(earlier, -1).int() + earlier * (torch.arange(earlier.shape[-1]) == 0)


def _summed(weights, places):
    """``(batch, num_heads, n)``: for each query, the sum of its weights on these places."""
    return (weights * places[:, None]).sum(-1)


def _causal(rng, batch, heads, n):
    hidden = torch.ones(n, n).triu(diagonal=1).bool()
    return torch.softmax((1.5 * rng.normal(batch, heads, n, n)).masked_fill(hidden, -torch.inf), dim=-1)


def _text(rng, n, different):
    """Random tokens in which the first one comes back later, so that some query has an earlier one."""
    tokens = [rng.below(different) for _ in range(n)]
    tokens[n // 2 + 1] = tokens[0]
    return tokens


def _problems(rng):
    yield (
        torch.tensor([[[[1.0, 0.0, 0.0], [0.375, 0.625, 0.0], [0.25, 0.625, 0.125]]]]),
        torch.tensor([[7, 5, 7]]),
    )
    one = torch.tensor([[6, 3, 8, 6, 3, 3, 6, 2]])
    yield _causal(rng, 1, 2, 8), one
    for different in (3, 5, 9):
        batch, heads = rng.shuffled((2, 3, 5))[:2]
        n = rng.shuffled((7, 11, 13))[0]
        # One text with many repetitions and one with few: the mean of their means is another number.
        texts = [_text(rng, n, different if b else 2) for b in range(batch)]
        yield _causal(rng, batch, heads, n), torch.tensor(texts)
    tokens, _ = induction.repeated(2, seed=rng.below(1000))
    yield _causal(rng, 2, 3, tokens.shape[1]), tokens


def _mean(sums, rows, weights, places):
    return sums.transpose(0, 1)[:, rows].mean(-1)


def _build(places=_after, gather=_summed, rows=lambda earlier: earlier.any(-1), reduce=_mean):
    def answer(weights, tokens):
        earlier = _earlier(tokens)
        read = places(earlier)
        return reduce(gather(weights, read), rows(earlier), weights, read)

    return answer


def _own(earlier):
    return torch.eye(earlier.shape[-1], dtype=torch.bool)


def _one(keep):
    """Only one of the earlier occurrences: the last one, or the first."""

    def places(earlier):
        j = torch.arange(earlier.shape[-1])
        found = keep(earlier, j)
        return _after(earlier & (j == found[..., None]))

    return places


def _texts_first(sums, rows, weights, places):
    means = [text[:, row].mean(-1) for text, row in zip(sums, rows, strict=True) if row.any()]
    return torch.stack(means).mean(0)


def _hits(weights, places):
    """Whether the largest weight of a row lies on one of the places."""
    top = weights.argmax(-1, keepdim=True)
    at = places[:, None].expand(weights.shape).float().gather(-1, top)[..., 0]
    return at


STEP = "5 Which heads do it?"
KNOBS = {
    "places": {
        "earlier-place-itself": (
            "Your function reads the weight on the earlier occurrence itself. Read the weight on the token "
            "that came after it.",
            STEP,
            (lambda earlier: earlier,),
        ),
        "token-before": (
            "Your function reads the weight on the token before the earlier occurrence. Read the one after "
            "it.",
            STEP,
            (lambda earlier: _shift(earlier, -1), lambda earlier: earlier.roll(-1, dims=-1), _before),
        ),
        "two-after": (
            "Your function reads the weight on the second token after the earlier occurrence. Read the first "
            "one.",
            STEP,
            (lambda earlier: _shift(earlier, 2),),
        ),
        "last-column-first": (
            "Your function counts weights on the first token, although no token comes before it. `roll`, for "
            "example, moves the last column of a table to the front. Keep only the earlier places, `j < i`: "
            "their last column is empty.",
            STEP,
            (
                lambda earlier: (earlier | earlier.mT | _own(earlier)).roll(1, dims=-1),
                lambda earlier: (earlier | _own(earlier)).roll(1, dims=-1),
            ),
        ),
        "last-occurrence-only": (
            "If a token came several times, your function reads only the weight that belongs to the last "
            "time. Add up the weights for all earlier places.",
            STEP,
            (_one(lambda earlier, j: (earlier * (j + 1)).amax(-1) - 1),),
        ),
        "first-occurrence-only": (
            "If a token came several times, your function reads only the weight that belongs to the first "
            "time. Add up the weights for all earlier places.",
            STEP,
            (_one(lambda earlier, j: earlier.float().argmax(-1)),),
        ),
        "token-before-the-query": (
            "Your function reads the weight on the token just before the query, whatever the tokens are.",
            STEP,
            (lambda earlier: torch.ones_like(earlier).tril(-1).triu(-1),),
        ),
    },
    "gather": {
        "largest-instead-of-the-sum": (
            "If a token came several times, your function takes the largest of the weights. Add them up.",
            STEP,
            (lambda weights, places: (weights * places[:, None]).amax(-1),),
        ),
        "averaged-over-occurrences": (
            "If a token came several times, your function takes the mean of the weights. Add them up.",
            STEP,
            (lambda w, places: _summed(w, places) / places.sum(-1).clamp(min=1)[:, None],),
        ),
        "argmax": (
            "Your function counts the queries whose largest weight is on one of these tokens. Use the "
            "weights themselves.",
            STEP,
            (_hits,),
        ),
        "queries-and-keys-exchanged": (
            "Your function takes rows for columns: queries are on the axis before the last one, keys on the "
            "last.",
            STEP,
            (lambda weights, places: _summed(weights.mT, places),),
        ),
    },
    "rows": {
        "all-queries": (
            "Your mean runs over all queries. Leave out those whose token has not occurred before.",
            STEP,
            (lambda earlier: torch.ones_like(earlier.any(-1)),),
        ),
        "later-queries-too": (
            "Your mean also runs over queries whose token comes again only later. Leave them out.",
            STEP,
            (lambda earlier: (earlier | earlier.mT).any(-1),),
        ),
        "all-but-the-first": (
            "Your mean runs over all queries but {}. Leave out all whose token did not come before.",
            STEP,
            {
                "the first one": (lambda e: torch.arange(e.shape[-1]).expand(e.shape[:2]) > 0,),
                "the first two": (lambda e: torch.arange(e.shape[-1]).expand(e.shape[:2]) > 1,),
            },
        ),
    },
    "reduce": {
        "summed": (
            "Your function adds up the queries. It should return their mean, which is at most 1.",
            STEP,
            (lambda sums, rows, weights, places: sums.transpose(0, 1)[:, rows].sum(-1),),
        ),
        "divided-by-occurrences": (
            "Your function divides by the number of earlier occurrences. If a token came several times, this "
            "is more than the number of queries. Divide by the number of queries.",
            STEP,
            (lambda sums, rows, weights, places: sums.sum((0, 2)) / places.sum(),),
        ),
        "averaged-over-heads": (
            "Your function returns one number for all heads. Each head has its own score.",
            STEP,
            (lambda sums, rows, weights, places: _mean(sums, rows, weights, places).mean(),),
        ),
        "one-score-for-each-text": (
            "Your function returns a row of scores for each text. Take the mean over the queries of all "
            "texts.",
            STEP,
            (lambda sums, rows, weights, places: (sums * rows[:, None]).sum(-1) / rows.sum(-1)[:, None],),
        ),
        "mean-of-the-texts": (
            "Your function takes the mean of each text first, and then the mean of these. A text with few "
            "repetitions then counts as much as one with many. Take one mean over all queries.",
            STEP,
            (_texts_first,),
        ),
        "heads-and-texts-exchanged": (
            "Your function keeps the axis of the texts and averages over the heads. Axis 1 counts the heads.",
            STEP,
            (lambda sums, rows, weights, places: (sums.mean(1) * rows).sum(-1) / rows.sum(-1),),
        ),
    },
}
EXERCISE = Exercise(
    answer=induction_score,
    chapter="14_heads_that_work_together",
    section=STEP,
    points=2,
    problems=_problems,
    same_as=(induction.induction_score,),
    mistakes={
        **deviations(_build, KNOBS),
        "one-distance-for-all": Mistake(
            "Your function reads one diagonal of the weights, whatever the tokens are. That is right only if"
            " the second half of a text repeats the first. Compare the tokens.",
            STEP,
            tuple(
                lambda weights, tokens, back=back: weights.diagonal(-back(tokens.shape[1]), -2, -1).mean(
                    (0, -1)
                )
                for back in (
                    lambda n: n // 2 - 1,
                    lambda n: n // 2,
                    lambda n: n // 2 + 1,
                    lambda n: (n + 1) // 2,
                )
            ),
        ),
    },
)
