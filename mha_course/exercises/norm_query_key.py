"""Chapter 13: queries and keys divided by their root mean square, head by head."""

import torch

from mha_course.exercises import Exercise, Mistake, deviations
from mha_lab import split_heads

EPS = 1e-6


def norm_query_key(x, gain):
    """``(batch, n, num_heads * d_k)`` and ``(d_k,)`` to ``(batch, num_heads, n, d_k)``."""
    heads = x.unflatten(-1, (-1, len(gain))).transpose(1, 2)
    return gain * heads / (heads.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()


def _problems(rng):
    yield torch.tensor([[[3.0, -4.0, 300.0, 400.0]]]), torch.tensor([1.0, 2.0])
    yield torch.tensor([[[6.0, 8.0], [0.0, 0.0]]]), torch.tensor([1.0, 1.0])  # a token of zeros
    yield torch.tensor([[[0.001, 0.001]]]), torch.tensor([1.0, 1.0])  # here epsilon counts
    for scale in (1.0, 100.0, 1.0):
        batch, heads, n, d_k = rng.primes(4)
        yield scale * (1 + rng.normal(batch, n, heads * d_k)), rng.normal(d_k)


def _root(mean):
    return (mean + EPS).sqrt()


def _build(
    split=lambda x, d_k: split_heads(x, x.shape[-1] // d_k),
    centre=lambda heads: heads,
    size=lambda heads: _root(heads.square().mean(dim=-1, keepdim=True)),
    gained=lambda normed, gain: gain * normed,
):
    def answer(x, gain):
        heads = centre(split(x, len(gain)))
        return gained(heads / size(heads), gain)

    return answer


def _whole_width(x, gain):
    normed = x / _root(x.square().mean(dim=-1, keepdim=True))
    return gain * split_heads(normed, x.shape[-1] // len(gain))


STEP = "3 Scores that explode"
KNOBS = {
    "split": {
        "heads-after-tokens": (
            "In your result the axis of the heads comes after that of the tokens. Shape (batch, num_heads, "
            "n, d_k) is expected.",
            STEP,
            (lambda x, d_k: x.unflatten(-1, (-1, d_k)),),
        ),
        "heads-interleaved": (
            "Your heads are not blocks of neighbouring columns. Head h has the columns h * d_k to "
            "(h + 1) * d_k - 1.",
            STEP,
            (lambda x, d_k: x.unflatten(-1, (d_k, -1)).permute(0, 3, 1, 2),),
        ),
        "view-without-transpose": (
            "Your function makes its heads with one `view` or `reshape`, so numbers of different tokens get "
            "into one head. Cut the width first, and then swap the axes.",
            STEP,
            (lambda x, d_k: x.reshape(x.shape[0], -1, x.shape[1], d_k),),
        ),
    },
    "centre": {
        "mean-subtracted": (
            "Your function subtracts the mean, as a LayerNorm does. Here the mean stays.",
            STEP,
            (lambda heads: heads - heads.mean(dim=-1, keepdim=True),),
        ),
    },
    "size": {
        "length-in-place-of-rms": (
            "Your function divides by the length of each vector, the root of the sum of its squares. Divide "
            "by the square root of their mean.",
            STEP,
            (
                lambda heads: _root(heads.square().sum(dim=-1, keepdim=True)),
                lambda heads: heads.norm(dim=-1, keepdim=True).clamp(min=1e-12),
                lambda heads: heads.norm(dim=-1, keepdim=True) + EPS,
                lambda heads: heads.norm(dim=-1, keepdim=True),
            ),
        ),
        "root-missing": (
            "Your function divides by the mean of the squares. Divide by its root.",
            STEP,
            (lambda heads: heads.square().mean(dim=-1, keepdim=True) + EPS,),
        ),
        "squares-missing": (
            "Your function divides by the square root of a mean of absolute values, or by this mean. "
            "Take the mean "
            "of the squares.",
            STEP,
            (
                lambda heads: heads.abs().mean(dim=-1, keepdim=True) + EPS,
                lambda heads: _root(heads.abs().mean(dim=-1, keepdim=True)),
            ),
        ),
        "standard-deviation": (
            "Your function divides by a standard deviation, which is measured from the mean. The root mean "
            "square is measured from 0.",
            STEP,
            (
                lambda heads: heads.std(dim=-1, keepdim=True) + EPS,
                lambda heads: heads.std(dim=-1, keepdim=True, correction=0) + EPS,
                lambda heads: heads.std(dim=-1, keepdim=True).clamp(min=EPS),
                lambda heads: _root(heads.var(dim=-1, keepdim=True, correction=0)),
                lambda heads: _root(heads.var(dim=-1, keepdim=True)),
            ),
        ),
        "square-of-the-mean": (
            "Your function takes the mean first, and then its square. Square the numbers first, and then "
            "take the mean.",
            STEP,
            (lambda heads: _root(heads.mean(dim=-1, keepdim=True).square()),),
        ),
        "over-the-tokens": (
            "Your mean runs over the tokens. It should run over the d_k numbers of one head of one token.",
            STEP,
            (lambda heads: _root(heads.square().mean(dim=-2, keepdim=True)),),
        ),
        "over-everything": (
            "Your mean runs over the whole tensor. Each vector is divided by a number of its own.",
            STEP,
            (lambda heads: _root(heads.square().mean()),),
        ),
        "eps-missing": (
            "Your function computes 0 / 0 for a token of zeros, which is NaN. Add 1e-6 under the root.",
            STEP,
            (lambda heads: heads.square().mean(dim=-1, keepdim=True).sqrt(),),
        ),
        "eps-outside-the-root": (
            "Your function adds epsilon after the root. In the formula, epsilon stands under the root, with "
            "the mean.",
            STEP,
            (lambda heads: heads.square().mean(dim=-1, keepdim=True).sqrt() + EPS,),
        ),
        "another-epsilon": (
            "Your function does not add 1e-6 under the root: your epsilon is another number, or it stands "
            "elsewhere.",
            STEP,
            (
                lambda heads: heads.square().mean(dim=-1, keepdim=True).sqrt() + 1e-8,
                lambda heads: heads.square().mean(dim=-1, keepdim=True).sqrt().clamp(min=EPS),
                lambda heads: heads.norm(dim=-1, keepdim=True).clamp(min=1e-12) / heads.shape[-1] ** 0.5,
                *(
                    lambda heads, eps=eps: (heads.square().mean(dim=-1, keepdim=True) + eps).sqrt()
                    for eps in (torch.finfo(torch.float32).eps, 1e-5, 1e-8, 1e-12)
                ),
            ),
        ),
        "multiplied-by-the-rms": (
            "Your function multiplies by the root mean square. (`rsqrt` is 1 over the root: multiply by it, "
            "do not divide.)",
            STEP,
            (lambda heads: 1 / _root(heads.square().mean(dim=-1, keepdim=True)),),
        ),
        "not-divided": (
            "Your function does not divide by the root mean square.",
            STEP,
            (lambda heads: 1.0,),
        ),
    },
    "gained": {
        "gain-missing": (
            "Your function does not multiply by the gain.",
            STEP,
            (lambda normed, gain: normed,),
        ),
        "gain-plus-1": (
            "Your function multiplies by 1 + gain, as if the gain was stored minus 1. Multiply by the gain.",
            STEP,
            (lambda normed, gain: (1 + gain) * normed,),
        ),
    },
}
EXERCISE = Exercise(
    answer=norm_query_key,
    chapter="13_longer_texts",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS),
        "all-heads-together": Mistake(
            "Your mean runs over the whole width, over all heads of a token together. Each head is divided "
            "by a root mean square of its own.",
            STEP,
            (
                _whole_width,
                lambda x, gain: (
                    gain
                    * torch.nn.functional.rms_norm(x, x.shape[-1:], eps=EPS)
                    .unflatten(-1, (-1, len(gain)))
                    .transpose(1, 2)
                ),
            ),
        ),
        "layer-norm": Mistake(
            "Your function computes a LayerNorm, which subtracts the mean. Here the mean stays.",
            STEP,
            (
                lambda x, gain: (
                    gain
                    * torch.nn.functional.layer_norm(split_heads(x, x.shape[-1] // len(gain)), gain.shape)
                ),
            ),
        ),
        "not-split": Mistake(
            "Your result is not split into heads: its last axis is the whole width. Shape (batch, num_heads, "
            "n, d_k) is expected.",
            STEP,
            (
                lambda x, gain: (
                    x / _root(x.square().mean(dim=-1, keepdim=True)) * gain.repeat(x.shape[-1] // len(gain))
                ),
                lambda x, gain: (
                    gain * torch.nn.functional.rms_norm(x.unflatten(-1, (-1, len(gain))), gain.shape, eps=EPS)
                ).flatten(-2),
            ),
        ),
        "gain-before-the-norm": Mistake(
            "Your function multiplies by the gain before it divides, so the gain is in the root mean square, "
            "too. Multiply at the end.",
            STEP,
            (
                lambda x, gain: torch.nn.functional.rms_norm(
                    gain * split_heads(x, x.shape[-1] // len(gain)), gain.shape, eps=EPS
                ),
            ),
        ),
    },
)
