"""Chapter 01: self-attention with one head."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _project, _returned, _scale, _softmax, deviations
from mha_course.exercises._results import Many


def single_head_attention(x, w_q, w_k, w_v):
    """``(..., n, d_model)`` and three matrices to ``(output, weights)``."""
    query, key, value = x @ w_q, x @ w_k, x @ w_v
    weights = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)
    return weights @ value, weights


def _problems(rng):
    x, w_q = (
        torch.tensor([[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]]),
        torch.tensor([[1.0, -1.0], [0.5, 2.0], [0.0, 1.0]]),
    )
    yield x, w_q, torch.tensor([[2.0, 1.0], [-1.0, 0.5], [0.5, -1.0]]), torch.tensor([[1.0], [3.0], [-2.0]])
    for batch in ((), (2,), (2,), (2, 3), (1,)):
        n, d_model, d_k, d_v = rng.primes(4)
        w_q, w_k, w_v = (2 * rng.normal(d_model, d) / d_model**0.5 for d in (d_k, d_k, d_v))
        yield rng.normal(*batch, n, d_model), w_q, w_k, w_v


def _build(
    projections=_project.right,
    divisor=_scale.right,
    weigh=_softmax.right,
    fetch=lambda w, v: w @ v,
    results=_returned.right,
    after=lambda sizes: 1.0,
):
    def answer(x, w_q, w_k, w_v):
        query, key, value = projections(x, w_q, w_k, w_v)
        sizes = _scale.Sizes.of(query, key, x.shape[-1], d_v=value.shape[-1])
        scores = query @ key.mT / divisor(sizes)
        weights = weigh(scores) / after(sizes)
        return results(fetch(weights, value), weights, scores)

    return answer


ROOT, PROJECT = (
    "5 Why divide by the square root of d_k?",
    "2 Scores: how well does each query match each key?",
)
WEIGHTS, OUTPUT = (
    "3 Weights: from scores to numbers that sum to 1",
    "4 Output: the weighted average of the values",
)
WHOLE, AXIS = "6 Put together", "7 Break it: softmax over the wrong axis"
SIZES = "d_model", "d_v", "tokens", "front", "fixed"
KNOBS = {
    "projections": _project.wrong({"": PROJECT, "values": OUTPUT}),
    "divisor": _scale.wrong(ROOT, *SIZES),
    "weigh": _softmax.wrong(WEIGHTS, "front", "self")
    | {
        name: (says, AXIS, of)
        for name, (says, _, of) in _softmax.wrong(WEIGHTS, "front").items()
        if name in ("softmax-over-queries", "softmax-over-an-axis-from-the-front", "softmax-without-dim")
    },
    "fetch": {
        "weights-transposed": (
            "Your output is made with the weights transposed: weights.mT @ value.",
            OUTPUT,
            (lambda w, v: w.mT @ v,),
        ),
        "order-turned": (
            "Your output multiplies value by weights in the wrong order.",
            OUTPUT,
            (lambda w, v: v @ w, lambda w, v: v.mT @ w, lambda w, v: (v.mT @ w).mT),
        ),
        "output-transposed": (
            "Your output is transposed: the tokens must be its rows.",
            OUTPUT,
            (lambda w, v: (w @ v).mT,),
        ),
    },
    "results": _returned.wrong(WHOLE),
}


def _mixed(output_divisor, weights_divisor):
    def answer(*arguments):
        return (
            _build(divisor=output_divisor)(*arguments)[0],
            _build(divisor=weights_divisor)(*arguments)[1],
        )

    return answer


EXERCISE = Exercise(
    answer=single_head_attention,
    chapter="01_single_head_attention",
    section=WHOLE,
    points=2,
    problems=_problems,
    same_as=(mha_lab.SingleHeadAttention.forward,),
    results=("output", Many("weights")),
    mistakes={
        **deviations(_build, KNOBS),
        "scaled-after-the-softmax": Mistake(
            _scale.AFTER,
            ROOT,
            tuple(_build(divisor=lambda s: 1.0, after=after) for after in _scale.afterwards(*SIZES)),
        ),
        "weights-not-scaled": Mistake(
            "Your weights come from scores that are not divided by sqrt(d_k); the weights used for your "
            "output are.",
            ROOT,
            (_mixed(_scale.right, lambda sizes: 1.0),),
        ),
        "output-not-scaled": Mistake(
            "Your output comes from scores that are not divided by sqrt(d_k); your weights are right.",
            ROOT,
            (_mixed(lambda sizes: 1.0, _scale.right),),
        ),
    },
)
