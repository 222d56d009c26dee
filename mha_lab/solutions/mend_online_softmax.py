"""Chapter 08: a running sum that is not corrected when the maximum grows."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def mend_online_softmax(scores, value):
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


def _carry(total, correction, weight):
    return total * correction + weight


def _forget(total, correction, weight):
    return total + weight


def _late(total, correction, weight):
    return (total + weight) * correction


def _inverse(total, correction, weight):
    return total / correction + weight


def _pass(scores, value, add_total, add_output=_carry, finish=torch.div):
    """The loop over keys, with a choice of how the two sums are carried on."""
    highest = torch.full_like(scores[:, :1], -torch.inf)
    total = torch.zeros_like(highest)
    output = scores.new_zeros(scores.shape[0], value.shape[1])
    for j in range(scores.shape[1]):
        score = scores[:, j : j + 1]
        raised = torch.maximum(highest, score)
        correction, weight = torch.exp(highest - raised), torch.exp(score - raised)
        total = add_total(total, correction, weight)
        output = add_output(output, correction, weight * value[j])
        highest = raised
    return finish(output, total)


def _problems(draw):
    yield torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0], [2.0]])
    for dtype in (torch.float32, torch.float64, torch.float64):
        n_q, n_k, d_v = draw.primes(3, at_least=3)
        yield 2 * draw.normal(n_q, n_k, dtype=dtype), draw.normal(n_k, d_v, dtype=dtype)
    yield torch.tensor([[1000.0, 999.0], [-1000.0, -1001.0]]), torch.tensor([[1.0], [3.0]])


STEP = "3 The softmax in one pass"
EXERCISE = Exercise(
    answer=mend_online_softmax,
    chapter="08_what_attention_costs",
    section=STEP,
    points=2,
    problems=_problems,
    bug=lambda scores, value: _pass(scores, value, _forget),
    mistakes={
        "unstable-softmax": Mistake(
            "Your function takes the exp of scores without subtracting a maximum: large scores overflow.",
            "9 Break it: the maximum left out",
            (lambda s, v: (s.exp() @ v) / s.exp().sum(-1, keepdim=True),),
        ),
        "output-not-corrected": Mistake(
            "Your total is corrected, and your output is not: both were added up with the old maximum.",
            STEP,
            (lambda s, v: _pass(s, v, _carry, _forget),),
        ),
        "not-corrected": Mistake(
            "Your function corrects neither of its sums when the maximum grows.",
            STEP,
            (lambda s, v: _pass(s, v, _forget, _forget),),
        ),
        "corrects-the-new-key": Mistake(
            "Your correction also falls on the key that has just come, whose weight is right already.",
            STEP,
            (
                lambda s, v: _pass(s, v, _late),
                lambda s, v: _pass(s, v, _late, _late),
                lambda s, v: _pass(s, v, _carry, _late),
            ),
        ),
        "correction-inverted": Mistake(
            "Your correction has the wrong sign: it must never make larger what is carried over.",
            STEP,
            (lambda s, v: _pass(s, v, _inverse), lambda s, v: _pass(s, v, _inverse, _inverse)),
        ),
        "not-normalised": Mistake(
            "Your output is not divided by the total.",
            STEP,
            (lambda s, v: _pass(s, v, _carry, finish=lambda output, total: output),),
        ),
        "softmax-over-queries": Mistake(
            "Your weights sum to 1 over the queries: the softmax runs over the keys.",
            STEP,
            (lambda s, v: torch.softmax(s, 0) @ v,),
        ),
    },
)
