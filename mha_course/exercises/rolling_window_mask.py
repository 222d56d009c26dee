"""Chapter 12: what new tokens see of a cache that keeps the last keys only."""

import torch

from mha_course.exercises import Exercise, Mistake, _window, deviations
from mha_lab.masks import sliding_window_mask

WINDOW, ROLLING = "4 Only the last tokens", "5 A cache that does not grow"


def rolling_window_mask(n_new, n_kept, window):
    """The mask ``(n_new, n_kept + n_new)`` of new tokens; the kept keys come first, the oldest first."""
    at = torch.arange(n_kept, n_kept + n_new)[:, None]
    back = at - torch.arange(n_kept + n_new)
    return (back >= 0) & (back < window)


def _problems(rng):
    yield 1, 3, 3
    yield 2, 3, 3
    yield 3, 2, 4
    yield 2, 1, 9
    yield 5, 0, 2
    for _ in range(3):
        n_new, window = rng.primes(2)
        yield n_new, window, window
    n_new, window, fewer = sorted(rng.primes(3, at_least=3))
    yield window, n_new, fewer


def _build(
    start=lambda n_new, n_kept, window: n_kept,
    seen=_window.right,
    form=lambda mask, n_kept: mask,
):
    def answer(n_new, n_kept, window):
        at = (torch.arange(n_new) + start(n_new, n_kept, window))[:, None]
        back = at - torch.arange(n_kept + n_new)
        return form(seen(back, window), n_kept)

    return answer


KNOBS = {
    "start": {
        "positions-from-0": (
            "In your mask the first new token stands at position 0. The kept keys come before it, so it "
            "stands at position `n_kept`.",
            ROLLING,
            (lambda n_new, n_kept, window: 0,),
        ),
    },
    "seen": _window.wrong({"": WINDOW, "rolling": ROLLING}),
    "form": {
        "mask-inverted": (
            "Your mask is True where a key should be hidden. In this course, True means may attend.",
            WINDOW,
            (lambda mask, n_kept: ~mask,),
        ),
        "rows-and-columns-swapped": (
            "In your mask the keys are the rows. Queries are rows, and keys are columns.",
            WINDOW,
            (lambda mask, n_kept: mask.mT,),
        ),
        "numbers-in-place-of-booleans": (
            "Your mask contains the numbers 0 and 1. A comparison, or `.bool()`, turns them into booleans.",
            WINDOW,
            (lambda mask, n_kept: mask.float(), lambda mask, n_kept: mask.long()),
        ),
        "new-keys-first": (
            "In your mask the columns of the new keys come first. The kept keys should come first.",
            ROLLING,
            (lambda mask, n_kept: mask.roll(-n_kept, dims=1),),
        ),
        "new-keys-left-out": (
            "Your mask has no columns for the new keys. A new token sees its own key, and those of new "
            "tokens before it.",
            ROLLING,
            (lambda mask, n_kept: mask[:, :n_kept],),
        ),
        "kept-keys-left-out": (
            "Your mask has no columns for the kept keys.",
            ROLLING,
            (lambda mask, n_kept: mask[:, n_kept:],),
        ),
    },
}


def _window_of(row):
    """All new tokens have the window of one of them."""

    def answer(n_new, n_kept, window):
        j = torch.arange(n_kept + n_new)
        return _build(seen=lambda back, window: back >= 0)(n_new, n_kept, window) & (
            j > n_kept + row(n_new) - window
        )

    return answer


def _wide_in_the_new(n_new, n_kept, window):
    right = rolling_window_mask(n_new, n_kept, window)
    right[:, n_kept:] = torch.ones(n_new, n_new, dtype=torch.bool).tril()
    return right


def _wide_in_the_kept(n_new, n_kept, window):
    right = rolling_window_mask(n_new, n_kept, window)
    right[:, :n_kept] = True
    return right


def _slices(n_new, n_kept, window):
    mask = torch.zeros(n_new, n_kept + n_new, dtype=torch.bool)
    for i in range(n_new):
        end = n_kept + i + 1
        mask[i, end - window : end] = True
    return mask


def _window_from_the_first_key(n_new, n_kept, window):
    mask = torch.ones(n_new, n_kept + n_new, dtype=torch.bool).tril(n_kept)
    return mask.triu(1 - window)


def _one_row_for_all(n_new, n_kept, window):
    return rolling_window_mask(n_new, n_kept, window)[:1].repeat(n_new, 1)


def _lower_border_of_a_full_cache(n_new, n_kept, window):
    return torch.ones(n_new, n_kept + n_new, dtype=torch.bool).tril(n_kept).triu(1)


EXERCISE = Exercise(
    answer=rolling_window_mask,
    chapter="12_smaller_caches",
    section=ROLLING,
    points=2,
    problems=_problems,
    same_as=(sliding_window_mask,),
    mistakes={
        **deviations(_build, KNOBS),
        "one-window-for-all": Mistake(
            "In your mask all new tokens have the same oldest visible key. The window moves by one key from "
            "each new token to the next.",
            ROLLING,
            (_window_of(lambda n_new: n_new - 1), _window_of(lambda n_new: 0)),
        ),
        "new-keys-without-a-window": Mistake(
            "In your mask the window hides old kept keys, but never a new key. If more tokens come than the "
            "window has keys, new keys can be too old, too.",
            ROLLING,
            (_wide_in_the_new,),
        ),
        "kept-keys-without-a-window": Mistake(
            "In your mask, every new token sees all kept keys. The window also cuts off kept keys that are "
            "too old, on the left.",
            ROLLING,
            (_wide_in_the_kept,),
        ),
        "one-row-for-all": Mistake(
            "In your mask all rows are the same: each new token sees the keys that the first one may see. "
            "The window moves by one key from each new token to the next.",
            ROLLING,
            (_one_row_for_all,),
        ),
        "positions-of-a-full-cache": Mistake(
            "In your mask the first new token stands at position `window`, as if the cache were full. It "
            "stands at position `n_kept`, which can be smaller.",
            ROLLING,
            (_build(start=lambda n_new, n_kept, window: window),),
        ),
        "window-of-a-full-cache": Mistake(
            "In your mask the upper border is right, but the lower border is that of a full cache: new "
            "token `i` does not see the first `i + 1` columns. If fewer than `window` keys were kept, it may "
            "see more of them.",
            ROLLING,
            (_lower_border_of_a_full_cache,),
        ),
        "slice-with-a-negative-start": Mistake(
            "Your function is right where at least `window` keys are there. If there are fewer, the start of "
            "your slice is negative, and Python counts it from the end.",
            ROLLING,
            (_slices,),
        ),
        "window-from-the-first-key": Mistake(
            "In your mask the upper border is right, but the lower border of the window is counted as if the "
            "first new token stood at position 0. It stands at position `n_kept`.",
            ROLLING,
            (_window_from_the_first_key,),
        ),
    },
)
