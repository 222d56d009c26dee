"""Chapter 05: the whole layer, from tensors only."""

import math

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _scale, _softmax, deviations
from mha_course.exercises import _parts as parts
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
    project=lambda x, q, k, v: (x @ q, x @ k, x @ v),
    cut=parts.split,
    root=_scale.right,
    weigh=parts.softmax,
    fetch=lambda weights, v: weights @ v,
    join=parts.merge,
    out=lambda y, w, x: y @ w,
    returned=lambda output, weights, scores: (output, weights),
):
    def layer(x, w_q, w_k, w_v, w_o, num_heads, mask=None):
        q, k, v = (cut(y, num_heads) for y in project(x, w_q, w_k, w_v))
        n, width = x.shape[-2], len(w_q)
        scores = q @ k.mT / root(_scale.Sizes(width // num_heads, n, n, width, num_heads))
        weights = weigh(scores, mask)
        return returned(out(join(fetch(weights, v)), w_o, x), weights, scores)

    return layer


def _filled(scores, mask, by=-math.inf):
    return scores if mask is None else scores.masked_fill(~mask, by)


def _zeroed(weights, mask):
    """Zeros where the mask is ``False``, whatever the scores were hidden by."""
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


def _hiding(hide):
    """A softmax over scores that ``hide`` has masked; without a mask, over the scores as they are."""
    return lambda s, m: torch.softmax(s if m is None else hide(s, m), -1)


def _over(dim):
    """A softmax over another axis, with the usual ways to hide keys."""
    return (
        lambda s, m: torch.softmax(_filled(s, m), dim),
        lambda s, m: torch.softmax(_filled(s, m), dim).nan_to_num(),
        lambda s, m: torch.softmax(_filled(s, m, -1e9), dim),
    )


def _late(fill):
    """Filled after the softmax."""
    return lambda s, m: torch.softmax(s, -1) if m is None else fill(torch.softmax(s, -1), m)


def _weighed(ways):
    """Scores of hidden keys are as low as possible; then they are weighed in wrong ways."""
    return tuple(
        lambda s, m, of=of, low=low, then=then: then(of(_filled(s, m, low)), m)
        for of in ways
        for low, then in ((-math.inf, lambda w, m: w), (-1e9, lambda w, m: w), (-1e9, _zeroed))
    )


def _behind(x, heads):
    return x.unflatten(-1, (heads, -1))


SIZES = "d_model", "heads", "tokens"
ONE, TWO, WHOLE = "1 Concatenate", "2 What is lost without the projection", "5 The whole layer"


def _knob(pieces, section=WHOLE):
    return {name: (says, section, wrong) for name, (says, *wrong) in pieces.items()}


HIDDEN = _knob(
    {
        "nan-for-empty-row": (
            "A query that may attend to nothing gets NaN; it should get zeros (chapter 04, step 5).",
            parts.nan_rows,
        ),
        "uniform-for-empty-row": (
            "A query that may attend to nothing gets the same weight for every key; it should get zeros "
            "(chapter 04, step 5).",
            parts.uniform_rows,
        ),
        "mask-ignored": ("Your function does not use the mask.", lambda s, m: torch.softmax(s, -1)),
        "mask-inverted": (
            "Your function hides the keys that may be seen: True means may attend (chapter 04, step 4).",
            parts.inverted,
            parts.nan_inverted,
            lambda s, m: parts.uniform_rows(s, None if m is None else ~m),
            lambda s, m: _zeroed(parts.nan_inverted(s, m), m),
            lambda s, m: _zeroed(parts.nan_inverted(s, m), None if m is None else m.any(-1, keepdim=True)),
        ),
    }
)
WEIGH = HIDDEN | _knob(
    {
        "mask-after-softmax": (
            "Your function hides keys after the softmax, when they have already taken their share (chapter "
            "04, step 2).",
            parts.masked_after,
            *map(_late, _softmax.FILLED),
        ),
        "hidden-scores-zero": (
            "Your hidden scores are 0, or nearly 0, before the softmax. That is a score like any other, and "
            "gets weight (chapter 04, step 2).",
            lambda s, m: torch.softmax(_filled(s, m, 0.0), -1),
        ),
        "hidden-scores-large": (
            "Your hidden scores are large and positive: the softmax gives them all the weight, or NaN if "
            "they are infinite. They must be as low as possible.",
            lambda s, m: torch.softmax(_filled(s, m, 1e9), -1),
            lambda s, m: torch.softmax(_filled(s, m, math.inf), -1),
        ),
        "zero-times-infinity": (
            "Your function multiplies the mask by infinity. For visible keys that is 0 times infinity, "
            "which is NaN.",
            _hiding(lambda s, m: s + ~m * -math.inf),
            lambda s, m: _hiding(lambda s, m: s + ~m * -math.inf)(s, m).nan_to_num(),
        ),
        "causal-whatever-the-mask": (
            "Your function hides the future, whether the mask says so or not.",
            lambda s, m: parts.softmax(s, torch.ones(s.shape[-2:], dtype=torch.bool).tril()),
            lambda s, m: parts.softmax(
                s, torch.ones(s.shape[-2:], dtype=torch.bool).tril() & (True if m is None else m)
            ),
        ),
        "mask-added-as-bool": (
            "Your function adds the boolean mask to the scores: True counts as 1 and hides nothing.",
            parts.mask_added,
        ),
        "mask-transposed": (
            "Your function hides queries instead of keys: it swaps the last two axes of the mask.",
            lambda s, m: parts.softmax(s, None if m is None else m.mT),
        ),
        "mask-with-an-axis-too-many": (
            "Your function adds an axis to the mask; the mask lines up with the scores without it.",
            _hiding(lambda s, m: _filled(s, m.unsqueeze(1))),
            _hiding(lambda s, m: _filled(s, m[:, None, None])),
        ),
        "if-mask": (
            "Your function asks a mask of many booleans for one truth value, as `if mask:` does. `if mask "
            "is not None:` asks whether there is one.",
            lambda s, m: parts.softmax(s, m if m else None),
        ),
        "softmax-over-queries": (
            "Your softmax runs over the queries; it should run over the keys, so that each row of weights "
            "sums to 1.",
            *_over(-2),
        ),
        "softmax-over-heads": (
            "Your softmax runs over the heads, so the heads compete with each other.",
            *_over(1),
        ),
        "no-softmax": (
            "Your function uses the scores as the weights: the softmax is missing.",
            _filled,
            lambda s, m: _filled(s, m, 0.0),
            lambda s, m: _filled(s, m, -1e9),
        ),
        "softmax-twice": (
            "Your function takes the softmax of weights that are already the result of a softmax.",
            lambda s, m: torch.softmax(parts.softmax(s, m), -1),
            lambda s, m: torch.softmax(parts.nan_rows(s, m), -1),
        ),
    }
)
WEIGH |= {
    name: (says, section, {words: _weighed(some) for words, some in of.items()})
    if isinstance(of, dict)
    else (says, section, _weighed(of))
    for name, (says, section, of) in _softmax.wrong(WHOLE, "heads").items()
    if name not in WEIGH
}
ROOT = _scale.wrong(WHOLE, *SIZES)
CUT = _knob(
    {
        "view-without-transpose": (
            "Your heads come from a bare view: several pieces of one token land in the same head (chapter "
            "03, step 3).",
            parts.bare_view,
        ),
        "heads-take-turns": (
            "Your heads take the columns in turn, one after the other: the sizes should be (num_heads, d_k), "
            'not (d_k, num_heads) (chapter 03, "What view does" and step 5).',
            parts.interleaved,
        ),
        "overlapping-slices": (
            "In your function head h takes the columns h to h + d_k, so heads share columns; its own "
            "columns begin at h * d_k.",
            lambda x, h: torch.stack([x[..., i : i + x.shape[-1] // h] for i in range(h)], -3),
        ),
        "d_k-heads": (
            "Your function makes d_k heads, each num_heads wide: the two sizes are swapped.",
            lambda x, h: x.unflatten(-1, (-1, h)).transpose(-3, -2),
        ),
    }
)
JOIN = _knob(
    {
        "merge-without-transpose": (
            "Your heads are merged without swapping tokens and heads first, so the numbers of several "
            "tokens are in one row (chapter 03, step 4).",
            parts.bare_merge,
        ),
        "merged-in-turn": (
            "Your heads are merged column by column in turn; the columns of one head should be side by side.",
            parts.merge_interleaved,
        ),
    },
    ONE,
)
PROJECT = _knob(
    {
        "one-matrix-for-two": (
            "Your function uses one of w_q, w_k and w_v in the place of another: queries, keys and values "
            "have one matrix each.",
            *(
                lambda x, *w, which=which: tuple(x @ w[i] for i in which)
                for which in ((0, 0, 0), (0, 0, 2), (1, 1, 2), (0, 1, 1), (0, 1, 0), (0, 2, 2))
            ),
        ),
        "keys-and-values-swapped": (
            "Your function swaps keys and values.",
            lambda x, q, k, v: (x @ q, x @ v, x @ k),
        ),
        "queries-and-keys-swapped": (
            "Your queries are made with w_k and your keys with w_q, so the scores are transposed.",
            lambda x, q, k, v: (x @ k, x @ q, x @ v),
        ),
        "matrices-transposed": (
            "Your function multiplies by the transposes of w_q, w_k and w_v, as nn.Linear does with its "
            "weights.",
            lambda x, q, k, v: (x @ q.mT, x @ k.mT, x @ v.mT),
        ),
        "not-projected": (
            "Your function uses x itself for queries, keys or values, without its matrix.",
            lambda x, q, k, v: (x, x, x),
            lambda x, q, k, v: (x @ q, x @ k, x),
        ),
    }
)
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
RETURNED = _knob(
    {
        "no-weights": (
            "Your function returns no weights; it should return (output, weights).",
            lambda y, w, s: y,
            lambda y, w, s: (y, None),
        ),
        "weights-first": (
            "Your function returns (weights, output); it should return (output, weights).",
            lambda y, w, s: (w, y),
        ),
        "scores-for-weights": (
            "Your second result is the scores; it should be the weights, the softmax of the scores.",
            lambda y, w, s: (y, s),
        ),
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
        heads = zip(*(parts.split(x @ w, num_heads).unbind(1) for w in (w_q, w_k, w_v)), strict=True)
        found = [attend(*qkv, None if mask is None else mask_of(mask, h)) for h, qkv in enumerate(heads)]
        return torch.cat([y for y, _ in found], -1) @ w_o, torch.stack([w for _, w in found], 1)

    return layer


def _attend(q, k, v, mask):
    weights = torch.softmax(_filled(q @ k.mT / q.shape[-1] ** 0.5, mask), -1)
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
    hides = (parts.softmax, _hiding(lambda s, m: torch.where(m, s, -math.inf)))
    return tuple(_build(cut=before, join=after, weigh=weigh) for weigh in hides)


def _divided_late(divide):
    """The weights are divided, and not the scores."""

    def layer(x, w_q, w_k, w_v, w_o, num_heads, mask=None):
        n, width = x.shape[-2], len(w_q)
        by = divide(_scale.Sizes(width // num_heads, n, n, width, num_heads))
        late = _build(root=lambda sizes: 1.0, weigh=lambda s, m: parts.softmax(s, m) / by)
        return late(x, w_q, w_k, w_v, w_o, num_heads, mask)

    return layer


COMMON = (parts.softmax, parts.nan_rows, parts.uniform_rows, lambda s, m: torch.softmax(s, -1))
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
        _build(weigh=parts.nan_rows, fetch=lambda weights, v: (weights @ v).nan_to_num()),
    ),
    "zeros-in-one-result": (
        "If a query may attend to nothing, both results should have zeros for it; only one of yours has "
        "them (chapter 04, step 5).",
        *(
            layer
            for weigh in (parts.nan_rows, parts.uniform_rows)
            for layer in (_from_two(_build(weigh=weigh), _build()), _from_two(_build(), _build(weigh=weigh)))
        ),
    ),
    "nan-replaced-in-the-output": (
        "Your function replaces NaN in the output, but leaves it in the weights. By then the NaN of one "
        "head has spread over the whole row of the output.",
        _build(weigh=parts.nan_rows, returned=lambda y, w, s: (y.nan_to_num(), w)),
    ),
    "no-transpose": (
        "Your function cuts and merges by a bare view, without ever swapping tokens and heads: several "
        "pieces of one token land in the same head (chapter 03, step 3).",
        *(_build(cut=parts.bare_view, join=parts.bare_merge, weigh=weigh) for weigh in COMMON),
    ),
    "heads-take-turns-throughout": (
        "Your function gives the columns to the heads in turn, and merges them in turn: the sizes should be "
        '(num_heads, d_k), not (d_k, num_heads) (chapter 03, "What view does" and step 5).',
        *(_build(cut=parts.interleaved, join=parts.merge_interleaved, weigh=weigh) for weigh in COMMON),
    ),
    "all-matrices-transposed": (
        "Your function multiplies by the transposes of all four matrices, as nn.Linear does with its "
        "weights.",
        *(
            _build(project=PROJECT["matrices-transposed"][2][0], out=lambda y, w, x: y @ w.mT, weigh=weigh)
            for weigh in COMMON
        ),
    ),
    "scaled-after-the-softmax": (
        _scale.AFTER,
        *map(_divided_late, _scale.afterwards(*SIZES)),
    ),
    "heads-behind-tokens": (
        "Your heads stay after the tokens, (batch, n, num_heads, d_k), so the heads of one token attend to "
        "each other. Heads and tokens must be swapped before the product (chapter 03, step 3).",
        *_swapped(_behind, parts.merge),
        *_swapped(_behind, lambda y: y.flatten(-2)),
    ),
    "batch-and-tokens-swapped": (
        "Your function swaps the axes 0 and 1, batch and tokens; swap the axes 1 and 2, tokens and heads, "
        "instead.",
        *_swapped(lambda x, h: _behind(x, h).transpose(0, 1), lambda y: y.transpose(0, 1).flatten(-2)),
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
        _first(lambda x, w, h: parts.split(x, h) @ w),
        _first(lambda x, w, h: _behind(x, h) @ w),
        _first(lambda x, w, h: x[..., : x.shape[-1] // h] @ w),
    ),
}
MISTAKES = deviations(_build, {"weigh": WEIGH})
for pieces in (
    {"root": ROOT, "cut": CUT, "join": JOIN},
    {"project": PROJECT},
    {"out": OUT, "fetch": FETCH},
    {"returned": RETURNED},
):
    MISTAKES |= deviations(_build, {"weigh": HIDDEN, **pieces})
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
