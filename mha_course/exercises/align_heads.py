"""Chapter 12: the keys of one head, turned as close as possible to those of another."""

import torch

from mha_course.exercises import Exercise, Mistake

STEP = "3 Group the heads of a trained model"


def align_heads(first, other):
    """``(n, d_k)`` twice to ``(n, d_k)``: ``other``, turned onto ``first``."""
    left, _, right = torch.linalg.svd(first.mT @ other)
    return other @ (left @ right).mT


def _turn(first, other):
    left, _, right = torch.linalg.svd(first.mT @ other)
    return left @ right


def _problems(rng):
    yield torch.tensor([[5.0, 0.0], [0.0, 10.0]]), torch.tensor([[3.0, 4.0], [-8.0, 6.0]])
    yield (
        torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 1.0]]),
        torch.tensor([[2.0, 1.0], [-1.0, 3.0], [1.0, 0.5]]),
    )
    for sign in (1, -1):  # a rotation, and a rotation with a reflection
        d_k, more = rng.primes(2)
        first = rng.normal(3 * d_k + more, d_k) + 1
        turn, _ = torch.linalg.qr(rng.normal(d_k, d_k))
        turn = turn.clone()
        turn[0] *= sign * torch.linalg.det(turn).sign()
        yield first, 2 * first @ turn + 0.3 * rng.normal(*first.shape)


def _rotation(first, other):
    """As ``_turn``, but never a reflection."""
    left, sizes, right = torch.linalg.svd(first.mT @ other)
    keep = torch.ones_like(sizes)
    keep[-1] = torch.linalg.det(left @ right).sign()
    return left @ keep.diag() @ right


def _twice_transposed(first, other):
    left, _, right = torch.linalg.svd(first.mT @ other)
    return left @ right.mT


def _centred(first, other):
    first, other = first - first.mean(dim=0), other - other.mean(dim=0)
    return align_heads(first, other)


def _scale(first, other):
    return torch.linalg.svdvals(first.mT @ other).sum() / other.square().sum()


EXERCISE = Exercise(
    answer=align_heads,
    chapter="12_smaller_caches",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        "turned-the-other-way": Mistake(
            "Your function turns each key by the transpose of `R`, and so in the other direction. If "
            "the keys are rows, each row `k` becomes `R @ k` by `other @ R.mT`.",
            STEP,
            (lambda first, other: other @ _turn(first, other),),
        ),
        "transposed-once-more": Mistake(
            "`torch.linalg.svd` returns `V` already transposed, and your function transposes it once more.",
            STEP,
            (
                lambda first, other: other @ _twice_transposed(first, other).mT,
                lambda first, other: other @ _twice_transposed(first, other),
            ),
        ),
        "first-turned": Mistake(
            "Your function turns `first` onto `other`. Turn `other` onto `first`.",
            STEP,
            (lambda first, other: first @ _turn(first, other),),
        ),
        "also-stretched": Mistake(
            "Your function uses the matrix that comes closest of all, by least squares. It also "
            "stretches the keys, and then the scores would change. Only an orthogonal matrix keeps "
            "them.",
            STEP,
            (lambda first, other: other @ torch.linalg.lstsq(other, first).solution,),
        ),
        "singular-values-kept": Mistake(
            "Your function keeps the singular values. Leave them out: `U @ Vh` is orthogonal, and the "
            "product of all three is not.",
            STEP,
            (
                lambda first, other: other @ (first.mT @ other).mT,
                lambda first, other: other @ (first.mT @ other),
            ),
        ),
        "no-reflection": Mistake(
            "Your function allows only rotations. Here a reflection comes closer, and it is orthogonal, too.",
            STEP,
            (lambda first, other: other @ _rotation(first, other).mT,),
        ),
        "means-subtracted": Mistake(
            "Your function subtracts the mean key of each head, as it is done for clouds of points. The "
            "keys should only be turned.",
            STEP,
            (
                _centred,
                lambda first, other: _centred(first, other) + first.mean(dim=0),
                lambda first, other: other @ _turn(first - first.mean(0), other - other.mean(0)).mT,
            ),
        ),
        "also-scaled": Mistake(
            "Your function turns the keys, and then multiplies them by the number that brings them "
            "closest. This would change the scores.",
            STEP,
            (lambda first, other: _scale(first, other) * align_heads(first, other),),
        ),
        "averaged": Mistake(
            "Your function returns the mean of the two heads. Return the turned keys alone.",
            STEP,
            (
                lambda first, other: (first + align_heads(first, other)) / 2,
                lambda first, other: (first + other) / 2,
            ),
        ),
        "matrix-returned": Mistake(
            "Your function returns the matrix `R`. Return the keys after they are turned by it.",
            STEP,
            (_turn, lambda first, other: _turn(first, other).mT),
        ),
        "not-turned": Mistake(
            "Your function returns `other` as it came.",
            STEP,
            (lambda first, other: other,),
        ),
        "first-returned": Mistake(
            "Your function returns `first`.",
            STEP,
            (lambda first, other: first,),
        ),
    },
)
