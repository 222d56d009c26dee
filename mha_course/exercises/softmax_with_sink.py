"""Chapter 13: a softmax with one more number in its denominator, a learned sink for each head."""

import torch

from mha_course.exercises import Exercise, Mistake, _softmax, deviations


def softmax_with_sink(scores, sinks):
    """``(..., num_heads, n_q, n_k)`` and ``(num_heads,)`` to weights of the shape of the scores."""
    column = sinks[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]


def _problems(rng):
    yield torch.tensor([[[0.5, 1.0, -1.0]], [[0.0, 2.0, 1.0]]]), torch.tensor([1.5, -0.5])
    yield torch.zeros(1, 1, 3), torch.zeros(1)
    for lead in ((), (2,), (2, 3)):
        heads, n_q, n_k = rng.primes(3)
        yield 2 * rng.normal(*lead, heads, n_q, n_k), 1.5 * rng.normal(heads)
    yield torch.tensor([[[1000.0, 999.0, 0.0]], [[-1000.0, -1001.0, -999.0]]]), torch.tensor([999.5, -1000.5])
    yield torch.tensor([[[3.0, -1.0]]]), torch.tensor([-200.0])  # a sink that takes nothing
    yield torch.tensor([[[3.0, -1.0]], [[0.0, 1.0]]]), torch.tensor([200.0, 1.0])  # one that takes all


def _column(sinks, scores):
    return sinks[:, None, None].expand(*scores.shape[:-1], 1)


def _build(
    sink=lambda sinks: sinks,
    finish=lambda weights: weights[..., :-1],
    joined=lambda scores, column: torch.cat([scores, column], dim=-1),
    weigh=_softmax.right,
):
    def answer(scores, sinks):
        return finish(weigh(joined(scores, _column(sink(sinks), scores))))

    return answer


def _by_hand(shift, in_sum):
    """Exponentials over their sum and one more number."""

    def answer(scores, sinks):
        top = shift(scores, sinks[:, None, None])
        exps = torch.exp(scores - top)
        return exps / (exps.sum(dim=-1, keepdim=True) + in_sum(sinks[:, None, None], top))

    return answer


def _top(scores, sink):
    return scores.amax(dim=-1, keepdim=True)


def _top_of_both(scores, sink):
    return torch.maximum(_top(scores, sink), sink)


def _nothing(scores, sink):
    return torch.zeros_like(sink)


def _all_sinks(scores, sinks, dropped=None):
    """Each row with the sinks of all heads; the last columns are dropped, all sinks or fewer."""
    both = torch.cat([scores, sinks.expand(*scores.shape[:-1], -1)], dim=-1)
    return torch.softmax(both, dim=-1)[..., : -(len(sinks) if dropped is None else dropped)]


STEP = "2 A learned sink"
KNOBS = {
    "sink": {
        "one-sink-for-all-heads": (
            "Your function uses one sink for all heads. Each head has a sink of its own.",
            STEP,
            (
                lambda s: s[0].expand(len(s)),
                lambda s: s.mean().expand(len(s)),
                lambda s: s[-1].expand(len(s)),
            ),
        ),
        "sign-of-the-sink": (
            "Your function uses the sinks with the opposite sign: a larger sink should take more weight.",
            STEP,
            (lambda s: -s,),
        ),
        "score-of-0-for-all": (
            "Your function adds 1, which is exp(0), to each sum, whatever the sinks are. Add the exp of the "
            "head's sink.",
            STEP,
            (torch.zeros_like,),
        ),
    },
    "finish": {
        "sink-kept": (
            "The weights of the sink are still in your result: it has one column too many.",
            STEP,
            (lambda weights: weights,),
        ),
    },
}
EXERCISE = Exercise(
    answer=softmax_with_sink,
    chapter="13_longer_texts",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(_build, {"weigh": _softmax.wrong(STEP, "front")}),
        **deviations(_build, KNOBS),
        "rows-sum-to-1": Mistake(
            "Each row of your result sums to 1, as without a sink. (Adding the same number to all scores of "
            "a row changes nothing.)",
            STEP,
            (lambda scores, sinks: torch.softmax(scores, dim=-1),),
        ),
        "divided-again": Mistake(
            "Your function drops the weight of the sink, and then divides each row by its sum. So the rows "
            "sum to 1, as without a sink (or are 0 / 0, where the sink took everything).",
            STEP,
            (
                _build(finish=lambda weights: weights[..., :-1] / weights[..., :-1].sum(-1, keepdim=True)),
                _build(
                    finish=lambda weights: (
                        weights[..., :-1] / weights[..., :-1].sum(-1, keepdim=True).clamp(min=1e-9)
                    )
                ),
            ),
        ),
        "first-column-is-the-sink": Mistake(
            "Your function puts the sink in front of the keys, and then drops the last column. So the weight "
            "of the sink is the first column of your result, and the last key is lost.",
            STEP,
            (_build(joined=lambda scores, column: torch.cat([column, scores], dim=-1)),),
        ),
        "first-key-dropped": Mistake(
            "Your function appends the sink after the keys, and then drops the first column. So the first "
            "key is lost, and the last column of your result is the weight of the sink.",
            STEP,
            (_build(finish=lambda weights: weights[..., 1:]),),
        ),
        "all-sinks-in-each-row": Mistake(
            "Your function appends the sinks of all heads to each row. A row gets only the sink of its own "
            "head.",
            STEP,
            (_all_sinks, lambda scores, sinks: _all_sinks(scores, sinks, 1)),
        ),
        "sink-without-exp": Mistake(
            "Your function adds the sink itself to the sum. A sink is a score: add its exp.",
            STEP,
            tuple(_by_hand(shift, lambda sink, top: sink) for shift in (_top, _nothing, _top_of_both)),
        ),
        "sink-not-shifted": Mistake(
            "Your function subtracts the largest score of a row from the scores, but not from the sink.",
            STEP,
            tuple(_by_hand(shift, lambda sink, top: sink.exp()) for shift in (_top, _top_of_both)),
        ),
        "one-added-after-the-shift": Mistake(
            "Your function subtracts the largest score of a row, and then adds 1 to the sum, whatever the "
            "sinks are. So the sink has the score of the largest key. Add exp(sink - largest score).",
            STEP,
            (
                _by_hand(_top, lambda sink, top: torch.ones_like(top)),
                _by_hand(_top_of_both, lambda sink, top: torch.ones_like(top)),
            ),
        ),
        "score-of-0-for-all-and-unstable-softmax": Mistake(
            "Your function adds 1 to the sum, whatever the sinks are: add the exp of the head's sink. And it "
            "takes exp of the scores as they are: exp(1000) is larger than any float, so it becomes inf.",
            STEP,
            (_by_hand(_nothing, lambda sink, top: 1.0),),
            ("score-of-0-for-all", "unstable-softmax"),
        ),
        "unstable-softmax": Mistake(
            "Your function takes exp of the scores as they are. exp(1000) is larger than any float, so it "
            "becomes inf. Subtract the largest number of each row first, from the sink too.",
            STEP,
            (_by_hand(_nothing, lambda sink, top: sink.exp()),),
        ),
        "softmax-over-queries": Mistake(
            "Your sum runs over the queries, and not over the keys.",
            STEP,
            (
                lambda scores, sinks: torch.softmax(
                    torch.cat(
                        [scores, sinks[:, None, None].expand(*scores.shape[:-2], 1, scores.shape[-1])], -2
                    ),
                    dim=-2,
                )[..., :-1, :],
                _build(weigh=_softmax.over(-2)),
            ),
        ),
        "sink-taken-off-the-weights": Mistake(
            "Your function subtracts the sinks from the weights. A sink is one more score in the "
            "denominator.",
            STEP,
            (lambda scores, sinks: torch.softmax(scores, dim=-1) - sinks[:, None, None],),
        ),
    },
)
