"""Chapter 13: a ``score_mod`` of FlexAttention with a soft cap, a window, and the first token."""

import torch

from mha_course.exercises import Exercise, Mistake, _window, deviations

CAP, WINDOW = 5.0, 4


def capped_score_mod(score, batch, head, q_idx, kv_idx):
    """The score between -5 and 5; minus infinity where the key is hidden."""
    near = (kv_idx <= q_idx) & (q_idx - kv_idx < 4)
    return torch.where(near | (kv_idx == 0), 5 * torch.tanh(score / 5), -torch.inf)


def _grid(scores):
    """The arguments of a ``score_mod``, for all scores ``(batch, num_heads, n_q, n_k)`` at once."""
    indices = torch.meshgrid(*(torch.arange(size) for size in scores.shape), indexing="ij")
    return scores, *indices


def _problems(rng):
    one = torch.tensor
    yield one(10.0), one(0), one(0), one(7), one(5)
    yield one(-8.0), one(0), one(0), one(7), one(0)
    yield one(2.0), one(0), one(0), one(7), one(3)
    yield _grid(8 * rng.normal(1, 2, 7, 7))
    batch, heads = rng.primes(2)
    yield _grid(3 * rng.normal(batch, heads, 8, 8))


def _seen(near=_window.right, first=lambda q, k: k == 0):
    return lambda q, k: near(q - k, WINDOW) | first(q, k)


def _never(q, k):
    return torch.zeros_like(k, dtype=torch.bool)


SEEN = _seen()


def _build(
    cap=lambda score: CAP * torch.tanh(score / CAP),
    seen=SEEN,
    hide=lambda score, seen: torch.where(seen, score, -torch.inf),
):
    return lambda score, batch, head, q_idx, kv_idx: hide(cap(score), seen(q_idx, kv_idx))


STEP = "9 Appendix: FlexAttention"
KNOBS = {
    "cap": {
        "not-capped": ("Your function does not cap the scores.", STEP, (lambda score: score,)),
        "cut-off": (
            "Your function cuts the scores off at -5 and 5, so larger scores become equal. A soft cap is "
            "5 * tanh(score / 5).",
            STEP,
            (lambda score: score.clamp(-CAP, CAP),),
        ),
        "not-divided-by-the-cap": (
            "Your function takes tanh of the score itself. Divide by the cap first, so that small scores "
            "hardly change.",
            STEP,
            (lambda score: CAP * torch.tanh(score),),
        ),
        "not-multiplied-by-the-cap": (
            "Your visible scores are between -1 and 1. Multiply by the cap after tanh.",
            STEP,
            (lambda score: torch.tanh(score / CAP), torch.tanh),
        ),
    },
    "seen": {
        **{
            name: (says, section, tuple(map(_seen, wrong)))
            for name, (says, section, wrong) in _window.wrong(
                STEP, {"In your mask": "In your function"}
            ).items()
        },
        "first-token-hidden": (
            "In your function the first token leaves the window. It should stay visible to every query.",
            STEP,
            (_seen(first=_never),),
        ),
        "query-and-key-swapped": (
            "In your function the indices of query and key are swapped.",
            STEP,
            (lambda q, k: _seen()(k, q), lambda q, k: _seen()(k, q) | (k == 0)),
        ),
        "nothing-hidden": (
            "Your function hides no key.",
            STEP,
            (_seen(lambda back, window: back == back),),
        ),
        "inverted": (
            "Your function hides what should be visible, and shows what should be hidden.",
            STEP,
            (lambda q, k: ~_seen()(q, k),),
        ),
    },
    "hide": {
        "hidden-scores-are-0": (
            "Your hidden scores are 0. exp(0) is 1, so these keys get weight: a hidden score is minus "
            "infinity.",
            STEP,
            (lambda score, seen: torch.where(seen, score, 0.0), lambda score, seen: score * seen),
        ),
        "large-negative-number": (
            "Your hidden scores are a large negative number. Minus infinity, `-torch.inf`, is expected.",
            STEP,
            tuple(
                lambda score, seen, low=low: torch.where(seen, score, low)
                for low in (-1e9, -1e4, torch.finfo(torch.float32).min)
            ),
        ),
        "mask-alone": (
            "Your function returns a boolean, as a `mask_mod` does. A `score_mod` returns a score.",
            STEP,
            (lambda score, seen: seen,),
        ),
    },
}


def _hidden_before_the_cap(score, batch, head, q_idx, kv_idx):
    hidden = torch.where(_seen()(q_idx, kv_idx), score, -torch.inf)
    return CAP * torch.tanh(hidden / CAP)


EXERCISE = Exercise(
    answer=capped_score_mod,
    chapter="13_longer_texts",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS),
        "brackets-missing": Mistake(
            "`&` and `|` are computed before `<`, `<=` and `==`. So put each comparison into round brackets.",
            STEP,
            tuple(
                _build(seen=seen)
                for seen in (
                    lambda q, k: (k <= q & (q - k < WINDOW)) | (k == 0),
                    lambda q, k: ((k <= q) & (q - k < WINDOW)) | k == 0,
                    lambda q, k: (k <= q & (q - k < WINDOW)) | k == 0,
                    lambda q, k: (q >= k & (q - k < WINDOW)) | (k == 0),
                    lambda q, k: ((q - k < WINDOW) & k <= q) | (k == 0),
                    lambda q, k: ((q - k < WINDOW) & q >= k) | (k == 0),
                )
            ),
        ),
        "hidden-before-the-cap": Mistake(
            "Your function hides keys before it caps: tanh(-inf) is -1, so a hidden score becomes -5, which "
            "is not hidden. Cap first.",
            STEP,
            (_hidden_before_the_cap,),
        ),
    },
)
