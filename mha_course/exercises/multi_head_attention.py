"""Chapter 05: the whole layer, from tensors only."""

import math

import torch

import mha_lab
from mha_course.exercises import (
    Exercise,
    Mistake,
    _heads,
    _hide,
    _project,
    _returned,
    _scale,
    deviations,
    known,
)
from mha_course.exercises._finished import refusing
from mha_course.exercises._results import Many


def multi_head_attention(x, w_q, w_k, w_v, w_o, num_heads, mask=None):
    """``(batch, n, d_model)`` and four ``(d_model, d_model)`` to ``(output, weights)``."""
    query, key, value = ((x @ w).unflatten(-1, (num_heads, -1)).transpose(1, 2) for w in (w_q, w_k, w_v))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if mask is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        empty = ~mask.any(dim=-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(~mask & ~empty, -torch.inf), dim=-1).masked_fill(
            empty, 0.0
        )
    return (weights @ value).transpose(1, 2).flatten(-2) @ w_o, weights


def _problems(rng):
    two_tokens = torch.tensor([[[1.0, 2.0, -1.0], [0.5, -1.0, 2.0]]])
    matrices = (
        torch.tensor([[0.5, -0.5, 1.0], [0.1, 0.3, -0.4], [0.2, -0.6, 0.4]]),
        torch.tensor([[0.4, 0.6, -0.2], [0.5, -0.3, 0.7], [-0.4, 0.2, 0.3]]),
        torch.tensor([[2.0, 1.0, 3.0], [1.0, -2.0, 0.5], [-1.0, 4.0, 1.0]]),
        torch.tensor([[1.0, 2.0, 0.5], [-1.0, 3.0, 1.0], [2.0, 0.5, -2.0]]),
    )
    yield two_tokens, *matrices, 3, torch.tensor([[[[False, False], [True, True]]]])
    yield two_tokens, *matrices, 3, torch.tensor([[True, True], [False, True]])
    yield *(rng.normal(*size).mul(10).round() / 10 for size in ((1, 3, 4), *4 * [(4, 4)])), 2
    for kind in ("no mask", "pairs", "keys", "heads"):
        batch, n, num_heads, d_k = rng.shuffled((2, 3, 4, 5))
        width = num_heads * d_k
        x = rng.normal(batch, n, width)
        matrices = [rng.normal(width, width) / width**0.5 for _ in range(4)]
        mask = rng.mask(batch, num_heads if kind == "heads" else 1, 1 if kind == "keys" else n, n)
        mask[..., rng.below(n)] = True
        mask[rng.below(batch), -1, 0] = False  # sees nothing
        yield (x, *matrices, num_heads) if kind == "no mask" else (x, *matrices, num_heads, mask)
    # A weight of 0.0003 in head 0.
    yield torch.tensor([[[2.87, 1.0], [0.0, -1.0]]]), *4 * [torch.eye(2)], 2


PIECES = (
    mha_lab.split_heads,
    mha_lab.merge_heads,
    mha_lab.scaled_dot_product_scores,
    mha_lab.scaled_dot_product_attention,
    mha_lab.masked_softmax,
    torch.nn.functional.multi_head_attention_forward,
)


def _call(answer, *arguments):
    """Neither the finished pieces nor PyTorch's layer count as an answer."""
    if getattr(answer, "__globals__", {}) is globals():  # not a learner's
        return answer(*arguments)
    with refusing(list(PIECES)):
        return answer(*arguments)


def _build(
    project=_project.right,
    cut=_heads.split,
    root=_scale.right,
    weigh=_hide.right,
    fetch=lambda weights, v: weights @ v,
    join=_heads.merge,
    out=lambda y, w, x: y @ w,
    returned=_returned.right,
    after=lambda sizes: 1.0,
):
    def layer(x, w_q, w_k, w_v, w_o, num_heads, mask=None):
        q, k, v = (cut(y, num_heads) for y in project(x, w_q, w_k, w_v))
        n, width = x.shape[-2], len(w_q)
        sizes = _scale.Sizes(width // num_heads, n, n, width, num_heads)
        scores = q @ k.mT / root(sizes)
        weights = weigh(scores, mask) / after(sizes)
        return returned(out(join(fetch(weights, v)), w_o, x), weights, scores)

    return layer


def _masked(hide, *then):
    """The scores hidden in this way, and a softmax; without a mask, the softmax alone."""
    return _hide.Steps((hide,), then=then or _hide.THEN[:1]).ways((), ())


def _seen(read):
    """The right way, with a mask that is read otherwise."""
    return lambda s, m: _hide.right(s, None if m is None else read(m))


SIZES = "d_model", "heads", "tokens"
ONE, TWO, WHOLE = "1 Concatenate", "2 What is lost without the projection", "5 The whole layer"


def _knob(pieces, section=WHOLE):
    return {name: (says, section, wrong) for name, (says, *wrong) in pieces.items()}


WEIGH = _hide.wrong(
    WHOLE,
    *("empty", "heads", "batch"),
    hide=_hide.HIDE[:3],
    then=_hide.THEN[:4],
    see=_hide.CHAPTER_04,
) | _knob(
    {
        "causal-whatever-the-mask": (
            "Your function hides the future, whether the mask says so or not.",
            lambda s, m: _hide.right(s, torch.ones(s.shape[-2:], dtype=torch.bool).tril()),
            lambda s, m: _hide.right(
                s, torch.ones(s.shape[-2:], dtype=torch.bool).tril() & (True if m is None else m)
            ),
        ),
        "mask-transposed": (
            "Your function hides queries instead of keys: it swaps the last two axes of the mask.",
            _seen(lambda m: m.mT),
        ),
        "mask-with-an-axis-too-many": (
            "Your function adds an axis to the mask; the mask lines up with the scores without it.",
            *_masked(lambda s, m: s.masked_fill(~m.unsqueeze(1), -math.inf)),
            *_masked(lambda s, m: s.masked_fill(~m[:, None, None], -math.inf)),
        ),
        "if-mask": (
            "Your function asks a mask of many booleans for one truth value, as `if mask:` does. `if mask "
            "is not None:` asks whether there is one.",
            lambda s, m: _hide.right(s, m if m else None),
        ),
    }
)
NAN, UNIFORM, UNMASKED = (_masked(hide)[0] for hide in (_hide.filled(), _hide.filled(-1e9), lambda s, m: s))
HIDDEN = {  # seen together with others; each pair costs time
    "nan-for-empty-row": (NAN,),
    "uniform-for-empty-row": (UNIFORM,),
    "mask-ignored": (UNMASKED,),
    "mask-inverted": (
        *_masked(lambda s, m: s.masked_fill(m, -math.inf), *_hide.THEN[:3]),
        *_masked(lambda s, m: s.masked_fill(m, -1e9)),
        _seen(lambda m: ~m),
    ),
}
HIDDEN = {name: (*WEIGH[name][:2], ways) for name, ways in HIDDEN.items()}
JOIN = known(_heads.MERGE, ONE)
OUT = _knob(
    {
        "no-output-projection": (
            "Your output is the heads side by side: w_o is not used.",
            lambda y, w, x: y,
        ),
        "output-matrix-transposed": (
            "Your function multiplies by the transpose of w_o, as nn.Linear does with its weight.",
            lambda y, w, x: y @ w.mT,
        ),
        "input-added": (
            "Your function adds x to the output. That is done outside this layer.",
            lambda y, w, x: y @ w + x,
        ),
    },
    TWO,
)
FETCH = _knob(
    {
        "weights-transposed": (
            "Your function multiplies the values by the transposed weights: a row of weights belongs to a "
            "query.",
            lambda weights, v: weights.mT @ v,
        ),
    }
)
RETURNED = _returned.wrong(WHOLE) | _knob(
    {
        "weights-averaged-over-heads": (
            "Your weights are the mean over the heads; each head has its own weights.",
            lambda y, w, s: (y, w.mean(1)),
            lambda y, w, s: (y, w.mean(1, keepdim=True)),
        ),
        "weights-of-one-head": (
            "Your weights are those of one head; each head has its own weights.",
            lambda y, w, s: (y, w[:, -1]),
            lambda y, w, s: (y, w[:, 0]),
        ),
        "weights-with-heads-in-front": (
            "Your weights are stacked along a new first axis, the heads; they should come after the batch: "
            "`dim=1`.",
            lambda y, w, s: (y, w.transpose(0, 1)),
        ),
    }
)


def _loop(attend, mask_of):
    """Head by head."""

    def layer(x, w_q, w_k, w_v, w_o, num_heads, mask=None):
        heads = zip(*(_heads.split(x @ w, num_heads).unbind(1) for w in (w_q, w_k, w_v)), strict=True)
        found = [attend(*qkv, None if mask is None else mask_of(mask, h)) for h, qkv in enumerate(heads)]
        return torch.cat([y for y, _ in found], -1) @ w_o, torch.stack([w for _, w in found], 1)

    return layer


def _attend(q, k, v, mask):
    weights = NAN(q @ k.mT / q.shape[-1] ** 0.5, mask)
    return weights @ v, weights


def _mend(q, k, v, mask):
    weights = _attend(q, k, v, mask)[1].nan_to_num()
    return weights @ v, weights


def _from_two(one, other):
    """The output of one layer, the weights of the other."""
    return lambda *arguments: (one(*arguments)[0], other(*arguments)[1])


def _first(projection):
    """The first projection goes wrong."""
    return lambda x, w_q, w_k, w_v, w_o, num_heads, mask=None: projection(x, w_q, num_heads)


def _swapped(before, after):
    """The heads moved elsewhere; the mask applied by either of two functions with different errors."""
    hides = _hide.right, *_masked(lambda s, m: torch.where(m, s, -math.inf))
    return tuple(_build(cut=before, join=after, weigh=weigh) for weigh in hides)


COMMON = _hide.right, NAN, UNIFORM, UNMASKED
ALONE = {
    "mask-in-a-loop": (
        "In a loop over the heads, the scores of one head are (batch, n, n), but your mask does not fit "
        "them: its axis of the heads may have length 1, or be missing. Give it all four axes first, with "
        "`expand`.",
        *(
            _loop(attend, mask_of)
            for attend in (_attend, _mend, mha_lab.scaled_dot_product_attention)
            for mask_of in (lambda m, h: m, lambda m, h: m[:, h], lambda m, h: m[:, 0])
        ),
    ),
    "nan-replaced-in-what-is-fetched": (
        "Your function replaces NaN in what the heads fetch, but leaves it in the weights. A query that may "
        "attend to nothing should have weights of 0: replace NaN before you multiply by the values.",
        _build(weigh=NAN, fetch=lambda weights, v: (weights @ v).nan_to_num()),
    ),
    "zeros-in-one-result": (
        "If a query may attend to nothing, both results should have zeros for it; only one of yours has "
        "them (chapter 04, step 5).",
        *(
            layer
            for weigh in (NAN, UNIFORM)
            for layer in (_from_two(_build(weigh=weigh), _build()), _from_two(_build(), _build(weigh=weigh)))
        ),
    ),
    "nan-replaced-in-the-output": (
        "Your function replaces NaN in the output, but leaves it in the weights. By then the NaN of one "
        "head has spread over the whole row of the output.",
        _build(weigh=NAN, returned=lambda y, w, s: (y.nan_to_num(), w)),
    ),
    "no-transpose": (
        "Your function cuts and merges by a bare view, without ever swapping tokens and heads: several "
        "pieces of one token land in the same head (chapter 03, step 3).",
        *(_build(cut=_heads.bare_view, join=_heads.bare_merge, weigh=weigh) for weigh in COMMON),
    ),
    "heads-take-turns-throughout": (
        "Your function gives the columns to the heads in turn, and merges them in turn: the sizes should be "
        '(num_heads, d_k), not (d_k, num_heads) (chapter 03, "What view does" and step 5).',
        *(_build(cut=_heads.interleaved, join=_heads.merge_interleaved, weigh=weigh) for weigh in COMMON),
    ),
    "all-matrices-transposed": (
        "Your function multiplies by the transposes of all four matrices, as nn.Linear does with its "
        "weights.",
        *(
            _build(
                project=_project.FORMS["matrices-transposed"].of[0], out=lambda y, w, x: y @ w.mT, weigh=weigh
            )
            for weigh in COMMON
        ),
    ),
    "scaled-after-the-softmax": (
        _scale.AFTER,
        *(_build(root=lambda s: 1.0, after=after) for after in _scale.afterwards(*SIZES)),
    ),
    "heads-behind-tokens": (
        "Your heads stay after the tokens, (batch, n, num_heads, d_k), so the heads of one token attend to "
        "each other. Heads and tokens must be swapped before the product (chapter 03, step 3).",
        *_swapped(_heads.behind, _heads.merge),
        *_swapped(_heads.behind, lambda y: y.flatten(-2)),
    ),
    "batch-and-tokens-swapped": (
        "Your function swaps the axes 0 and 1, batch and tokens; swap the axes 1 and 2, tokens and heads, "
        "instead.",
        *_swapped(lambda x, h: _heads.behind(x, h).transpose(0, 1), lambda y: y.transpose(0, 1).flatten(-2)),
    ),
    "rows-of-w_q": (
        "Your function cuts the rows of w_q, w_k and w_v for the heads; a head owns d_k of their columns.",
        _first(lambda x, w, h: x @ w[: len(w) // h]),
    ),
    "heads-meet-a-whole-matrix": (
        "Your function multiplies heads, which are d_k wide, by a whole matrix of d_model rows. Cut after "
        "the products with w_q, w_k and w_v, and merge before the product with w_o.",
        _build(join=lambda y: y),
        _build(join=lambda y: y.transpose(1, 2)),
        _first(lambda x, w, h: _heads.split(x, h) @ w),
        _first(lambda x, w, h: _heads.behind(x, h) @ w),
        _first(lambda x, w, h: x[..., : x.shape[-1] // h] @ w),
    ),
}
MISTAKES = SINGLE = deviations(_build, {"weigh": WEIGH})
for pieces in (
    {"root": _scale.wrong(WHOLE, *SIZES), "cut": _heads.wrong(WHOLE, see=_heads.CHAPTER_03), "join": JOIN},
    {"project": _project.wrong(WHOLE, "square")},
    {"out": OUT, "fetch": FETCH},
    {"returned": RETURNED},
):
    MISTAKES = MISTAKES | deviations(_build, {"weigh": HIDDEN, **pieces}) | SINGLE
MISTAKES |= {name: Mistake(says, WHOLE, tuple(variants)) for name, (says, *variants) in ALONE.items()}
EXERCISE = Exercise(
    answer=multi_head_attention,
    chapter="05_output_projection",
    section=WHOLE,
    points=3,
    problems=_problems,
    same_as=(mha_lab.MultiHeadAttention.forward,),
    results=("output", Many("weights")),
    call=_call,
    mistakes=MISTAKES,
)
