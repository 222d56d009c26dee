"""Chapter 08: a running sum that is not corrected when the maximum grows."""

import torch

from mha_course.exercises import Exercise, Mistake, deviations


def fix_online_softmax(scores, value):
    """``(n_q, n_k)`` and ``(n_k, d_v)`` to the output ``(n_q, d_v)``, key by key."""
    highest = torch.full_like(scores[:, :1], -torch.inf)
    total = torch.zeros_like(highest)
    output = scores.new_zeros(scores.shape[0], value.shape[1])
    for j in range(scores.shape[1]):
        score = scores[:, j : j + 1]
        raised = torch.maximum(highest, score)
        correction, weight = torch.exp(highest - raised), torch.exp(score - raised)
        total = total * correction + weight
        output = output * correction + weight * value[j]
        highest = raised
    return output / total


def _stub(scores, value):
    highest = torch.full_like(scores[:, :1], -torch.inf)
    total = torch.zeros_like(highest)
    output = scores.new_zeros(scores.shape[0], value.shape[1])
    for j in range(scores.shape[1]):
        score = scores[:, j : j + 1]
        raised = torch.maximum(highest, score)
        correction = torch.exp(highest - raised)
        weight = torch.exp(score - raised)
        total = total + weight
        output = output * correction + weight * value[j]
        highest = raised
    return output / total


def _problems(rng):
    value = torch.tensor([[4.0, -1.0, 2.0, 5.0], [1.0, 3.0, -6.0, 2.0], [-2.0, 7.0, 1.0, -3.0]])
    yield torch.tensor([[0.0, 2.0, 1.0], [1.0, -1.0, 3.0]]), value
    yield torch.tensor([[2.0, 1.0], [-1.0, 0.5], [0.0, 1.5]]), torch.tensor([[5.0], [-3.0]])
    for _ in range(2):
        n_q, n_k, d_v = rng.primes(3, at_least=3)
        yield 2 * rng.normal(n_q, n_k), rng.normal(n_k, d_v)
    large = torch.tensor([[999.0, 1000.0, 998.5], [-1001.0, -999.5, -1000.0], [300.0, -300.0, 301.0]])
    yield large, torch.tensor([[1.0, 7.0], [3.0, -2.0], [-4.0, 5.0]])


def _correction(highest, raised, score):
    return torch.exp(highest - raised)


def _weight(highest, raised, score):
    return torch.exp(score - raised)


def _rescaled(total, correction, weight):
    return total * correction + weight


def _build(
    start=-torch.inf,
    raise_=torch.maximum,
    correct=_correction,
    weigh=_weight,
    total=_rescaled,
    output=_rescaled,
    each=lambda output, total: output,
    keep=lambda highest, raised, score: raised,
    finish=torch.div,
):
    """The loop over keys; each piece can be replaced."""

    def answer(scores, value):
        highest = torch.full_like(scores[:, :1], start)
        below = torch.zeros_like(highest)
        above = scores.new_zeros(scores.shape[0], value.shape[1])
        for j in range(scores.shape[1]):
            score = scores[:, j : j + 1]
            raised = raise_(highest, score)
            correction, weight = correct(highest, raised, score), weigh(highest, raised, score)
            below = total(below, correction, weight)
            above = each(output(above, correction, weight * value[j]), below)
            highest = keep(highest, raised, score)
        return finish(above, below)

    return answer


def _late(total, correction, weight):
    return (total + weight) * correction


def _on_the_weight(total, correction, weight):
    return total + weight * correction


def _twice(total, correction, weight):
    return total * correction * correction + weight


def _last(total, correction, weight):
    return weight


STEP, BREAK = "3 The softmax in one pass", "7 Break it: the maximum left out"
KNOBS = {
    "total": {
        "total-not-corrected": (
            "As before, your total adds up weights that were computed with different maxima.",
            STEP,
            (lambda t, c, w: t + w,),
        ),
        "new-key-corrected-in-total": (
            "In your total the correction is also applied to the newest key, as in `(total + weight) * "
            "correction`; its weight is already computed with the new maximum.",
            STEP,
            (_late,),
        ),
        "only-the-new-key-corrected-in-total": (
            "In your total the correction is applied to the newest key, as in `total + weight * "
            "correction`, not to the sum so far.",
            STEP,
            (_on_the_weight,),
        ),
        "total-corrected-twice": (
            "Your total is multiplied by the correction twice for each key.",
            STEP,
            (_twice,),
        ),
        "total-of-all-queries": (
            "Your total adds the weights of all queries, as `weight.sum()` and `weight.mean()` do; each "
            "query has its own total.",
            STEP,
            (
                lambda t, c, w: t * c + w.sum(),
                lambda t, c, w: t + w.sum(),
                lambda t, c, w: t * c + w.mean(),
                lambda t, c, w: t + w.mean(),
            ),
        ),
        "correction-added-to-total": (
            "Your correction is added to the total, or subtracted from it; multiply by it instead.",
            STEP,
            (
                lambda t, c, w: t + c + w,
                lambda t, c, w: t - c + w,
                lambda t, c, w: t + w - c,
                lambda t, c, w: t * c + c + w,
            ),
        ),
        "total-of-the-last-key": (
            "Your total drops the weights that came before the last key.",
            STEP,
            (_last, lambda t, c, w: w * c, lambda t, c, w: c + w),
        ),
        "total-without-weight": (
            "Your total never adds the weight of a key, so it stays 0.",
            STEP,
            (lambda t, c, w: t * c, lambda t, c, w: t * c * w, lambda t, c, w: t),
        ),
    },
    "output": {
        "output-not-corrected": (
            "Your output adds up terms that were computed with different maxima: it is not corrected.",
            STEP,
            (lambda o, c, w: o + w,),
        ),
        "new-key-corrected-in-output": (
            "In your output the correction is also applied to the newest key; its weight is already "
            "computed with the new maximum.",
            STEP,
            (_late,),
        ),
        "only-the-new-key-corrected-in-output": (
            "In your output the correction is applied to the newest key, not to the sum so far.",
            STEP,
            (_on_the_weight,),
        ),
        "output-corrected-twice": (
            "Your output is multiplied by the correction twice for each key.",
            STEP,
            (_twice,),
        ),
        "output-of-the-last-key": (
            "Your output contains only the last key: the keys before it are dropped.",
            STEP,
            (_last,),
        ),
    },
    "correct": {
        "not-corrected": (
            "Neither of your two sums is corrected: the correction is left out, or is always 1, as it is "
            "when `highest` is raised before the correction is computed.",
            STEP,
            (lambda h, r, s: torch.ones_like(r),),
        ),
        "nan-from-the-first-key": (
            "NaN comes from 0 / 0, 0 * inf or inf - inf. Before the first key `total` is 0 and `highest` is "
            "-inf, which is harmless only in `exp(highest - raised)`.",
            STEP,
            (lambda h, r, s: torch.exp(r - h), lambda h, r, s: h - r),
        ),
        "correction-from-the-score": (
            "Your correction uses the new score, exp(highest - score), even if it is lower than the highest.",
            STEP,
            (lambda h, r, s: torch.exp(h - s),),
        ),
        "weight-as-correction": (
            "Your correction is the weight of the new key, exp(score - raised).",
            STEP,
            (lambda h, r, s: torch.exp(s - r),),
        ),
    },
    "weigh": {
        "weight-inverted": (
            "Your weight is exp(raised - score): the lower the score, the larger it is.",
            STEP,
            (lambda h, r, s: torch.exp(r - s),),
        ),
        "weight-without-maximum": (
            "Your weight is exp(score), without the maximum that your correction expects.",
            STEP,
            (lambda h, r, s: torch.exp(s),),
        ),
    },
    "raise_": {
        "maximum-not-subtracted": (
            "Your function takes exp of the scores themselves: no maximum is subtracted, and large scores "
            "overflow.",
            BREAK,
            (lambda h, s: torch.zeros_like(s),),
        ),
        "newest-score-as-maximum": (
            "Your function subtracts the newest score in place of the highest so far: exp overflows if a "
            "score is far lower than the one before.",
            BREAK,
            (lambda h, s: s,),
        ),
        "one-maximum-for-all-queries": (
            "Your function takes one maximum for all queries; if the scores of one query are far lower, all "
            "its weights become 0, and 0 / 0 is NaN.",
            BREAK,
            (lambda h, s: torch.maximum(h, s.max()), lambda h, s: torch.maximum(h, s).max().expand(s.shape)),
        ),
        "python-max": (
            "Python's `max` and `if` need one truth value, but here each query has its own: `torch.maximum` "
            "and `torch.where` decide entry by entry.",
            STEP,
            (max,),
        ),
    },
    "start": {
        "starts-at-0": (
            "Your highest score starts at 0, not at -inf: if all scores are far below 0, all weights become "
            "0.",
            BREAK,
            (0.0,),
        ),
    },
    "keep": {
        "highest-never-raised": (
            "Your `highest` keeps its first value, -inf: it never gets the new maximum.",
            STEP,
            (lambda h, r, s: h,),
        ),
        "highest-is-the-last-score": (
            "Your `highest` gets the score of the newest key, even if it is lower than the highest.",
            STEP,
            (lambda h, r, s: s,),
        ),
    },
    "each": {
        "divided-at-each-key": (
            "Your output is divided by the total at each key; divide it once, at the end.",
            STEP,
            (lambda o, t: o / t,),
        ),
    },
    "finish": {
        "not-divided": ("Your output is not divided by the total.", STEP, (lambda o, t: o,)),
        "divided-by-all-queries": (
            "Your output is divided by a sum over all queries; each query has its own sum.",
            STEP,
            (lambda o, t: o / t.sum(),),
        ),
        "divided-by-the-number-of-queries": (
            "Your output is divided by the number of queries too.",
            STEP,
            (lambda o, t: o / t / len(t),),
        ),
        "multiplied-by-the-total": (
            "Your output is multiplied by the total, not divided by it.",
            STEP,
            (torch.mul,),
        ),
    },
}


def _mistakes():
    """Each wrong piece, and the likely pairs, such as those with the bug. All pairs would take too long."""
    sums, rest = {knob: KNOBS[knob] for knob in ("total", "output")}, list(KNOBS)[2:]
    found = deviations(_build, KNOBS, pairs=False) | deviations(_build, sums)
    bug = {"total": {"total-not-corrected": KNOBS["total"]["total-not-corrected"]}}
    found |= deviations(_build, {knob: KNOBS[knob] for knob in ("raise_", "finish")})
    for knob in rest:
        found |= deviations(_build, bug | {knob: KNOBS[knob]})
    return found


def _normalised(finish):
    """Divided by the total at each key, as it should be then; and what follows at the end."""
    return lambda s, v: finish(
        torch.softmax(s, -1) @ v, torch.exp(s - s.amax(-1, keepdim=True)).sum(-1, keepdim=True)
    )


def _multiplied(scores, value):
    """Multiplied by the total at each key, and divided at the end only."""
    highest, total, output = torch.full_like(scores[:, :1], -torch.inf), 0, 0
    for j in range(scores.shape[1]):
        raised = torch.maximum(highest, scores[:, j : j + 1])
        correction, weight = torch.exp(highest - raised), torch.exp(scores[:, j : j + 1] - raised)
        output = correction * total * output + weight * value[j]
        total, highest = correction * total + weight, raised
    return output / total


EXERCISE = Exercise(
    answer=fix_online_softmax,
    chapter="08_what_attention_costs",
    section=STEP,
    points=1,
    problems=_problems,
    bug=_stub,
    mistakes={
        **_mistakes(),
        "weight-and-correction-exchanged": Mistake(
            "Your weight and your correction are swapped.",
            STEP,
            (_build(correct=_weight, weigh=_correction),),
        ),
        "softmax-over-queries": Mistake(
            "Your weights sum to 1 over the queries: the softmax should run over the keys.",
            STEP,
            (lambda s, v: torch.softmax(s, 0) @ v,),
        ),
        "no-softmax": Mistake(
            "Your function uses the scores as weights, with or without dividing by their sum: there is no "
            "exp.",
            STEP,
            (lambda s, v: s @ v, lambda s, v: s @ v / s.sum(-1, keepdim=True)),
        ),
        "scaled-again": Mistake(
            "Your scores are divided by a root before the softmax; here, use them as they are.",
            STEP,
            tuple(
                lambda s, v, size=size: torch.softmax(s / size(s, v) ** 0.5, -1) @ v
                for size in (lambda s, v: s.shape[1], lambda s, v: v.shape[1])
            ),
        ),
        "divided-at-each-key-only": Mistake(
            "Your output is divided by the total at each key; the sum so far was already divided, and is "
            "divided again. Divide once, at the end.",
            STEP,
            (_build(each=lambda o, t: o / t, finish=lambda o, t: o),),
        ),
        "multiplied-by-the-total-at-each-key": Mistake(
            "At each key, your function multiplies the output so far by the total so far. That belongs to a "
            "sum that is divided by the new total at each key, and not once more at the end.",
            STEP,
            (_normalised(lambda output, total: output / total), _multiplied),
        ),
        "first-key-twice": Mistake(
            "Your function counts the first key twice.",
            STEP,
            (lambda s, v: torch.softmax(torch.cat([s[:, :1], s], 1), -1) @ torch.cat([v[:1], v]),),
        ),
        "plain-mean": Mistake(
            "Your output is the plain mean of the values: all weights are equal.",
            STEP,
            (lambda s, v: v.mean(0).expand(len(s), -1),),
        ),
    },
)
